//! Safetensors files: to Python and back, whole or not at all, and never trusted.

use cotangent::io::StateDict;
use cotangent::io::safetensors::{self, Notes};
use cotangent::{DType, Generator, Result, Tensor};
use std::fs;
use std::path::{Path, PathBuf};

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("cotangent-io-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> std::io::Result<Vec<String>> {
        fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn message(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

/// Nobody changes the files of these tests while they are mapped.
#[allow(unsafe_code)]
fn load_mmap(path: &Path) -> Result<StateDict> {
    // SAFETY: as said above.
    unsafe { safetensors::load_mmap(path) }
}

fn assert_same(a: &StateDict, b: &StateDict) -> Result<()> {
    let sorted = |dict: &StateDict| {
        let mut names: Vec<String> = dict.names().map(str::to_string).collect();
        names.sort();
        names
    };
    assert_eq!(sorted(a), sorted(b));
    for (name, tensor) in a.iter() {
        let other = b.get(name).map(|other| other.equal(tensor)).transpose()?;
        assert_eq!(other, Some(true), "{name}");
    }
    Ok(())
}

/// One tensor of every dtype, and shapes without elements and without dimensions.
fn everything() -> Result<StateDict> {
    let mut dict = StateDict::new();
    let values = Tensor::new([[0.0, 1.0, 2.0], [3.0, -4.0, 100.0]])?;
    for dtype in DType::ALL {
        let values = if dtype.is_float() { values.clone() } else { values.abs()? };
        dict.insert(format!("layer.{dtype}"), values.to_dtype(dtype)?);
    }
    dict.insert("empty", Tensor::zeros([0, 3])?);
    dict.insert("scalar", Tensor::new(2.5)?);
    dict.insert("strided", values.t()?);
    Ok(dict)
}

#[test]
fn every_dtype_and_shape_comes_back() -> Outcome {
    let folder = Folder::new("roundtrip")?;
    let path = folder.file("values");
    let dict = everything()?;
    let notes =
        Notes::from([("format".to_string(), "pt".to_string()), ("ünï".to_string(), "\"quoted\"\n".to_string())]);
    safetensors::save_with_notes(&path, &dict, &notes)?;
    let (loaded, read) = safetensors::load_with_notes(&path)?;
    assert_same(&dict, &loaded)?;
    assert_eq!(read, notes);
    assert_same(&dict, &load_mmap(&path)?)?;
    assert_eq!(folder.names()?, ["values"], "no temporary file is left");
    safetensors::save(&path, &StateDict::new())?;
    assert!(safetensors::load(&path)?.is_empty());
    Ok(())
}

/// `tests/fixtures/python.st` was written by Python's safetensors from PyTorch tensors.
#[test]
fn a_file_written_by_python_is_read() -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/python.st");
    let (dict, notes) = safetensors::load_with_notes(&path)?;
    assert_eq!(notes.get("made by").map(String::as_str), Some("python"));
    for dict in [dict, load_mmap(&path)?] {
        let get = |name: &str| dict.get(name).cloned().ok_or(format!("{name} is missing"));
        assert_eq!(get("fc1.weight")?.to_vec::<f32>()?, [1.0, -2.5, 3.25, 0.0, 1e-30, 1e30]);
        assert_eq!(get("fc1.weight")?.shape(), [2, 3]);
        assert_eq!(get("half")?.to_dtype(DType::F32)?.to_vec::<f32>()?, [0.5, -65504.0]);
        assert_eq!(get("brain")?.to_dtype(DType::F32)?.to_vec::<f32>()?, [0.5, -256.0, 3.0]);
        assert_eq!(get("double")?.to_vec::<f64>()?, [std::f64::consts::PI]);
        assert_eq!(get("steps")?.to_vec::<i64>()?, [-(1 << 40), 7]);
        assert_eq!(get("small")?.to_vec::<i8>()?, [-128, 127]);
        assert_eq!(get("bytes")?.to_vec::<u8>()?, [0, 255, 1]);
        assert_eq!(get("mask")?.to_vec::<bool>()?, [true, false, true]);
        assert_eq!((get("scalar")?.shape(), get("scalar")?.item::<i32>()?), (&[][..], -3));
        assert_eq!(get("empty")?.shape(), [2, 0]);
        assert_eq!(dict.len(), 10);
    }
    Ok(())
}

#[test]
fn a_mapped_tensor_is_changed_in_a_copy_and_the_file_stays() -> Outcome {
    let folder = Folder::new("mapped")?;
    let path = folder.file("values");
    let dict: StateDict = [("x", Generator::seed(1).randn([1000])?)].into_iter().collect();
    safetensors::save(&path, &dict)?;
    let bytes = fs::read(&path)?;
    let mapped = load_mmap(&path)?;
    let mut x = mapped.get("x").cloned().ok_or("x is missing")?;
    x.add_(1.0)?;
    assert_eq!(fs::read(&path)?, bytes);
    assert!(mapped.get("x").is_some_and(|x| x.equal(dict.get("x").unwrap_or(x)).unwrap_or(false)));
    // Another file takes the place of the mapped one; the mapping keeps the old bytes.
    safetensors::save(&path, &[("x", Tensor::zeros([1000])?)].into_iter().collect::<StateDict>())?;
    assert_same(&mapped, &dict)?;
    assert!(
        safetensors::load(&path)?
            .get("x")
            .is_some_and(|x| x.to_vec::<f32>().is_ok_and(|x| x.iter().all(|x| *x == 0.0)))
    );
    Ok(())
}

#[test]
fn elements_that_lie_askew_are_copied() -> Outcome {
    let folder = Folder::new("askew")?;
    let path = folder.file("values");
    let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    // Not padded to a multiple of 8, as the format allows.
    assert_ne!(header.len() % 4, 0);
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend([1.5_f32, -2.0].iter().flat_map(|x| x.to_le_bytes()));
    fs::write(&path, file)?;
    for dict in [safetensors::load(&path)?, load_mmap(&path)?] {
        assert_eq!(dict.get("x").map(Tensor::to_vec::<f32>).transpose()?, Some(vec![1.5, -2.0]));
    }
    Ok(())
}

/// A file with this header, and so many bytes of two behind it.
fn with_header(header: &str, bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + bytes, 2);
    file
}

#[test]
fn broken_files_are_errors_that_name_them() -> Outcome {
    let folder = Folder::new("broken")?;
    let path = folder.file("values");
    safetensors::save(&path, &everything()?)?;
    let good = fs::read(&path)?;
    let header = u64::from_le_bytes(good[..8].try_into()?) as usize;
    let mut cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "too few"),
        (good[..7].to_vec(), "too few"),
        (good[..8 + header / 2].to_vec(), "does not fit"),
        (good[..8 + header].to_vec(), "but its header says"),
        (good[..good.len() - 1].to_vec(), "but its header says"),
        ([&good[..], b"x"].concat(), "but its header says"),
        (b"garbage that is long enough".to_vec(), "does not fit"),
        (with_header("not json", 0), "expected"),
        (with_header("{\"x\":1}", 0), "x"),
        (with_header(r#"{"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}"#, 3), "x: a bool is 0 or 1, not 2"),
        (with_header(r#"{"x":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[0,3]}}"#, 3), "x: there is no dtype"),
        (with_header(r#"{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,3]}}"#, 3), "nvalid"),
        (with_header(r#"{"x":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}"#, 4), "nvalid"),
        (with_header(r#"{"x":{"dtype":"U8","shape":[18446744073709551615,2],"data_offsets":[0,4]}}"#, 4), "values"),
    ];
    let mut huge = good.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    cases.push((huge, "does not fit"));
    for (bytes, part) in cases {
        fs::write(&path, &bytes)?;
        for refused in [message(safetensors::load(&path)), message(load_mmap(&path))] {
            assert!(refused.starts_with("safetensors::load: ") && refused.contains("values"), "{refused}");
            assert!(refused.contains(part), "{part} is not in {refused}");
        }
    }
    // Whatever byte of the header is wrong, there is an error or a dictionary, never a panic.
    for at in 0..8 + header {
        let mut bytes = good.clone();
        bytes[at] ^= 0x15;
        fs::write(&path, &bytes)?;
        let _ = safetensors::load(&path);
    }
    let missing = message(safetensors::load(folder.file("absent")));
    assert!(missing.starts_with("safetensors::load: ") && missing.contains("absent"), "{missing}");
    Ok(())
}

#[test]
fn a_failed_save_leaves_the_old_file_and_nothing_else() -> Outcome {
    let folder = Folder::new("atomic")?;
    let dict = everything()?;
    let nowhere = folder.file("no/such/folder");
    assert!(message(safetensors::save(&nowhere, &dict)).starts_with("safetensors::save: "));
    // A folder cannot be replaced by a file: the write succeeds, the renaming does not.
    let occupied = folder.file("occupied");
    fs::create_dir(&occupied)?;
    fs::write(occupied.join("inside"), "kept")?;
    assert!(message(safetensors::save(&occupied, &dict)).contains("occupied"));
    assert_eq!(fs::read_to_string(occupied.join("inside"))?, "kept");
    assert_eq!(folder.names()?, ["occupied"], "no temporary file is left");
    assert!(message(safetensors::save("/", &dict)).contains("names no file"));
    Ok(())
}

#[test]
fn writers_do_not_disturb_each_other() -> Outcome {
    let folder = Folder::new("race")?;
    let path = folder.file("values");
    safetensors::save(&path, &[("x", Tensor::full([10_000], 0.0)?)].into_iter().collect::<StateDict>())?;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for round in 0..10 {
                    let value = Tensor::full([10_000], f64::from(writer * 100 + round));
                    let saved =
                        value.and_then(|x| safetensors::save(path, &[("x", x)].into_iter().collect::<StateDict>()));
                    assert_eq!(message(saved), "no error");
                }
            });
        }
        for _ in 0..50 {
            let x = safetensors::load(&path).map(|dict| dict.get("x").map(Tensor::to_vec::<f32>));
            let whole = matches!(x, Ok(Some(Ok(x))) if x.len() == 10_000 && x.iter().all(|v| *v == x[0]));
            assert!(whole, "a reader saw half a file");
        }
    });
    assert_eq!(folder.names()?, ["values"]);
    Ok(())
}

#[test]
fn a_dictionary_keeps_its_order() -> Result<()> {
    let mut dict: StateDict =
        ["b", "a", "c"].into_iter().zip((0..3).map(Tensor::new).collect::<Result<Vec<_>>>()?).collect();
    assert_eq!(dict.insert("a", Tensor::new(9)?).map(|t| t.item::<i64>()).transpose()?, Some(1));
    assert_eq!(dict.names().collect::<Vec<_>>(), ["b", "a", "c"]);
    assert_eq!(dict.remove("b").map(|t| t.item::<i64>()).transpose()?, Some(0));
    assert!(dict.remove("b").is_none() && dict.get("b").is_none());
    assert_eq!(dict.get("c").map(Tensor::item::<i64>).transpose()?, Some(2));
    assert_eq!(dict.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "c"]);
    Ok(())
}
