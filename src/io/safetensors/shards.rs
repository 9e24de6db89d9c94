//! Sharded models, as Hugging Face's programs write and read them.
#![forbid(unsafe_code)]

use super::header::failed;
use super::reader::{INDEX, WHOLE};
use super::write;
use crate::error::{bail, named};
use crate::io::StateDict;
use crate::io::replace::replace;
use crate::json::object;
use crate::order::map_of;
use crate::{Result, Tensor};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

const OP: &str = "safetensors::save_sharded";

/// Saves tensors into a folder, in shards with at most `max_shard_bytes` of tensors: `model.safetensors` if one is enough,
/// else `model-00001-of-00003.safetensors` and so on with the index `model.safetensors.index.json`. A larger tensor gets a
/// separate file. Files of an earlier model in the folder that the new one does not have are removed.
///
/// Each file is replaced atomically, but not all together: if the process is killed while it replaces a model with the same
/// number of files, the folder has parts of both. Save to a new folder where that matters.
///
/// ```
/// use cotangent::{Tensor, io::{StateDict, safetensors}};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-sharded-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let dict = StateDict::from_iter([("a", Tensor::zeros([100])?), ("b", Tensor::ones([100])?)]);
/// safetensors::save_sharded(&folder, &dict, 500)?;
/// assert!(folder.join("model-00002-of-00002.safetensors").exists());
/// assert_eq!(safetensors::load(&folder)?.len(), 2);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If `max_shard_bytes` is 0, or a file cannot be written.
#[doc(alias = "save_pretrained")]
#[track_caller]
pub fn save_sharded(folder: impl AsRef<Path>, dict: &StateDict, max_shard_bytes: usize) -> Result<()> {
    named(OP, write_shards(folder.as_ref(), dict, max_shard_bytes))
}

fn write_shards(folder: &Path, dict: &StateDict, most: usize) -> Result<()> {
    if most == 0 {
        bail!(Value, OP, "max_shard_bytes must be positive, got 0");
    }
    let bytes_of = |tensor: &Tensor| tensor.numel() * tensor.dtype().size();
    let (mut shards, mut taken) = (vec![StateDict::new()], 0);
    for (name, tensor) in dict.iter() {
        let full = taken + bytes_of(tensor) > most;
        match shards.last_mut() {
            Some(last) if !full || last.is_empty() => drop(last.insert(name, tensor.clone())),
            _ => {
                taken = 0;
                shards.push(StateDict::from_iter([(name, tensor.clone())]));
            }
        }
        taken += bytes_of(tensor);
    }
    fs::create_dir_all(folder).map_err(|source| failed(OP, folder, source))?;
    // Python's loaders check this entry.
    let metadata = map_of([("format".to_string(), "pt".to_string())]);
    if let [whole] = &shards[..] {
        write(&folder.join(WHOLE), whole, &metadata)?;
        return remove_others(folder, &[WHOLE.to_string()]);
    }
    let mut files: Vec<String> = Vec::new();
    let mut weight_map: BTreeMap<&str, String> = BTreeMap::new();
    for (at, shard) in shards.iter().enumerate() {
        let file = format!("model-{:05}-of-{:05}.safetensors", at + 1, shards.len());
        write(&folder.join(&file), shard, &metadata)?;
        weight_map.extend(shard.names().map(|name| (name, file.clone())));
        files.push(file);
    }
    let total: usize = dict.iter().map(|(_, tensor)| bytes_of(tensor)).sum();
    let index = object! {"metadata": object! {"total_size": total}, "weight_map": weight_map};
    let path = folder.join(INDEX);
    replace(&path, |file| file.write_all(format!("{index:#}\n").as_bytes()))
        .map_err(|source| failed(OP, &path, source))?;
    files.push(INDEX.to_string());
    remove_others(folder, &files)
}

/// Removes the files of another model, which loaders would take as part of this one.
fn remove_others(folder: &Path, own: &[String]) -> Result<()> {
    let io = |source| failed(OP, folder, source);
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let Some(name) = name.to_str() else { continue };
        let of_a_model = name == WHOLE || name == INDEX || is_shard(name);
        if of_a_model && !own.iter().any(|own| own == name) {
            let path = folder.join(name);
            fs::remove_file(&path).map_err(|source| failed(OP, &path, source))?;
        }
    }
    Ok(())
}

fn is_shard(name: &str) -> bool {
    let numbers = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    numbers.and_then(|numbers| numbers.split_once("-of-")).is_some_and(|(at, of)| {
        [at, of].iter().all(|number| number.len() == 5 && number.bytes().all(|digit| digit.is_ascii_digit()))
    })
}
