//! Broken and malicious files: an error or a value, never a panic, and no allocation larger than the file justifies.
//!
//! `COTANGENT_FUZZ_SEED` takes other cases, `COTANGENT_FUZZ_FILES` more of them. A failure names both.

use crate::{LARGEST, alone, dice};
use cotangent::io::{Checkpoint, DefaultGenerator, State, StateDict, gguf, npy, npz, pytorch, safetensors};
use cotangent::nn::Linear;
use cotangent::optim::AdamW;
use cotangent::{DType, Device, Result, Tensor, memory};
use dice::{Dice, setting};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// Runs `f`, and returns the largest allocation: of the Rust allocator, and of tensors.
fn watched<R>(f: impl FnOnce() -> R) -> Result<(R, usize)> {
    let before = memory::stats(Device::Cpu)?.current();
    memory::reset_peak(Device::Cpu)?;
    LARGEST.store(0, Relaxed);
    let result = f();
    let tensors = memory::stats(Device::Cpu)?.peak() - before;
    Ok((result, LARGEST.load(Relaxed).max(tensors)))
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Folder> {
        // In a memory file system if there is one: thousands of small files are written.
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let path = place.join(format!("cotangent-fuzz-{name}-{}", std::process::id()));
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

/// Loads a file by its extension.
fn load(path: &Path) -> Result<StateDict> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("npy") => npy::load(path).map(|x| StateDict::from_iter([("x", x)])),
        Some("npz") => npz::load(path),
        Some("pt") => pytorch::load(path),
        Some("gguf") => gguf::load(path),
        Some("ckpt") => Checkpoint::load(path).map(|checkpoint| {
            let parts = checkpoint.names().filter_map(|name| checkpoint.part(name).cloned());
            parts.flat_map(|State { tensors, .. }| tensors).collect()
        }),
        _ => safetensors::load(path),
    }
}

/// Looks at all elements, so that a sanitizer sees what does not belong to them. A file can expand one number to any shape.
fn look(dict: &StateDict) -> Result<()> {
    for (_, x) in dict.iter().filter(|(_, x)| x.numel() < 1 << 20) {
        let x = if x.dtype().is_complex() { x.view_as_real()? } else { x.clone() };
        x.to_dtype(DType::F64)?.sum(..)?.item::<f64>()?;
    }
    Ok(())
}

/// Whole files to begin with.
fn files(folder: &Folder) -> std::result::Result<Vec<(String, Vec<u8>)>, Box<dyn std::error::Error>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut files = Vec::new();
    for name in
        ["io/model.pt", "io/protocol5.pt", "io/big_endian.pt", "io/quantized.gguf", "io/row_major.npy", "python.st"]
    {
        files.push((name.rsplit('/').next().unwrap_or(name).to_string(), fs::read(fixtures.join(name))?));
    }
    let dict = StateDict::from_iter([
        ("a", Tensor::ones([3, 2])?),
        ("b.weight", Tensor::arange(0, 5)?),
        ("c", Tensor::ones_with([2], DType::Bool)?),
    ]);
    npz::save(folder.file("stored.npz"), &dict)?;
    npz::save_compressed(folder.file("deflated.npz"), &dict)?;
    let mut checkpoint = Checkpoint::new();
    checkpoint.add("model", &Linear::new(3, 2)?)?;
    checkpoint.add("optimizer", &AdamW::new(0.1))?;
    checkpoint.add("random", &DefaultGenerator)?;
    checkpoint.set("epoch", 3);
    checkpoint.save(folder.file("run.ckpt"))?;
    for name in ["stored.npz", "deflated.npz", "run.ckpt"] {
        files.push((name.to_string(), fs::read(folder.file(name))?));
    }
    Ok(files)
}

/// A critical size.
fn awkward(dice: &mut Dice, length: usize) -> u64 {
    let near = [0, 1, 1 << 31, 1 << 32, 1 << 40, 1 << 61, 1 << 63, u64::MAX, length as u64];
    dice.choose(&near).wrapping_add(dice.below(5) as u64).wrapping_sub(2)
}

fn mutate(dice: &mut Dice, file: &mut Vec<u8>) {
    let length = file.len();
    let at = dice.below(length);
    let end = at + dice.below((length - at).min(64));
    match dice.below(10) {
        0 => file[at] ^= 1 << dice.below(8),
        1 => file[at] = dice.next() as u8,
        2 => {
            let number = awkward(dice, length).to_le_bytes();
            let width = dice.choose(&[1, 2, 4, 8]).min(length - at);
            file[at..at + width].copy_from_slice(&number[..width]);
        }
        3 => file.truncate(at.max(1)),
        4 => drop(file.drain(at..end)),
        5 => {
            let copy = file[at..end].to_vec();
            let to = dice.below(length);
            file.splice(to..to, copy);
        }
        6 => {
            let number = awkward(dice, length).to_string().into_bytes();
            let digits = (0..length).map(|i| (at + i) % length).find(|i| file[*i].is_ascii_digit());
            if let Some(digit) = digits {
                file.splice(digit..digit + 1, number);
            }
        }
        7 => file.extend((0..dice.below(40)).map(|_| dice.next() as u8).collect::<Vec<_>>()),
        8 => {
            let (a, b) = (dice.below(length), dice.below(length));
            file.swap(a, b);
        }
        _ => {
            let filler = dice.choose(&[0, 0xff, b'(', b']', b'}', b'[']);
            file[at..end].fill(filler);
        }
    }
    if file.is_empty() {
        file.push(0);
    }
}

#[test]
fn broken_files_are_errors_and_take_no_memory() -> Outcome {
    let _alone = alone();
    let folder = Folder::new("mutated")?;
    let (seed, rounds) = (setting("COTANGENT_FUZZ_SEED", 1), setting("COTANGENT_FUZZ_FILES", 10_000));
    let originals = files(&folder)?;
    for (name, bytes) in &originals {
        fs::write(folder.file(name), bytes)?;
        look(&load(&folder.file(name))?)?;
    }
    let (mut loaded, mut greatest) = (0, 0);
    for round in 0..rounds {
        let mut dice = Dice::new(seed, round, 0);
        let (name, original) = &originals[dice.below(originals.len())];
        let mut bytes = original.clone();
        if dice.percent(5) {
            // Only its beginning is left.
            let keep = dice.below(bytes.len().min(64));
            let more = dice.below(300);
            bytes.truncate(keep);
            bytes.extend((0..more + 1).map(|_| dice.next() as u8));
        } else {
            (0..=dice.below(4)).for_each(|_| mutate(&mut dice, &mut bytes));
        }
        let path = folder.file(name);
        fs::write(&path, &bytes)?;
        let told = std::panic::catch_unwind(|| watched(|| load(&path)));
        let Ok(told) = told else { panic!("seed {seed}, round {round}: {name} of {} bytes", bytes.len()) };
        let (result, most) = told?;
        // Unpacked or dequantised it can be larger than the file; readers have buffers of their own.
        assert!(most < (4 << 20) + 64 * bytes.len(), "seed {seed}, round {round}: {name} takes {most} bytes");
        greatest = greatest.max(most);
        if let Ok(dict) = result {
            look(&dict)?;
            loaded += 1;
        }
    }
    println!("{rounds} files, {loaded} of them loaded, at most {greatest} bytes at once");
    // If all failed the same way, nothing would be tested.
    assert!(loaded > rounds / 20 && loaded < rounds - rounds / 20, "{loaded} of {rounds} loaded");
    Ok(())
}

/// A zip archive of stored files, in which sizes may be lies: name, bytes, and what the directory says is their size.
fn archive(entries: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes, claimed) in entries {
        let start = file.len() as u32;
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0];
        common.extend((bytes.len() as u32).to_le_bytes());
        common.extend(claimed.to_le_bytes());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0, 0]);
        file.extend(b"PK\x03\x04");
        file.extend(&common);
        file.extend(name.as_bytes());
        file.extend(*bytes);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(start.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, size) = (file.len() as u32, directory.len() as u32);
    file.extend(directory);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([(entries.len() as u16).to_le_bytes(); 2].concat());
    file.extend(size.to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0, 0]);
    file
}

/// A file of PyTorch with this pickle, and a storage `0` of `storage` bytes.
fn with_pickle(pickle: &[u8], storage: usize) -> Vec<u8> {
    let storage = vec![0; storage];
    archive(&[("a/data.pkl", pickle, pickle.len() as u32), ("a/data/0", &storage, storage.len() as u32)])
}

/// The instructions for a tensor on storage `0`.
fn tensor(offset: u32, sizes: &[u64], strides: &[u64]) -> Vec<u8> {
    let int = |value: u64| [&[0x8a, 9][..], &value.to_le_bytes(), &[0]].concat();
    let tuple = |values: &[u64]| [&b"("[..], &values.iter().flat_map(|v| int(*v)).collect::<Vec<_>>(), b"t"].concat();
    [
        &b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ"[..],
        &int(offset.into()),
        &tuple(sizes),
        &tuple(strides),
        b"\x89ccollections\nOrderedDict\n)RtR",
    ]
    .concat()
}

/// Saves a file, loads it with an eye on memory, and gives the message or what was loaded.
fn told(
    folder: &Folder,
    name: &str,
    bytes: &[u8],
) -> std::result::Result<std::result::Result<StateDict, String>, Box<dyn std::error::Error>> {
    let path = folder.file(name);
    fs::write(&path, bytes)?;
    let (result, most) = watched(|| load(&path))?;
    assert!(most < (4 << 20) + 64 * bytes.len(), "{most} bytes for a file of {}", bytes.len());
    Ok(result.map_err(|error| error.to_string()))
}

#[test]
fn pickles_that_would_grow_are_refused() -> Outcome {
    const HUGE: u64 = i64::MAX as u64;
    let _alone = alone();
    let folder = Folder::new("pickles")?;
    // Every dictionary holds the one before it twice: 2^60 names.
    let mut laughs = b"\x80\x02}q\0".to_vec();
    for level in 0..60_u8 {
        laughs
            .extend([b"}q", &[level + 1][..], b"(X\x01\0\0\0ah", &[level], b"X\x01\0\0\0bh", &[level], b"u"].concat());
    }
    laughs.push(b'.');
    // A name of a megabyte that ten thousand entries have.
    let mut long = [&b"\x80\x02X\0\0\x10\0"[..], &vec![b'x'; 1 << 20], b"q\x000]q\x01"].concat();
    (0..10_000).for_each(|_| long.extend(b"}h\0Nsa"));
    long.push(b'.');
    let deep = [&b"\x80\x02"[..], &vec![b']'; 1_000_000], &vec![b'a'; 999_999], b"."].concat();
    let itself = b"\x80\x02]q\0h\0a.".to_vec();
    let call = b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R.".to_vec();
    let named = |tensor: Vec<u8>| [&b"\x80\x02}X\x01\0\0\0x"[..], &tensor, b"s."].concat();
    let many = vec![b']'; (1 << 21) + 2];
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (laughs, "far more memory"),
        (long, "far more memory"),
        (deep, "64 deep"),
        (itself, "64 deep"),
        (call, "os.system"),
        ([b"\x80\x02", &many[..]].concat(), "fewer than 2097152 objects"),
        (b"\x80\x02\x8a\xff".to_vec(), "255 bytes should follow"),
        ([&b"\x80\x02\x8a\x20"[..], &[1; 32], b"."].concat(), "at most 16 bytes, got 32"),
        (b"\x80\x02X\xff\xff\xff\xffabc.".to_vec(), "4294967295 bytes should follow"),
        (b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.".to_vec(), "bytes should follow"),
        (b"\x80\x02h\x05.".to_vec(), "memo has no entry 5"),
        (b"\x80\x02)R.".to_vec(), "the stack is empty"),
        (b"\x80\x02(0.".to_vec(), "the stack is empty"),
        (b"\x80\x02u.".to_vec(), "a mark is missing"),
        (b"\x80\x02}(K\x01u.".to_vec(), "a key without a value"),
        (b"\x80\x02}}Ns.".to_vec(), "must be text or numbers"),
        (b"\x80\x02I1\n.".to_vec(), "instruction 0x49"),
        (named(tensor(0, &[1 << 40], &[1])), "must fit in a storage of 4 elements"),
        (named(tensor(5, &[1], &[1])), "must fit in a storage of 4 elements"),
        (named(tensor(0, &[u64::MAX], &[1])), "expected a size"),
        (named(tensor(0, &[HUGE, HUGE], &[1, 1])), "9223372036854775807"),
        (named(tensor(0, &[2, 2], &[HUGE, HUGE])), "must fit in a storage of 4 elements"),
        (named(tensor(0, &[2, 2], &[1])), "2 sizes and 1 strides"),
        (named(tensor(0, &[1; 65], &[1; 65])), "at most 64 dimensions, got 65"),
    ];
    for (pickle, part) in cases {
        let refused = told(&folder, "x.pt", &with_pickle(&pickle, 16))?.err().unwrap_or_default();
        assert!(refused.starts_with("pytorch::load: ") && refused.contains(part), "{part} is not in {refused:.300}");
    }
    // A number that is expanded takes no memory; neither do thousands of tensors on the same bytes.
    let expanded = told(&folder, "x.pt", &with_pickle(&named(tensor(0, &[1 << 40], &[0])), 16))?;
    assert_eq!(expanded?.get("x").map(Tensor::numel), Some(1 << 40));
    let mut shared = b"\x80\x02]".to_vec();
    (0..3000).for_each(|_| shared.extend([tensor(0, &[1 << 16], &[1]), b"a".to_vec()].concat()));
    shared.push(b'.');
    assert_eq!(told(&folder, "x.pt", &with_pickle(&shared, 1 << 18))?.map(|dict| dict.len()), Ok(3000));
    Ok(())
}

#[test]
fn archives_that_lie_are_refused() -> Outcome {
    let _alone = alone();
    let folder = Folder::new("archives")?;
    let array = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/io/row_major.npy"))?;
    let size = array.len() as u32;
    let good = archive(&[("x.npy", &array, size)]);
    // The checksum is not right in archives of this test.
    assert!(told(&folder, "x.npz", &good)?.is_err_and(|e| e.contains("expected checksum")));
    let twice = archive(&[("x.npy", &array, size), ("x.npy", &array, size)]);
    let longer = archive(&[("x.npy", &array, size + 1)]);
    let mut deflated = archive(&[("x.npy", &array, 1 << 30)]);
    // Both headers say that it is deflated.
    let central = deflated.windows(4).position(|four| four == b"PK\x01\x02").ok_or("no directory")?;
    deflated[8] = 8;
    deflated[central + 10] = 8;
    let mut overlapping = archive(&[("x.npy", &array, size), ("y.npy", &array, size)]);
    let second = overlapping.windows(4).rposition(|four| four == b"PK\x01\x02").ok_or("no directory")?;
    overlapping[second + 42..second + 46].fill(0);
    let mut encrypted = good.clone();
    encrypted[central + 8] = 1;
    let mut count = good.clone();
    let end = good.len() - 22;
    count[end + 8..end + 12].fill(0xff);
    let mut start = good.clone();
    start[end + 16..end + 20].fill(0xfe);
    for (bytes, part) in [
        (&twice, "archive has x.npy twice"),
        (&longer, "stored entry"),
        (&deflated, "cannot be deflated to"),
        (&overlapping, "entries x.npy and y.npy overlap"),
        (&encrypted, "encrypted"),
        (&count, "65535 entries do not fit"),
        (&start, "does not fit in an archive of"),
        (&good[..good.len() - 30].to_vec(), "not a zip archive"),
    ] {
        let refused = told(&folder, "x.npz", bytes)?.err().unwrap_or_default();
        assert!(refused.starts_with("npz::load: ") && refused.contains(part), "{part} is not in {refused}");
    }
    // A gigabyte of zeros in a megabyte, under the header of an array of six numbers, and of one that should have as many.
    let mut bomb = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    let (mut zeros, total) = (vec![0; 1 << 20], 64_u32);
    zeros[..array.len()].copy_from_slice(&array);
    for _ in 0..total {
        bomb.write_all(&zeros)?;
        zeros.fill(0);
    }
    let packed = bomb.finish()?;
    for claimed in [total << 20, (total << 20) - 1] {
        let mut file = archive(&[("x.npy", &packed, claimed)]);
        let central = file.windows(4).rposition(|four| four == b"PK\x01\x02").ok_or("no directory")?;
        file[8] = 8;
        file[central + 10] = 8;
        let path = folder.file("x.npz");
        fs::write(&path, &file)?;
        let (result, most) = watched(|| npz::load(&path))?;
        let refused = result.map_or_else(|error| error.to_string(), |_| "no error".to_string());
        assert!(refused.contains("expected 24 bytes") || refused.contains("expected 67108863 bytes"), "{refused}");
        assert!(most < 4 << 20, "{most} bytes for a file of {}", file.len());
    }
    Ok(())
}

#[test]
fn arrays_that_lie_are_refused() -> Outcome {
    let _alone = alone();
    let folder = Folder::new("arrays")?;
    let file = |header: &str, bytes: usize| {
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.resize(file.len() + bytes, 2);
        file
    };
    let header = |descr: &str, shape: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    let many = format!("({})", "1, ".repeat(65));
    for (bytes, part) in [
        (b"\x93NUM".to_vec(), "4 bytes are too few"),
        (b"\x93NUMPX\x01\0\0\0".to_vec(), "not a .npy file"),
        (b"\x93NUMPY\x07\0\0\0\0\0".to_vec(), "version 7"),
        (b"\x93NUMPY\x01\0\xff\xff{".to_vec(), "65536 bytes, got 65535"),
        (b"\x93NUMPY\x02\0\xff\xff\xff\xff{".to_vec(), "65536 bytes, got 4294967295"),
        (file(&header("'<f4'", "(1099511627776,)"), 8), "expected 4398046511104 bytes"),
        (file(&header("'<f4'", "(4294967296, 4294967296, 0)"), 0), "more bytes than can be addressed"),
        (file(&header("'<f4'", "(18446744073709551616,)"), 0), "expected a size, got 18446744073709551616"),
        (file(&header("'<f4'", "(-1,)"), 0), "expected a size, got -1"),
        (file(&header("'<f4'", &many), 4), "at most 64 dimensions"),
        (file(&header("'<f4'", "(1"), 4), "expected a size, got }"),
        (file(&header("'<f4'", "(1,)"), 5), "expected 4 bytes"),
        (file(&header("'|b1'", "(1,)"), 1), "a bool must be 0 or 1, got 2"),
        (file(&header("'<V2'", "(1,)"), 2), "NumPy dtype <V2 is not supported"),
        (file(&header("'\x1b[2J'", "(1,)"), 2), "NumPy dtype \\u{1b}[2J"),
        (file(&header("'é'", "(1,)"), 2), "NumPy dtype é"),
        (file("{'descr': '<f4', 'shape': (1,)}", 4), "is missing"),
        (file("{'descr': '<f4', 'shape': (1,), 'fortran_order': Maybe}", 4), "expected True or False"),
        (file("{'descr': '<f4', 'shape': (1,), 'fortran_order': True, 'x': 1}", 4), "unexpected x"),
        (file("{'descr': '<f4', 'shape': (1,), 'fortran_order': True} + 1", 4), "unexpected"),
        (file("{'descr", 4), "a quote is missing"),
    ] {
        let refused = told(&folder, "x.npy", &bytes)?.err().unwrap_or_default();
        assert!(refused.starts_with("npy::load: ") && refused.contains(part), "{part} is not in {refused}");
    }
    Ok(())
}

#[test]
fn gguf_files_that_lie_are_refused() -> Outcome {
    let _alone = alone();
    let folder = Folder::new("gguf")?;
    let start = |tensors: u64, pairs: u64| {
        [b"GGUF".to_vec(), 3_u32.to_le_bytes().to_vec(), tensors.to_le_bytes().to_vec(), pairs.to_le_bytes().to_vec()]
            .concat()
    };
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let pair = |kind: u32, value: &[u8]| [text("key"), kind.to_le_bytes().to_vec(), value.to_vec()].concat();
    let entry = |name: &str, sizes: &[u64], form: u32, offset: u64| {
        let mut entry = text(name);
        entry.extend((sizes.len() as u32).to_le_bytes());
        sizes.iter().for_each(|size| entry.extend(size.to_le_bytes()));
        entry.extend(form.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        entry
    };
    let file = |entries: &[Vec<u8>]| [start(entries.len() as u64, 0), entries.concat(), vec![0; 256]].concat();
    let list = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    let nested: Vec<u8> = (0..100).flat_map(|_| list(9, 1)).collect();
    let aligned = [text("general.alignment"), 4_u32.to_le_bytes().to_vec(), 3_u32.to_le_bytes().to_vec()].concat();
    for (bytes, part) in [
        (b"GGUF\0\0\0\x03".to_vec(), "big-endian"),
        (b"GGUF\x01\0\0\0".to_vec(), "version must be 2 or 3, got 1"),
        (start(u64::MAX, 0), "more bytes, "),
        (start(0, u64::MAX), "more bytes, "),
        ([start(0, 1), u64::MAX.to_le_bytes().to_vec()].concat(), "more bytes, "),
        ([start(0, 1), pair(9, &list(0, u64::MAX))].concat(), "key: list of 18446744073709551615 values"),
        ([start(0, 1), pair(9, &nested)].concat(), "at most 4 deep"),
        ([start(0, 1), pair(13, &[])].concat(), "unknown type of value 13"),
        ([start(0, 1), pair(7, &[2])].concat(), "bool must be 0 or 1, got 2"),
        ([start(0, 2), pair(0, &[2]), pair(0, &[2])].concat(), "metadata has key twice"),
        ([start(0, 1), aligned].concat(), "at most 2^20, got 3"),
        (file(&[entry("x", &[1; 9], 0, 0)]), "x: rank must be at most 8, got 9"),
        (file(&[entry("x", &[u64::MAX, u64::MAX], 0, 0)]), "x: "),
        (file(&[entry("x", &[1 << 40], 0, 0)]), "x: 4398046511104 bytes"),
        (file(&[entry("x", &[1 << 62, 1 << 62, 0], 0, 0)]), "x: "),
        (file(&[entry("x", &[1], 0, u64::MAX - 31)]), "x: 4 bytes"),
        (file(&[entry("x", &[1], 0, 7)]), "x: offset must be a multiple of 32, got 7"),
        (file(&[entry("x", &[33], 2, 0)]), "x: last dimension must be a multiple of 32 for Q4_0, got 33"),
        (file(&[entry("x", &[1], 19, 0)]), "x: ggml type 19"),
        (file(&[entry("x", &[9], 0, 0), entry("y", &[1], 0, 32)]), "bytes of x and y overlap"),
        (file(&[entry("x", &[1], 0, 0), entry("x", &[1], 0, 32)]), "two tensors are named x"),
    ] {
        let refused = told(&folder, "x.gguf", &bytes)?.err().unwrap_or_default();
        assert!(refused.starts_with("gguf::load: ") && refused.contains(part), "{part} is not in {refused}");
    }
    Ok(())
}
