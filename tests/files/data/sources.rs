//! Files and texts.

use super::{assert_fails_with, items};
use cotangent::data::{
    Csv, CsvOptions, DataLoader, DataLoaderOptions, Dataset, IterableDataset, Jsonl, Mnist, Part, Vocabulary, Windows,
    idx,
};
use cotangent::{DType, Device, Result, Tensor, memory};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A folder that is removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("cotangent-data-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Folder(path)
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&self.0)).unwrap_or_else(|e| panic!("{e}"));
        std::fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.unwrap_or_else(|e| panic!("{e}"))
}

fn header(kind: u8, shape: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    shape.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes
}

#[test]
fn idx_files_of_all_dtypes() -> Result<()> {
    let folder = Folder::new("idx");
    let save = |name: &str, kind, elements: &[u8]| folder.file(name, [header(kind, &[2]), elements.to_vec()].concat());
    for (kind, elements, dtype, expected) in [
        (0x08, vec![1, 255], DType::U8, [1.0, 255.0]),
        (0x09, vec![1, 255], DType::I8, [1.0, -1.0]),
        (0x0B, vec![1, 0, 255, 255], DType::I16, [256.0, -1.0]),
        (0x0C, vec![0, 0, 1, 0, 255, 255, 255, 255], DType::I32, [256.0, -1.0]),
        (0x0D, [1.5_f32.to_be_bytes(), (-2.0_f32).to_be_bytes()].concat(), DType::F32, [1.5, -2.0]),
        (0x0E, [1.5_f64.to_be_bytes(), (-2.0_f64).to_be_bytes()].concat(), DType::F64, [1.5, -2.0]),
    ] {
        let x = idx::load(save("x", kind, &elements))?;
        assert_eq!((x.dtype(), x.to_dtype(DType::F64)?.to_vec::<f64>()?), (dtype, expected.to_vec()));
        let zipped = folder.file("x.gz", zipped(&[header(kind, &[2]), elements].concat()));
        assert!(idx::load(zipped)?.equal(&x)?);
    }
    Ok(())
}

#[test]
fn bad_idx_files_are_refused_without_large_allocations() -> Result<()> {
    let folder = Folder::new("bad-idx");
    let huge = [header(0x0E, &[u32::MAX, u32::MAX]), vec![0; 100]].concat();
    let large = [header(0x08, &[1 << 30]), vec![0; 100]].concat();
    let good = [header(0x08, &[1000]), vec![7; 1000]].concat();
    let cut = zipped(&good);
    let mut corrupt = cut.clone();
    let last = corrupt.len() - 6;
    corrupt[last] ^= 0x55;
    for (name, bytes, parts) in [
        ("empty", vec![], &["unexpected end of file"][..]),
        ("text", b"hello, this is text".to_vec(), &["not an IDX file"]),
        ("dims", vec![0, 0, 8, 200], &["not an IDX file"]),
        ("no dims", vec![0, 0, 8, 0], &["not an IDX file"]),
        ("dtype", header(0x0A, &[1]), &["0x0a"]),
        ("header", vec![0, 0, 8, 3, 0, 0], &["unexpected end of file"]),
        ("overflow", huge.clone(), &["file is too short"]),
        ("overflow.gz", zipped(&huge), &["file is too short"]),
        ("large", large.clone(), &["file is too short"]),
        ("large.gz", zipped(&large), &["file is too short"]),
        ("short.gz", zipped(&[header(0x08, &[5000]), vec![0; 100]].concat()), &["5000", "got 100"]),
        ("more", [good.clone(), vec![0]].concat(), &["got more"]),
        ("more.gz", zipped(&[good.clone(), vec![0]].concat()), &["got more"]),
        ("cut.gz", cut[..cut.len() / 2].to_vec(), &["unexpected end of file"]),
        ("corrupt.gz", corrupt, &["corrupt"]),
    ] {
        let path = folder.file(name, bytes);
        memory::reset_peak(Device::Cpu)?;
        assert_fails_with(idx::load(&path), parts);
        assert_fails_with(idx::load(&path), &["idx::load", name]);
    }
    assert_fails_with(idx::load(folder.path()), &["directory"]);
    Ok(())
}

#[test]
fn mnist_from_files_of_several_names() -> Result<()> {
    let folder = Folder::new("mnist");
    let images = [header(0x08, &[3, 28, 28]), (0..3 * 784).map(|x| (x % 256) as u8).collect()].concat();
    let labels = [header(0x08, &[3]), vec![5, 0, 9]].concat();
    folder.file("train-images-idx3-ubyte.gz", zipped(&images));
    folder.file("train-labels-idx1-ubyte.gz", zipped(&labels));
    folder.file("t10k-images.idx3-ubyte", &images);
    folder.file("t10k-labels.idx1-ubyte", &labels[..]);
    for part in [Part::Train, Part::Test] {
        let mnist = Mnist::load(folder.path(), part)?;
        let (image, label) = mnist.get_item(2)?;
        assert_eq!((image.shape(), label.item::<i64>()?), (&[1, 28, 28][..], 9));
        assert_eq!(image.at(&[0, 0, 1])?.to_f64(), f64::from(33.0_f32 / 255.0));
        let (images, labels) = mnist.get_batch(&[2, 0])?;
        assert_eq!((images.dtype(), labels.to_vec::<i64>()?), (DType::F32, vec![9, 5]));
        assert!(images.select(0, 0)?.equal(&image)?);
    }
    folder.file("t10k-labels.idx1-ubyte", [header(0x08, &[2]), vec![5, 0]].concat());
    assert_fails_with(Mnist::load(folder.path(), Part::Test), &["Mnist::load", "equally many"]);
    assert_fails_with(Mnist::load("/no/such/folder", Part::Train), &["train-images-idx3-ubyte"]);
    Ok(())
}

const IRIS: &str = "length,width,kind,n\n5.1,3.5,setosa,1\n 6.2 ,2.9,virginica,2\n4.9,-3e-1,\"se,tosa\",-3\n";

#[test]
fn csv_columns_have_types() -> Result<()> {
    let table = Csv::parse(IRIS, CsvOptions::new())?;
    assert_eq!((table.len(), table.names()), (3, &["length", "width", "kind", "n"].map(String::from)[..]));
    let x = table.numbers(["width", "length"])?;
    assert_eq!((x.shape(), x.to_vec::<f32>()?), (&[3, 2][..], vec![3.5, 5.1, 2.9, 6.2, -0.3, 4.9]));
    assert_eq!(table.integers("n")?.to_vec::<i64>()?, [1, 2, -3]);
    assert_eq!(table.column::<i8>(3)?, [1, 2, -3]);
    let (kinds, names) = table.categories("kind")?;
    assert_eq!((kinds.to_vec::<i64>()?, names.len(), names[0].as_str()), (vec![1, 2, 0], 3, "se,tosa"));
    let folder = Folder::new("csv");
    let path = folder.file("iris.csv.gz", zipped(IRIS.as_bytes()));
    assert_eq!(Csv::open(&path)?.numbers([0])?.shape(), [3, 1]);
    let missing =
        Csv::parse("a\n1\nNA\n\"\"\n", CsvOptions::new().missing(["NA", ""]))?.numbers(["a"])?.to_vec::<f32>()?;
    assert!(missing[0] == 1.0 && missing[1].is_nan() && missing[2].is_nan());
    let tabs = CsvOptions::new().delimiter(b'\t').header(false).comment(b'#');
    assert_eq!(Csv::parse("# two\n1\t2\n", tabs)?.numbers([1])?.to_vec::<f32>()?, [2.0]);
    let rows = Csv::parse("\u{feff}a\n1\n", CsvOptions::new())?;
    assert_eq!(rows.integers("a")?.to_vec::<i64>()?, [1], "a mark of the byte order is no part of a name");
    Ok(())
}

#[test]
fn csv_errors_have_lines() -> Result<()> {
    let table = Csv::parse(IRIS, CsvOptions::new())?;
    assert_fails_with(table.numbers(["kind"]), &["Csv::numbers", "line 2", "\"kind\"", "\"setosa\""]);
    assert_fails_with(table.integers("length"), &["line 2", "5.1"]);
    assert_fails_with(table.numbers(["depth"]), &["\"depth\"", "\"length\""]);
    assert_fails_with(table.numbers([4]), &["column 4 is out of range for 4"]);
    assert_fails_with(Csv::parse("a,b\n1,2\n\n3\n4,5\n", CsvOptions::new()), &["line 4: expected 2 cells", "got 1"]);
    let text = "# one\r\na,b\r\n\r\n\"1\n\",2\r\n# five\r\nx,3\r\n";
    let table = Csv::parse(text, CsvOptions::new().comment(b'#'))?;
    assert_fails_with(table.numbers(["a"]).and(table.numbers(["a"])), &["line 7", "\"x\""]);
    assert_fails_with(Csv::parse("a,a\n1,2\n", CsvOptions::new())?.numbers(["a"]), &["several columns", "\"a\""]);
    let folder = Folder::new("bad-csv");
    assert_fails_with(Csv::open(folder.file("bytes.csv", b"a,b\n1,\xff\n")), &["Csv::open", "bytes.csv", "line 2"]);
    let cut = zipped(IRIS.repeat(50).as_bytes());
    assert_fails_with(Csv::open(folder.file("cut.csv.gz", &cut[..cut.len() - 20])), &["cut.csv.gz"]);
    assert_fails_with(Csv::open("/no/such.csv"), &["/no/such.csv"]);
    Ok(())
}

#[test]
fn json_by_lines() -> Result<()> {
    let folder = Folder::new("jsonl");
    let text = "{\"x\": 1}\n\n{\"x\": 2}\r\n{\"x\": oops}\n[3]";
    let path = folder.file("values.jsonl", text);
    let values: Jsonl = Jsonl::open(&path)?;
    assert_eq!((values.len(), values.get_item(1)?["x"].as_i64()), (4, Some(2)));
    assert_eq!(values.get_item(3)?[0], 3);
    assert_fails_with(values.get_item(2), &["values.jsonl", "line 4", "expected"]);
    assert_fails_with(values.get_item(4), &["4"]);
    let numbers = values.subset([0, 1])?.map(|value| Ok(value["x"].as_i64().unwrap_or(0)));
    assert_eq!(items(&DataLoader::new(numbers, 2)?)?, [1, 2]);
    let zipped = folder.file("values.jsonl.gz", zipped(text.as_bytes()));
    assert_eq!(Jsonl::<serde_json::Value>::open(&zipped)?.len(), 4);
    let stream = Jsonl::<serde_json::Value>::stream(&zipped);
    let all: Vec<_> = stream.iter()?.collect();
    assert_eq!(all.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true]);
    assert_fails_with(all.into_iter().nth(2).unwrap_or_else(|| unreachable!()), &["line 4"]);
    let deep = folder.file("deep.jsonl", "[".repeat(100_000));
    assert_fails_with(Jsonl::<serde_json::Value>::open(&deep)?.get_item(0), &["recursion"]);
    let typed: Jsonl<Vec<i64>> = Jsonl::open(&path)?;
    assert_eq!(typed.get_item(3)?, [3]);
    assert_fails_with(typed.get_item(0), &["line 1"]);
    Ok(())
}

#[test]
fn windows_cover_a_text() -> Result<()> {
    let text = "to be or not to be";
    let vocabulary = Vocabulary::of(text);
    assert_eq!(vocabulary.characters(), [' ', 'b', 'e', 'n', 'o', 'r', 't']);
    let tokens = vocabulary.encode(text)?;
    for dtype in [DType::I64, DType::U8, DType::U16] {
        let windows = Windows::new(&tokens.to_dtype(dtype)?, 5)?;
        assert_eq!(windows.len(), 3);
        let loader = DataLoader::new_with(windows, DataLoaderOptions::new().batch_size(3))?;
        let Some((x, y)) = loader.iter().next().transpose()? else { unreachable!() };
        assert_eq!((x.dtype(), x.shape(), y.shape()), (DType::I64, &[3, 5][..], &[3, 5][..]));
        assert_eq!(vocabulary.decode(&x.flatten(0, -1)?)?, text[..15]);
        assert_eq!(vocabulary.decode(&y.flatten(0, -1)?)?, text[1..16]);
    }
    assert_eq!(Windows::bytes("abcdef", 5)?.len(), 1);
    assert_eq!(Windows::bytes("abcdef", 2)?.stride(1)?.len(), 4);
    assert_fails_with(Windows::bytes("abcde", 5), &["5 tokens", "got 5"]);
    assert_fails_with(Windows::bytes("abcde", 0), &["got 0"]);
    assert_fails_with(Windows::bytes("abcde", 2)?.stride(0), &["Windows::stride"]);
    assert_fails_with(Windows::new(&Tensor::zeros([9])?, 2), &["f32[9]"]);
    assert_fails_with(vocabulary.decode(&Tensor::arange(5, 9)?), &["7"]);
    Ok(())
}

#[cfg(feature = "tokenizers")]
#[test]
fn tokens_of_a_bpe() -> Result<()> {
    use cotangent::data::Tokenizer;
    let folder = Folder::new("tokenizer");
    let path = folder.file("tokenizer.json", include_str!("../../fixtures/data/tokenizer.json"));
    let tokenizer = Tokenizer::open(&path)?;
    let expected: serde_json::Value =
        serde_json::from_str(include_str!("../../fixtures/data/tokens.json")).unwrap_or_default();
    for case in expected.as_array().into_iter().flatten() {
        let text = case["text"].as_str().unwrap_or_default();
        let ids: Vec<i64> =
            case["ids"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_i64).collect();
        let tokens = tokenizer.encode(text)?;
        assert_eq!((tokens.dtype(), tokens.to_vec::<i64>()?), (DType::I64, ids));
        assert_eq!(tokenizer.decode(&tokens)?, text);
    }
    assert!(expected.as_array().is_some_and(|cases| cases.len() > 2));
    assert_fails_with(tokenizer.decode(&Tensor::full_with([1], 1_i64 << 40, DType::I64)?), &["Tokenizer::decode"]);
    assert_fails_with(Tokenizer::open(folder.file("other.json", "{}")), &["Tokenizer::open", "other.json"]);
    Ok(())
}

/// Small changes of a file: some bytes, a number replaced, a value replaced, a truncation.
#[cfg(feature = "tokenizers")]
fn changed(text: &str, dice: &mut crate::dice::Dice) -> Vec<u8> {
    fn values(value: &mut serde_json::Value) -> Vec<&mut serde_json::Value> {
        let has_parts =
            value.as_array().is_some_and(|all| !all.is_empty()) || value.as_object().is_some_and(|all| !all.is_empty());
        if !has_parts {
            return vec![value];
        }
        match value {
            serde_json::Value::Array(all) => all.iter_mut().flat_map(values).collect(),
            // There are many words and merges, all similar.
            serde_json::Value::Object(all) => all
                .iter_mut()
                .filter(|(key, _)| *key != "vocab" && *key != "merges")
                .flat_map(|(_, x)| values(x))
                .collect(),
            _ => Vec::new(),
        }
    }
    if dice.percent(20) {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(bytes.len());
            bytes[at] = if dice.percent(50) { dice.choose(b"{}[],:\"0-.e") } else { dice.next() as u8 };
        }
        return bytes;
    }
    if dice.percent(15) {
        return text.as_bytes()[..dice.below(text.len())].to_vec();
    }
    let mut whole: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let parts = [
        r#"null"#,
        r#"true"#,
        r#"18446744073709551615"#,
        r#"4294967295"#,
        r#"-1"#,
        r#"0"#,
        r#"1e300"#,
        r#""""#,
        r#""Ġa""#,
        r#"[]"#,
        r#"{}"#,
        r#"{"type":"BPE"}"#,
        r#"{"type":"ByteLevel"}"#,
        r#"{"type":"Sequence","decoders":[]}"#,
        r#"{"type":"Strip","content":"a","start":9,"stop":18446744073709551615}"#,
        r#"{"type":"CTC","pad_token":"","word_delimiter_token":"","cleanup":true}"#,
        r#"{"type":"WordPiece","prefix":"","cleanup":true}"#,
        r#"{"type":"Replace","pattern":{"String":""},"content":"aa"}"#,
        r#"{"type":"Replace","pattern":{"Regex":"("},"content":""}"#,
        r#"{"type":"FixedLength","length":0}"#,
        r#"{"type":"Metaspace","replacement":"ab","prepend_scheme":"always","split":true}"#,
        r#"{"type":"Precompiled","precompiled_charsmap":"/////w=="}"#,
        r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":9}}],"pair":[],"special_tokens":{}}"#,
        r#"{"type":"RobertaProcessing","sep":["",4294967295],"cls":["",0],"trim_offsets":true,"add_prefix_space":true}"#,
        r#"{"strategy":{"Fixed":18446744073709551615},"direction":"Left","pad_to_multiple_of":0,"pad_id":0,"pad_type_id":0,"pad_token":""}"#,
        r#"{"strategy":"BatchLongest","direction":"Left","pad_to_multiple_of":18446744073709551615,"pad_id":0,"pad_type_id":0,"pad_token":""}"#,
        r#"{"direction":"Right","max_length":0,"strategy":"LongestFirst","stride":18446744073709551615}"#,
        r#"{"direction":"Right","max_length":3,"strategy":"OnlySecond","stride":2}"#,
        r#"{"type":"Unigram","unk_id":0,"vocab":[["a",-1e308],["",0.0]],"byte_fallback":true}"#,
        r#"{"type":"WordPiece","unk_token":"","continuing_subword_prefix":"","max_input_chars_per_word":0,"vocab":{"":1}}"#,
        r#"{"type":"WordLevel","vocab":{"a":4294967295},"unk_token":"b"}"#,
    ];
    for _ in 0..1 + dice.below(3) {
        let part = serde_json::from_str(dice.choose(&parts)).unwrap_or_default();
        if dice.percent(60)
            && let Some(all) = whole.as_object_mut()
        {
            let key = dice.choose(&[
                "truncation",
                "padding",
                "normalizer",
                "pre_tokenizer",
                "post_processor",
                "decoder",
                "model",
            ]);
            all.insert(key.to_string(), part);
        } else {
            let mut all = values(&mut whole);
            let at = dice.below(all.len());
            if let Some(value) = all.get_mut(at) {
                **value = part;
            }
        }
    }
    whole.to_string().into_bytes()
}

/// The crate that reads them panics for some files, and for some texts.
#[cfg(feature = "tokenizers")]
#[test]
fn hostile_tokenizers_are_errors() -> Result<()> {
    use cotangent::data::Tokenizer;
    let folder = Folder::new("hostile-tokenizers");
    let whole = include_str!("../../fixtures/data/tokenizer.json");
    let at = whole.find("\"decoder\":").unwrap_or_default() + 20;
    assert_fails_with(Tokenizer::open(folder.file("cut.json", &whole[..at])), &["Tokenizer::open", "cut.json"]);
    let padded = whole.replace(
        "\"padding\":null",
        r#""padding":{"strategy":{"Fixed":1099511627776},"direction":"Left","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":""}"#,
    );
    assert_fails_with(
        Tokenizer::open(folder.file("padded.json", &padded)),
        &["Tokenizer::open", "padded.json", "1099511627776"],
    );
    let (mut opened, mut refused) = (0, 0);
    for round in 0..crate::dice::setting("COTANGENT_FUZZ_ROUNDS", 2000) {
        let mut dice = crate::dice::Dice::new(crate::dice::setting("COTANGENT_FUZZ_SEED", 7), round, 0);
        let path = folder.file("changed.json", "");
        std::fs::write(&path, changed(whole, &mut dice))
            .map_err(|e| cotangent::Error::new(cotangent::ErrorKind::Io, "test", e.to_string()))?;
        let Ok(tokenizer) = Tokenizer::open(&path) else {
            refused += 1;
            continue;
        };
        opened += 1;
        tokenizer.token_id("a");
        for text in ["", "Hello, world! aa", "<|end|> ☃\u{0}  "] {
            // With any result.
            let _ = tokenizer.encode(text);
            let _ = tokenizer.encode_special(text).map(|tokens| tokenizer.decode(&tokens));
        }
        let count = tokenizer.vocab_size().min(300) as i64;
        let _ = tokenizer.decode(&Tensor::arange(0, count)?);
    }
    assert!(opened > 30 && refused > 100, "{opened} opened, {refused} refused");
    Ok(())
}
