//! The layers of ARCHITECTURE.md, against the imports of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// What the page says.
struct Page {
    /// The name of each layer and its files and folders, in the page's order.
    layers: Vec<(String, Vec<String>)>,
    /// Imports of a lower layer from a higher one that it allows.
    arrows: BTreeSet<(String, String)>,
    /// Files outside of the backend that may name a device's modules.
    device_files: BTreeSet<String>,
}

/// The words between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

impl Page {
    fn read() -> Result<Page, Box<dyn std::error::Error>> {
        let text = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
        let section = text.split("## Layers").nth(1).and_then(|rest| rest.split("\n## ").next()).ok_or("no layers")?;
        let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
        let cells = |row: &str| row.split('|').skip(1).map(|cell| cell.trim().to_string()).collect::<Vec<_>>();
        let layers = rows.map(cells).map(|row| (row[0].clone(), quoted(&row[1]))).collect();
        let mut arrows = BTreeSet::new();
        for line in section.lines().filter(|line| line.contains('→')) {
            let names = quoted(line);
            // The arrows of a line are pairs of neighbouring names with an arrow between them.
            for pair in names.windows(2) {
                if line.contains(&format!("`{}` → `{}`", pair[0], pair[1])) {
                    arrows.insert((pair[0].clone(), pair[1].clone()));
                }
            }
        }
        let files = section.split("Only these files outside").nth(1).and_then(|rest| rest.split("\n\n").next());
        let device_files = quoted(files.ok_or("no list of files")?).into_iter().filter(|name| name.ends_with(".rs"));
        Ok(Page { layers, arrows, device_files: device_files.collect() })
    }

    /// The place of the layer that a file of `src/` belongs to.
    fn layer_of(&self, file: &str) -> Option<usize> {
        let holds = |part: &String| if part.ends_with('/') { file.starts_with(part.as_str()) } else { file == part };
        self.layers.iter().position(|(_, parts)| parts.iter().any(holds))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The code of a file, without comments and unit tests.
fn code_of(text: &str) -> String {
    let end = ["#[cotangent_macros::unit_tests]", "#[cfg(test)]"].iter().filter_map(|mark| text.find(mark)).min();
    let lines = text[..end.unwrap_or(text.len())].lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The first name of every path after `crate::`; of `crate::{a, b::c}` those of all its parts.
fn crate_names(code: &str) -> BTreeSet<String> {
    fn word(text: &str) -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    }
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(word(rest));
            continue;
        };
        let mut depth = 0;
        names.insert(word(group));
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => drop(names.insert(word(&group[at + 1..]))),
                _ => {}
            }
        }
    }
    // After a last comma, or of a macro's `$crate::$name`.
    names.remove("");
    names
}

/// The file or folder of `src/` that each name of the crate's root is defined in.
fn root_names() -> Result<BTreeMap<String, String>, Box<dyn std::error::Error>> {
    let text = fs::read_to_string(root().join("src/lib.rs"))?;
    let mut names = BTreeMap::new();
    for line in code_of(&text).replace("\n    ", " ").lines() {
        let Some(rest) = line.strip_prefix("pub use ").filter(|rest| !rest.starts_with("cotangent_macros")) else {
            continue;
        };
        let (module, rest) = rest.split_once("::").ok_or("no module")?;
        let all = rest.trim_end_matches(';').trim_matches(['{', '}']);
        for name in all.split(',') {
            let name = name.rsplit("::").next().unwrap_or(name).trim();
            // A function may have the name of the module that it is in.
            names.entry(name.to_string()).or_insert_with(|| module.to_string());
        }
    }
    Ok(names)
}

#[test]
fn no_file_imports_a_layer_above_its_own() -> Outcome {
    let page = Page::read()?;
    assert!(
        page.layers.len() > 8 && page.arrows.len() > 2 && page.device_files.len() > 4,
        "the page was not understood"
    );
    let names = root_names()?;
    let src = root().join("src");
    let mut files = Vec::new();
    sources(&src, &mut files)?;
    assert!(files.len() > 300);
    let (mut wrong, mut used, mut on_devices) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for path in files {
        let file = path.strip_prefix(&src)?.to_string_lossy().replace('\\', "/");
        // These name everything. Tests of a kernel may use tensors.
        let is_test = file.ends_with("tests.rs") || file.contains("/tests/");
        if ["lib.rs", "prelude.rs", "unit_tests.rs"].contains(&file.as_str()) || is_test {
            continue;
        }
        let Some(own) = page.layer_of(&file) else {
            wrong.push(format!("{file} is in no layer of the page"));
            continue;
        };
        let code = code_of(&fs::read_to_string(&path)?);
        for first in crate_names(&code) {
            let module = names.get(&first).unwrap_or(&first);
            let found =
                [format!("{module}/"), format!("{module}.rs")].into_iter().find_map(|part| page.layer_of(&part));
            let Some(layer) = found else {
                // Macros of the crate's root have no folder.
                if !["s", "tensor"].contains(&first.as_str()) {
                    wrong.push(format!("{file}: crate::{first} is in no layer of the page"));
                }
                continue;
            };
            if layer > own {
                let arrow = (page.layers[own].0.clone(), page.layers[layer].0.clone());
                if page.arrows.contains(&arrow) {
                    used.insert(arrow);
                } else {
                    wrong.push(format!("{file} ({}) imports crate::{first} ({})", arrow.0, arrow.1));
                }
            }
        }
        let names_a_device = ["backend::cpu", "backend::cuda"].iter().any(|module| code.contains(module));
        if names_a_device && !file.starts_with("backend/") {
            if !page.device_files.contains(&file) {
                wrong.push(format!("{file} names a device's modules"));
            }
            on_devices.insert(file.clone());
        }
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md does not allow:\n{}", wrong.join("\n"));
    assert_eq!(used, page.arrows, "the page allows arrows that no file needs");
    assert_eq!(on_devices, page.device_files, "the page names files that need no module of a device");
    Ok(())
}
