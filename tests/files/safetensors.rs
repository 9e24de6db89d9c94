//! Safetensors files: exchange with Python, atomic writes, and untrusted input.

use crate::checks::both;
use cotangent::io::StateDict;
use cotangent::io::safetensors::{self, Metadata};
use cotangent::{DType, Generator, Result, Tensor, tensor};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// A folder that is removed when the test ends.
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

/// The files of these tests are not changed while they are mapped.
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

/// One tensor of every dtype that the format has, and shapes without elements and without dimensions.
fn everything() -> Result<StateDict> {
    let mut dict = StateDict::new();
    let values = tensor!([[0.0, 1.0, 2.0], [3.0, -4.0, 100.0]])?;
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::C128) {
        let values = if dtype.is_float() { values.clone() } else { values.abs()? };
        dict.insert(format!("layer.{dtype}"), values.to_dtype(dtype)?);
    }
    dict.insert("empty", Tensor::zeros([0, 3])?);
    dict.insert("scalar", tensor!(2.5)?);
    dict.insert("strided", values.t()?);
    Ok(dict)
}

#[test]
fn every_dtype_and_shape_comes_back() -> Outcome {
    let folder = Folder::new("roundtrip")?;
    let path = folder.file("values");
    let dict = everything()?;
    let metadata =
        Metadata::from([("format".to_string(), "pt".to_string()), ("ünï".to_string(), "\"quoted\"\n".to_string())]);
    safetensors::save_with_metadata(&path, &dict, &metadata)?;
    let (loaded, read) = safetensors::load_with_metadata(&path)?;
    assert_same(&dict, &loaded)?;
    assert_eq!(read, metadata);
    assert_same(&dict, &load_mmap(&path)?)?;
    assert_eq!(folder.names()?, ["values"], "no temporary file is left");
    let mut wide = StateDict::new();
    wide.insert("z", Tensor::zeros_with([2], DType::C128)?);
    let refused = safetensors::save(&path, &wide).map_err(|e| e.to_string());
    assert!(refused.is_err_and(|e| e.contains("z") && e.contains("c128")));
    assert_same(&dict, &safetensors::load(&path)?)?;
    safetensors::save(&path, &StateDict::new())?;
    assert!(safetensors::load(&path)?.is_empty());
    Ok(())
}

/// `tests/fixtures/python.st` was written by Python's safetensors from PyTorch tensors.
#[test]
fn a_file_written_by_python_is_read() -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/python.st");
    let (dict, metadata) = safetensors::load_with_metadata(&path)?;
    assert_eq!(metadata.get("made by").map(String::as_str), Some("python"));
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
    // Another file replaces the mapped one; the mapping keeps the old bytes.
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

/// A file with this header, followed by bytes of value 2.
fn with_header(header: &str, bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + bytes, 2);
    file
}

/// The messages of both ways to load, without the operation's name.
fn refusals(path: &Path) -> [String; 2] {
    let (read, mapped) = (message(safetensors::load(path)), message(load_mmap(path)));
    let strip = |message: &str, op: &str| {
        let told = message.strip_prefix(op).and_then(|rest| rest.strip_prefix(": "));
        assert!(told.is_some(), "{op} is not named: {message}");
        told.unwrap_or_default().to_string()
    };
    [strip(&read, "safetensors::load"), strip(&mapped, "safetensors::load_mmap")]
}

#[test]
fn broken_files_are_errors_that_name_them() -> Outcome {
    let folder = Folder::new("broken")?;
    let path = folder.file("values");
    safetensors::save(&path, &everything()?)?;
    let good = fs::read(&path)?;
    let header = u64::from_le_bytes(good[..8].try_into()?) as usize;
    let mut huge = good.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "too few"),
        (good[..7].to_vec(), "too few"),
        (good[..8 + header / 2].to_vec(), "does not fit"),
        (good[..8 + header].to_vec(), "layer.u64: data_offsets must be in order and at most 0, got 0 to 48"),
        (good[..good.len() - 1].to_vec(), "layer.i8: data_offsets must be in order"),
        ([&good[..], b"x"].concat(), "bytes after the header"),
        (b"garbage that is long enough".to_vec(), "does not fit"),
        (with_header("not json", 0), "expected"),
        (with_header("[1, 2]", 0), "expected"),
        (huge, "does not fit"),
    ];
    for (bytes, part) in cases {
        fs::write(&path, &bytes)?;
        for refused in refusals(&path) {
            assert!(refused.contains("values: "), "{refused}");
            assert!(refused.contains(part), "{part} is not in {refused}");
        }
    }
    // Any wrong byte of the header gives an error or a dictionary, never a panic.
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
fn a_tensor_that_a_file_lies_about_is_named() -> Outcome {
    let folder = Folder::new("lies")?;
    let path = folder.file("values");
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"layer.x":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{offsets}]}}}}"#)
    };
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":[{a}]}},"layer.x":{{"dtype":"U8","shape":[4],"data_offsets":[{b}]}}}}"#
        )
    };
    // Bytes that end where no number ends: with the header's they are more than a file can have.
    let most = (1_u64 << 61) - 1;
    let beyond: Vec<String> = (0..8)
        .map(|i| {
            let (name, start) = (if i == 0 { "layer.x".to_string() } else { i.to_string() }, i * most);
            format!(r#""{name}":{{"dtype":"U8","shape":[{most}],"data_offsets":[{start},{}]}}"#, start + most)
        })
        .collect();
    let escape = r#"{"layer.x\u001b[2J":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}}"#;
    let cases = [
        (one("BOOL", "3", "0,3"), 3, "a bool must be 0 or 1, got 2"),
        (one("F8_E5M2", "3", "0,3"), 3, "unknown dtype F8_E5M2"),
        (one("F33", "3", "0,3"), 3, "unknown dtype F33"),
        (r#"{"layer.x":{"dtype":"U8","shape":[1]}}"#.to_string(), 1, "missing field `data_offsets`"),
        (r#"{"layer.x":[1]}"#.to_string(), 1, "invalid type: sequence"),
        (one("F32", "3", "0,3"), 3, "expected 12 bytes for shape [3] of f32, got 3"),
        (one("U8", "3", "1,4"), 4, "data_offsets must begin at 0, where the tensor before ends, got 1"),
        (one("U8", "3", "4,1"), 4, "where the tensor before ends, got 4"),
        (one("U8", "0", "0,9"), 4, "at most 4, got 0 to 9"),
        (one("U8", "18446744073709551615,2", "0,4"), 4, "[18446744073709551615, 2]"),
        (one("U8", "4294967296,4294967296,0", "0,0"), 0, "more bytes than can be addressed"),
        (one("F64", "2305843009213693952", "0,0"), 0, "2305843009213693952"),
        (one("U8", "-1", "0,1"), 1, "-1"),
        (one("U8", "1e30", "0,1"), 1, "invalid type"),
        (one("U8", "1", "0,1,2"), 1, "trailing characters"),
        (two("0,4", "2,6"), 6, "data_offsets must begin at 4, where the tensor before ends, got 2"),
        (two("0,4", "0,4"), 4, "data_offsets must begin at 4, where the tensor before ends, got 0"),
        (two("0,4", "8,12"), 12, "data_offsets must begin at 4, where the tensor before ends, got 8"),
        (format!("{{{}}}", beyond.join(",")), 4, "data_offsets must be in order"),
        (r#"{"layer.x":1}"#.to_string(), 0, "invalid type"),
        (r#"{"layer.x":{}}"#.to_string(), 0, "missing field `dtype`"),
        (escape.to_string(), 4, "\\u{1b}[2J: expected 3 bytes for shape [3] of u8, got 4"),
        (r#"{"__metadata__":{"layer.x":3}}"#.to_string(), 0, "__metadata__: invalid type"),
    ];
    for (header, bytes, part) in cases {
        fs::write(&path, with_header(&header, bytes))?;
        for refused in refusals(&path) {
            assert!(refused.contains("values: layer.x") || part.starts_with("__metadata__"), "{refused}");
            assert!(refused.contains(part), "{part} is not in {refused}");
        }
    }
    Ok(())
}

/// A file may claim any length for its header, and a sparse one has that length without taking room on the disk.
#[test]
fn a_huge_header_is_refused_before_there_is_memory_for_it() -> Outcome {
    let folder = Folder::new("sparse")?;
    let path = folder.file("values");
    for claimed in [40_u64 << 30, 100_000_001] {
        let mut file = fs::File::create(&path)?;
        file.write_all(&claimed.to_le_bytes())?;
        file.set_len(claimed + 8)?;
        for refused in refusals(&path) {
            assert!(refused.contains("values") && refused.contains(&claimed.to_string()), "{refused}");
            assert!(refused.contains("at most 100000000 bytes"), "{refused}");
        }
    }
    Ok(())
}

#[test]
fn what_could_not_be_loaded_is_not_saved() -> Outcome {
    let folder = Folder::new("reserved")?;
    let path = folder.file("values");
    safetensors::save(&path, &everything()?)?;
    let saved = fs::read(&path)?;
    let dict: StateDict = [("__metadata__", Tensor::zeros([2])?)].into_iter().collect();
    let refused = message(safetensors::save(&path, &dict));
    assert!(refused.starts_with("safetensors::save: ") && refused.contains("values"), "{refused}");
    assert!(refused.contains("name __metadata__ is reserved"), "{refused}");
    // Names that are longer than the format's readers accept.
    let dict: StateDict = [("x".repeat(100_000_000), Tensor::zeros([2])?)].into_iter().collect();
    let refused = message(safetensors::save_with_metadata(&path, &dict, &Metadata::new()));
    assert!(
        refused.starts_with("safetensors::save_with_metadata: ") && refused.contains("header must have"),
        "{refused}"
    );
    assert!(fs::read(&path)? == saved, "the old file is as it was");
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
    assert!(message(safetensors::save("/", &dict)).contains("has no file name"));
    Ok(())
}

/// Processes in containers may have the same id, and share a folder.
#[test]
fn a_file_of_someone_else_is_neither_in_the_way_nor_removed() -> Outcome {
    let folder = Folder::new("foreign")?;
    let path = folder.file("values");
    let foreign: Vec<PathBuf> =
        (0..200).map(|i| folder.file(&format!(".values.{}.{i}.tmp", std::process::id()))).collect();
    for file in &foreign {
        fs::write(file, "of someone else")?;
    }
    assert_eq!(message(safetensors::save(&path, &everything()?)), "no error");
    assert!(foreign.iter().all(|file| file.exists()));
    assert_eq!(folder.names()?.len(), foreign.len() + 1);
    Ok(())
}

#[test]
fn a_name_may_be_as_long_as_the_system_allows() -> Outcome {
    let folder = Folder::new("long")?;
    let path = folder.file(&"v".repeat(250));
    assert_eq!(message(safetensors::save(&path, &everything()?)), "no error");
    assert_same(&safetensors::load(&path)?, &everything()?)?;
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_stays_and_its_file_is_replaced() -> Outcome {
    use std::os::unix::fs::symlink;
    let folder = Folder::new("links")?;
    fs::create_dir_all(folder.file("far"))?;
    // A chain of two links, relative and absolute, to a file that does not exist at first.
    let (link, middle, file) = (folder.file("link"), folder.file("far/middle"), folder.file("far/file"));
    symlink("far/middle", &link)?;
    symlink(&file, &middle)?;
    for value in [1.0, 2.0] {
        let dict: StateDict = [("x", Tensor::full([3], value)?)].into_iter().collect();
        safetensors::save(&link, &dict)?;
        assert!(fs::symlink_metadata(&link)?.is_symlink() && fs::symlink_metadata(&middle)?.is_symlink());
        assert!(fs::symlink_metadata(&file)?.is_file());
        assert_same(&safetensors::load(&file)?, &dict)?;
    }
    let circle = folder.file("circle");
    symlink("circle", &circle)?;
    let refused = message(safetensors::save(&circle, &everything()?));
    assert!(refused.contains("circle"), "{refused}");
    assert!(fs::symlink_metadata(&circle)?.is_symlink());
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_file_that_is_private_stays_private() -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode")?;
    let path = folder.file("values");
    let mode = |path: &Path| fs::metadata(path).map(|file| file.permissions().mode() & 0o777);
    for wanted in [0o600, 0o640, 0o666] {
        safetensors::save(&path, &everything()?)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(wanted))?;
        safetensors::save(&path, &everything()?)?;
        assert_eq!(mode(&path)?, wanted, "{:o}", mode(&path)?);
    }
    // A new file has the usual mode.
    safetensors::save(folder.file("new"), &everything()?)?;
    fs::write(folder.file("any"), "")?;
    assert_eq!(mode(&folder.file("new"))?, mode(&folder.file("any"))?);
    Ok(())
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_replaced() -> Outcome {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::new("socket")?;
    let path = folder.file("values");
    let _listener = std::os::unix::net::UnixListener::bind(&path)?;
    let refused = message(safetensors::save(&path, &everything()?));
    assert!(refused.contains("values: not a regular file"), "{refused}");
    assert!(fs::symlink_metadata(&path)?.file_type().is_socket());
    assert_eq!(folder.names()?, ["values"]);
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
        ["b", "a", "c"].into_iter().zip((0_i64..3).map(Tensor::new).collect::<Result<Vec<_>>>()?).collect();
    assert_eq!(dict.insert("a", tensor!(9)?).map(|t| t.item::<i64>()).transpose()?, Some(1));
    assert_eq!(dict.names().collect::<Vec<_>>(), ["b", "a", "c"]);
    assert_eq!(dict.remove("b").map(|t| t.item::<i64>()).transpose()?, Some(0));
    assert!(dict.remove("b").is_none() && dict.get("b").is_none());
    assert_eq!(dict.get("c").map(Tensor::item::<i64>).transpose()?, Some(2));
    assert_eq!(dict.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "c"]);
    Ok(())
}

#[test]
fn a_dictionary_is_renamed_whole_or_not_at_all() -> Result<()> {
    let mut dict: StateDict =
        ["b", "a", "c"].into_iter().zip((0_i64..3).map(Tensor::new).collect::<Result<Vec<_>>>()?).collect();
    dict.rename("a", "z")?;
    dict.rename("c", "c")?;
    assert_eq!(message(dict.rename("none", "y")), "StateDict::rename: no tensor named none");
    assert_eq!(
        message(dict.rename("b", "z")),
        "StateDict::rename: cannot rename b to z: there is a tensor of that name"
    );
    assert_eq!(dict.names().collect::<Vec<_>>(), ["b", "z", "c"]);
    let value = |dict: &StateDict, name: &str| dict.get(name).map(Tensor::item::<i64>).transpose();
    assert_eq!((value(&dict, "z")?, value(&dict, "a")?), (Some(1), None));
    // The positions are right, too.
    assert_eq!(dict.remove("b").map(|t| t.item::<i64>()).transpose()?, Some(0));
    assert_eq!((value(&dict, "z")?, value(&dict, "c")?), (Some(1), Some(2)));
    Ok(())
}

#[test]
fn a_tensor_of_a_dictionary_is_changed_there_and_nowhere_else() -> Result<()> {
    let x = Tensor::ones([2])?;
    let mut dict: StateDict = [("x", x.clone())].into_iter().collect();
    assert!(dict.get_mut("y").is_none());
    dict.get_mut("x").map(|x| x.add_(1.0)).transpose()?;
    assert_eq!(dict.get("x").map(Tensor::to_vec::<f32>).transpose()?, Some(vec![2.0, 2.0]));
    assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    Ok(())
}

#[test]
fn only_floats_of_a_dictionary_are_cast() -> Result<()> {
    let dict = everything()?;
    let half = dict.to_dtype(DType::F16)?;
    assert_eq!(dict.names().collect::<Vec<_>>(), half.names().collect::<Vec<_>>());
    for ((name, before), (_, after)) in both(dict.iter(), half.iter()) {
        let wanted = if before.dtype().is_float() { DType::F16 } else { before.dtype() };
        assert_eq!((after.dtype(), after.shape()), (wanted, before.shape()), "{name}");
    }
    let refused = message(dict.to_dtype(DType::I32));
    assert!(refused.starts_with("StateDict::to_dtype: ") && refused.contains("got i32"), "{refused}");
    Ok(())
}
