//! Files of other programs: NumPy's, PyTorch's, llama.cpp's. The fixtures were written by those programs, by
//! `tools/io_fixtures.py`.

use cotangent::io::{LoadOptions, StateDict, Value, gguf, npy, npz, pytorch, safetensors};
use cotangent::{DType, Result, Tensor, s, tensor};
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("cotangent-formats-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/io").join(name)
}

fn message(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

fn expected(file: &str) -> std::result::Result<Json, Box<dyn std::error::Error>> {
    let all: Json = serde_json::from_str(&fs::read_to_string(fixture("expected.json"))?)?;
    Ok(all[file].clone())
}

/// All numbers of a tensor as text, exactly; a complex number is two.
fn numbers(x: &Tensor) -> Result<Vec<String>> {
    let x = if x.dtype().is_complex() { x.view_as_real()? } else { x.clone() };
    Ok(match x.dtype() {
        DType::U64 => x.to_vec::<u64>()?.iter().map(ToString::to_string).collect(),
        d if d.is_float() => x.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| format!("{x:?}")).collect(),
        _ => x.to_dtype(DType::I64)?.to_vec::<i64>()?.iter().map(ToString::to_string).collect(),
    })
}

fn assert_as_expected(dict: &StateDict, expected: &Json) -> Outcome {
    let expected = expected.as_object().ok_or("no object")?;
    let mut names: Vec<&str> = dict.names().collect();
    names.sort_unstable();
    let mut wanted: Vec<&str> = expected.keys().map(String::as_str).collect();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    for (name, x) in dict.iter() {
        let one = &expected[name];
        assert_eq!(Some(x.dtype().to_string().as_str()), one["dtype"].as_str(), "{name}");
        let shape: Vec<u64> = x.shape().iter().map(|size| *size as u64).collect();
        assert_eq!(Some(shape), one["shape"].as_array().map(|s| s.iter().filter_map(Json::as_u64).collect()), "{name}");
        let is_float = x.dtype().is_float() || x.dtype().is_complex();
        let text = |value: &Json| {
            if is_float { format!("{:?}", value.as_f64().unwrap_or(f64::NAN)) } else { value.to_string() }
        };
        let wanted: Vec<String> = one["values"].as_array().ok_or("no values")?.iter().map(text).collect();
        assert_eq!(numbers(x)?, wanted, "{name}");
    }
    Ok(())
}

#[test]
fn numpy_arrays_of_all_kinds_are_read() -> Outcome {
    let expected = expected("arrays.npz")?;
    assert_as_expected(&npz::load(fixture("arrays.npz"))?, &expected)?;
    let mut compressed = npz::load(fixture("compressed.npz"))?;
    let zeros = compressed.remove("zeros").ok_or("zeros are missing")?;
    assert_eq!((zeros.shape(), zeros.sum(..)?.item::<f32>()?), (&[100_000][..], 0.0));
    assert_as_expected(&compressed, &expected)?;
    for name in ["row_major.npy", "version2.npy", "version3.npy"] {
        assert_eq!(npy::load(fixture(name))?.to_vec::<f32>()?, [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5], "{name}");
    }
    // What was read can be changed in place.
    let mut fortran = npz::load(fixture("arrays.npz"))?.remove("fortran.f4").ok_or("it is missing")?;
    fortran.add_(1.0)?;
    Ok(())
}

#[test]
fn arrays_are_written_byte_for_byte_as_numpy_writes_them() -> Outcome {
    let folder = Folder::new("npy")?;
    let path = folder.file("x.npy");
    for name in ["row_major.npy", "vector.npy", "scalar.npy"] {
        npy::save(&path, &npy::load(fixture(name))?)?;
        assert_eq!(fs::read(&path)?, fs::read(fixture(name))?, "{name}");
    }
    // A view is written in row-major order.
    let x = npy::load(fixture("row_major.npy"))?;
    npy::save(&path, &x.t()?)?;
    assert!(npy::load(&path)?.equal(&x.t()?)?);
    Ok(())
}

/// One tensor of every dtype, with shapes without elements and without dimensions.
fn everything(without: &[DType]) -> Result<StateDict> {
    let mut dict = StateDict::new();
    let values = tensor!([[0.0, 1.0, 2.0], [3.0, -4.0, 100.0]])?;
    for dtype in DType::ALL.into_iter().filter(|dtype| !without.contains(dtype)) {
        let values = if dtype.is_float() || dtype.is_complex() { values.clone() } else { values.abs()? };
        dict.insert(format!("layer.{dtype}"), values.to_dtype(dtype)?);
    }
    dict.insert("empty", Tensor::zeros([0, 3])?);
    dict.insert("scalar", tensor!(2.5)?);
    dict.insert("strided", values.t()?);
    dict.insert("ünï", tensor!([1_u8])?);
    Ok(dict)
}

fn assert_same(a: &StateDict, b: &StateDict) -> Outcome {
    assert_eq!(a.names().collect::<Vec<_>>(), b.names().collect::<Vec<_>>());
    for (name, x) in a.iter() {
        let y = b.get(name).ok_or(name)?;
        assert_eq!((x.dtype(), x.shape()), (y.dtype(), y.shape()), "{name}");
        assert_eq!(numbers(x)?, numbers(y)?, "{name}");
    }
    Ok(())
}

#[test]
fn every_dtype_comes_back_from_npz_and_pt() -> Outcome {
    let folder = Folder::new("roundtrip")?;
    let dict = everything(&[DType::BF16])?;
    npz::save(folder.file("stored.npz"), &dict)?;
    npz::save_compressed(folder.file("deflated.npz"), &dict)?;
    for name in ["stored.npz", "deflated.npz"] {
        assert_same(&npz::load(folder.file(name))?, &dict)?;
    }
    let refused = message(npz::save(folder.file("stored.npz"), &everything(&[])?));
    assert!(refused.starts_with("npz::save: ") && refused.contains("layer.bf16: NumPy has no bf16"), "{refused}");
    assert_same(&npz::load(folder.file("stored.npz"))?, &dict)?;
    let dict = everything(&[])?;
    pytorch::save(folder.file("model.pt"), &dict)?;
    assert_same(&pytorch::load(folder.file("model.pt"))?, &dict)?;
    npz::save(folder.file("none.npz"), &StateDict::new())?;
    assert!(npz::load(folder.file("none.npz"))?.is_empty());
    pytorch::save(folder.file("none.pt"), &StateDict::new())?;
    assert!(pytorch::load(folder.file("none.pt"))?.is_empty());
    Ok(())
}

/// With `COTANGENT_TEST_PYTHON`, a Python with NumPy and PyTorch, the real programs read what was written here.
#[test]
fn numpy_and_pytorch_read_what_is_written() -> Outcome {
    let Ok(python) = std::env::var("COTANGENT_TEST_PYTHON") else {
        println!("skipped: COTANGENT_TEST_PYTHON names no Python");
        return Ok(());
    };
    let folder = Folder::new("python")?;
    let dict = everything(&[DType::BF16])?;
    npz::save(folder.file("stored.npz"), &dict)?;
    npz::save_compressed(folder.file("deflated.npz"), &dict)?;
    pytorch::save(folder.file("model.pt"), &everything(&[])?)?;
    safetensors::save_sharded(folder.file("model"), &everything(&[DType::C128])?, 40)?;
    let program = r#"
import sys, numpy as np, torch, json, pathlib
folder = pathlib.Path(sys.argv[1])
def check(get, dtypes):
    for name, dtype in dtypes.items():
        x = np.array([[0, 1, 2], [3, -4, 100]], dtype="c16")
        x = x if dtype[0] in "fcb" and dtype != "bool" else abs(x)
        assert get(f"layer.{name}").tolist() == x.astype(dtype).tolist(), name
    assert get("strided").tolist() == [[0, 3], [1, -4], [2, 100]]
    assert get("empty").shape == (0, 3) and get("scalar").shape == () and get("ünï").tolist() == [1]
kinds = {"bool": "bool", "f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16"}
kinds |= {f"{k}{8 * n}": f"{k}{n}" for k in "ui" for n in (1, 2, 4, 8)}
for name in ["stored.npz", "deflated.npz"]:
    with np.load(folder / name) as file:
        check(lambda name: file[name], kinds)
        assert file.zip.testzip() is None
model = torch.load(folder / "model.pt", weights_only=True)
assert model["layer.bf16"].dtype == torch.bfloat16 and model["layer.bf16"].tolist() == model["layer.f32"].tolist()
check(lambda name: model[name].numpy(), kinds)
try:
    from safetensors.torch import load_file
    index = json.loads((folder / "model/model.safetensors.index.json").read_text())
    for name, file in index["weight_map"].items():
        x = load_file(folder / "model" / file)[name]
        assert torch.equal(x, model[name]), name
except ImportError:
    print("safetensors is not installed")
print("all read")
"#;
    let output = std::process::Command::new(python).arg("-c").arg(program).arg(&folder.0).output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("all read"), "{told}");
    Ok(())
}

#[test]
fn arrays_that_are_no_tensors_are_refused() {
    for (name, part) in [
        ("records.npy", "structured arrays"),
        ("text.npy", "arrays of text are not supported, got dtype <U2"),
        ("objects.npy", "Python objects are not supported"),
    ] {
        let refused = message(npy::load(fixture(name)));
        assert!(refused.starts_with("npy::load: ") && refused.contains(name) && refused.contains(part), "{refused}");
    }
}

#[test]
fn state_dicts_of_pytorch_are_read() -> Outcome {
    for name in ["model.pt", "protocol5.pt"] {
        assert_as_expected(&pytorch::load(fixture(name))?, &expected("model.pt")?)?;
    }
    for name in ["tensor.pt", "training.pt", "big_endian.pt"] {
        assert_as_expected(&pytorch::load(fixture(name))?, &expected(name)?)?;
    }
    // Tensors that share a storage in the file can be changed independently.
    let mut dict = pytorch::load(fixture("model.pt"))?;
    for name in ["model.whole", "model.part", "model.transposed"] {
        dict.get_mut(name).ok_or(name)?.fill_(7.0)?;
    }
    assert_eq!(dict.get("model.tied").ok_or("tied")?.index(s![0, 0, ..2])?.to_vec::<f32>()?, [0.0, 1.0]);
    let state = pytorch::load_state(fixture("model.pt"), LoadOptions::new())?;
    assert_eq!((state.u64("epoch")?, state.f64("lr")?, state.text("name")?.as_str()), (3, 0.1, "ünï"));
    assert_eq!((state.i64("negative")?, state.u64("large")?), (-5, 1 << 40));
    assert_eq!(state.get("size"), Some(&vec![2, 3, 4].into()));
    let list = Value::List(vec![1.into(), Value::List(vec![2.into(), Value::Null]), true.into()]);
    assert_eq!(state.get("list"), Some(&list));
    assert_eq!(state.get("losses"), Some(&Value::List(vec![Value::Null, 0.25.into()])));
    assert_eq!(state.text("dtype")?, "f16");
    let training = pytorch::load_state(fixture("training.pt"), LoadOptions::new())?;
    let groups = training.get("optimizer").and_then(|optimizer| optimizer.get("param_groups")?.as_list());
    let rate = groups.and_then(|groups| groups[0].get("lr")?.as_f64());
    assert_eq!(rate, Some(0.01));
    Ok(())
}

#[test]
fn what_a_pickle_would_run_is_refused_by_its_name() {
    for (name, part) in [
        ("stranger.pt", "__builtin__.print is not supported: only tensors"),
        ("whole_model.pt", "torch.nn.modules.linear.Linear is not supported"),
        ("old.pt", "PyTorch before 1.6"),
        ("conjugate.pt", "marked conj or neg"),
        ("arrays.npz", "no data.pkl"),
        ("row_major.npy", "not a zip archive"),
    ] {
        let refused = message(pytorch::load(fixture(name)));
        assert!(refused.starts_with("pytorch::load: ") && refused.contains(name), "{refused}");
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn quantised_tensors_are_those_of_the_gguf_package() -> Outcome {
    let folder = Folder::new("gguf")?;
    let expected = npz::load(fixture("quantized.npz"))?;
    let mut second = fs::read(fixture("quantized.gguf"))?;
    second[4..8].copy_from_slice(&2_u32.to_le_bytes());
    fs::write(folder.file("version2.gguf"), second)?;
    for path in [fixture("quantized.gguf"), folder.file("version2.gguf")] {
        let file = gguf::open(path)?;
        assert_eq!(file.names().count(), expected.len());
        for (name, wanted) in expected.iter() {
            let x = file.tensor(name)?;
            assert_eq!(x.shape(), wanted.shape(), "{name}");
            assert_eq!(file.shape(name), Some(wanted.shape()), "{name}");
            assert_eq!(numbers(&x)?, numbers(wanted)?, "{name}");
        }
        assert_eq!((file.form("Q4_K"), file.form("f2")), (Some("Q4_K"), Some("F16")));
        assert_eq!(file.tensor("BF16")?.dtype(), DType::BF16);
        let metadata = file.metadata();
        assert_eq!(metadata.get("general.architecture").and_then(Value::as_str), Some("llama"));
        assert_eq!(metadata.get("llama.context_length").and_then(Value::as_u64), Some(2048));
        assert_eq!(metadata.get("llama.rope.freq_base").and_then(Value::as_f64), Some(10000.0));
        assert_eq!(metadata.get("yes").and_then(Value::as_bool), Some(true));
        assert_eq!(metadata.get("negative").and_then(Value::as_i64), Some(-(1 << 40)));
        assert_eq!(metadata.get("large").and_then(Value::as_u64), Some(u64::MAX));
        assert_eq!(metadata.get("tokens"), Some(&vec!["<s>", "ünï", ""].into()));
        assert_eq!(metadata.get("scores"), Some(&vec![0.5, -1.0].into()));
    }
    let halves = LoadOptions::new().dtype(DType::F16).names(["Q8_0", "i4"]).rename(str::to_lowercase);
    let dict = gguf::load_with(fixture("quantized.gguf"), halves)?;
    let found: Vec<(&str, DType)> = dict.iter().map(|(name, x)| (name, x.dtype())).collect();
    assert_eq!(found, [("q8_0", DType::F16), ("i4", DType::I32)]);
    let refused = message(gguf::load(fixture("model.pt")));
    assert!(refused.starts_with("gguf::load: ") && refused.contains("not a GGUF file"), "{refused}");
    Ok(())
}

#[test]
fn a_model_in_shards_is_one_model() -> Outcome {
    let folder = Folder::new("shards")?;
    let dict = everything(&[DType::C128])?;
    let sorted = |dict: &StateDict| {
        let mut entries: Vec<(String, Tensor)> = dict.clone().into_iter().collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        StateDict::from_iter(entries)
    };
    let files = || -> std::io::Result<Vec<String>> {
        let mut names: Vec<String> =
            fs::read_dir(&folder.0)?.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    };
    fs::write(folder.file("config.json"), "{}")?;
    for most in [40, 100, usize::MAX, 100] {
        safetensors::save_sharded(&folder.0, &dict, most)?;
        let names = files()?;
        if most == usize::MAX {
            assert_eq!(names, ["config.json", "model.safetensors"]);
        } else {
            assert_eq!(names.last().map(String::as_str), Some("model.safetensors.index.json"), "{names:?}");
            assert!(!names.contains(&"model.safetensors".to_string()), "{names:?}");
            assert_same(&sorted(&safetensors::load(folder.file("model.safetensors.index.json"))?), &sorted(&dict))?;
            for name in names.iter().filter(|name| name.starts_with("model-")) {
                let bytes: usize =
                    safetensors::load(folder.file(name))?.iter().map(|(_, x)| x.numel() * x.dtype().size()).sum();
                assert!(bytes <= most.max(48), "{name} has {bytes}");
            }
        }
        assert_same(&sorted(&safetensors::load(&folder.0)?), &sorted(&dict))?;
        // SAFETY: nobody changes the files while they are mapped.
        #[allow(unsafe_code)]
        let mapped = unsafe { safetensors::load_mmap(&folder.0)? };
        assert_same(&sorted(&mapped), &sorted(&dict))?;
    }
    assert!(message(safetensors::save_sharded(&folder.0, &dict, 0)).contains("max_shard_bytes must be positive"));
    // Only the requested tensors are read, under other names and in another dtype.
    let file = safetensors::open(&folder.0)?;
    assert_eq!(file.metadata().get("format").map(String::as_str), Some("pt"));
    assert_eq!((file.shape("strided"), file.dtype("layer.bf16")), (Some(&[3, 2][..]), Some(DType::BF16)));
    assert!(file.tensor("strided")?.equal(dict.get("strided").ok_or("strided")?)?);
    assert!(message(file.tensor("absent")).contains("no tensor named absent"));
    let options = LoadOptions::new()
        .dtype(DType::F32)
        .only(|name| name.starts_with("layer."))
        .rename(|name| name.replace("layer.", ""));
    // SAFETY: as above.
    #[allow(unsafe_code)]
    let mapped = unsafe { safetensors::load_mmap_with(&folder.0, &options)? };
    for loaded in [file.load(&options)?, mapped] {
        assert_eq!(loaded.len(), 14);
        for (name, x) in loaded.iter() {
            let own = dict.get(&format!("layer.{name}")).ok_or(name)?;
            assert_eq!(x.dtype(), if own.dtype().is_float() { DType::F32 } else { own.dtype() }, "{name}");
            assert_eq!(numbers(x)?, numbers(own)?, "{name}");
        }
    }
    let refused = message(safetensors::load_with(&folder.0, LoadOptions::new().names(["scalar", "b", "a"])));
    assert_eq!(refused, "safetensors::load_with: names not found in the file: a, b");
    let refused = message(safetensors::load_with(&folder.0, LoadOptions::new().rename(|_| "x".to_string())));
    assert!(refused.contains("would both become x"), "{refused}");
    let refused = message(safetensors::load_with(&folder.0, DType::I64));
    assert!(refused.contains("got i64"), "{refused}");
    Ok(())
}

#[test]
fn an_index_that_does_not_fit_its_files_is_refused() -> Outcome {
    let folder = Folder::new("index")?;
    let one = StateDict::from_iter([("a", Tensor::zeros([2])?)]);
    safetensors::save(folder.file("one.safetensors"), &one)?;
    safetensors::save(folder.file("two.safetensors"), &one)?;
    let index = folder.file("model.safetensors.index.json");
    for (map, part) in [
        (r#"{"b": "one.safetensors"}"#, "b: tensor is not in one.safetensors"),
        (r#"{"a": "one.safetensors", "b": "two.safetensors"}"#, "tensor is also in"),
        (r#"{"a": "../one.safetensors"}"#, "files must be in the folder of the index, got ../one.safetensors"),
        (r#"{"a": "/etc/passwd"}"#, "files must be in the folder of the index, got /etc/passwd"),
        (r#"{"a": "three.safetensors"}"#, "three.safetensors"),
        (r#"{"a": 3}"#, "a: name of the file must be text"),
        (r#"[1]"#, "it has no weight_map"),
    ] {
        fs::write(&index, format!(r#"{{"metadata": {{}}, "weight_map": {map}}}"#))?;
        for refused in [message(safetensors::load(&index)), message(safetensors::load(&folder.0))] {
            assert!(refused.starts_with("safetensors::load: ") && refused.contains(part), "{refused}");
        }
    }
    fs::remove_file(&index)?;
    assert!(message(safetensors::load(&folder.0)).contains("neither model.safetensors nor"));
    Ok(())
}
