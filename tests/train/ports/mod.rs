//! Six PyTorch programs and their ports, line by line: `docs/ports.md` shows them side by side. Here the ports run in a
//! small setting, and the lines of both are counted.

mod dqn;
mod fine_tuning;
mod lstm;
mod mnist_mlp;
mod pinn;
mod vae;

use cotangent::data::digits;
use cotangent::io::pytorch;
use cotangent::models::{ResNet, ResNetConfig};
use cotangent::nn::Module;
use cotangent::{Generator, Tensor, with_generator};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Title, name, and what it shows.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("MNIST with a perceptron", "mnist_mlp", "Data sets and loaders, a module of one's own, the loop, evaluation."),
    ("A forecast with an LSTM", "lstm", "Recurrent layers, indexing, a schedule, clipping."),
    ("A variational autoencoder", "vae", "Random numbers in the model, options of losses, sampling."),
    ("A physics-informed network", "pinn", "Derivatives of derivatives: the heat equation u_t = 0.1 u_xx."),
    ("Deep Q-learning", "dqn", "An environment, a replay buffer, a target network."),
    ("Fine-tuning a ResNet", "fine_tuning", "PyTorch's files, frozen parameters, another head, groups of parameters."),
];

/// How much longer a port may be.
const MOST: f64 = 1.3;

fn source(name: &str, extension: &str) -> std::io::Result<String> {
    let path = format!("{}/train/ports/{name}.{extension}", env!("CARGO_MANIFEST_DIR"));
    // Git may have converted the line endings.
    Ok(fs::read_to_string(path)?.replace("\r\n", "\n"))
}

/// Lines that are neither empty nor comments.
fn code_lines(source: &str, comment: &str) -> usize {
    source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(comment)).count()
}

#[test]
fn ports_are_at_most_a_third_longer() -> Outcome {
    for (_, name, _) in PROGRAMS {
        let (theirs, ours) = (code_lines(&source(name, "py")?, "#"), code_lines(&source(name, "rs")?, "//"));
        let ratio = ours as f64 / theirs as f64;
        assert!(ratio <= MOST, "{name}: {ours} lines for {theirs} of PyTorch's are {ratio:.2} times as many");
    }
    Ok(())
}

/// What `docs/ports.md` should be.
fn document() -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::from(
        "# Six programs of PyTorch's, and the same here\n\n\
         Line by line, with nothing left out. `tests/train/ports/` runs the Rust programs in a small setting and counts the lines of \
         both: each\nport has at most 1.3 times as many. The Python programs run with PyTorch and torchvision as they stand.\n\n\
         | program | lines of Python | lines of Rust | ratio |\n| --- | --- | --- | --- |\n",
    );
    for (title, name, _) in PROGRAMS {
        let (theirs, ours) = (code_lines(&source(name, "py")?, "#"), code_lines(&source(name, "rs")?, "//"));
        let anchor = title.to_lowercase().replace(' ', "-");
        writeln!(text, "| [{title}](#{anchor}) | {theirs} | {ours} | {:.2} |", ours as f64 / theirs as f64)?;
    }
    text.push_str(
        "\nWhat differs in every program: a function that can fail says so with `?`; the model is asked for its loss by `forward`; the\n\
         gradients are the model's, so that `zero_grad` is its method, and the optimiser is handed the model in each step.\n",
    );
    for (title, name, shows) in PROGRAMS {
        let (theirs, ours) = (source(name, "py")?, source(name, "rs")?);
        write!(
            text,
            "\n## {title}\n{shows}\n\n<table>\n<tr><th>PyTorch</th><th>Cotangent</th></tr>\n<tr valign=\"top\"><td>\n\n\
             ```python\n{theirs}```\n\n</td><td>\n\n```rust\n{ours}```\n\n</td></tr>\n</table>\n"
        )?;
    }
    Ok(text)
}

/// With `COTANGENT_WRITE_DOCS` set the document is written instead.
#[test]
fn the_document_has_the_programs_as_they_are() -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ports.md");
    if std::env::var_os("COTANGENT_WRITE_DOCS").is_some() {
        fs::write(&path, document()?)?;
    }
    let written = fs::read_to_string(path)?.replace("\r\n", "\n");
    assert!(
        written == document()?,
        "COTANGENT_WRITE_DOCS=1 cargo test -p cotangent-tests --test train ports regenerates docs/ports.md"
    );
    Ok(())
}

/// A folder that is removed when its guard is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("cotangent-ports-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A separate generator, since other tests draw at the same time.
fn alone<R>(f: impl FnOnce() -> R) -> R {
    with_generator(&mut Generator::seed(0), f)
}

/// Files of MNIST's form in which each digit is a bar at another place.
fn tiny_mnist(folder: &Path) -> std::io::Result<()> {
    for (part, count) in [("train", 512_u32), ("t10k", 100)] {
        let labels: Vec<u8> = (0..count).map(|i| (i * 7 % 10) as u8).collect();
        let size = |number: u32| number.to_be_bytes();
        let mut images = [[0, 0, 8, 3], size(count), size(28), size(28)].concat();
        for (i, label) in labels.iter().enumerate() {
            let pixel =
                |at: usize| if (at % 28) / 2 == usize::from(*label) { 220 } else { (at * 31 + i * 17) as u8 % 60 };
            images.extend((0..784).map(pixel));
        }
        fs::write(folder.join(format!("{part}-images-idx3-ubyte")), images)?;
        fs::write(
            folder.join(format!("{part}-labels-idx1-ubyte")),
            [&[0, 0, 8, 1], &size(count)[..], &labels].concat(),
        )?;
    }
    Ok(())
}

#[test]
fn the_perceptron_learns() -> Outcome {
    let folder = Folder::new("mnist")?;
    tiny_mnist(&folder.0)?;
    let accuracy = alone(|| mnist_mlp::train(&folder.0.to_string_lossy(), 3))?;
    assert!(accuracy > 0.9, "{accuracy}");
    Ok(())
}

#[test]
fn the_lstm_forecasts() -> Outcome {
    let error = alone(|| lstm::train(60))?;
    assert!(error < 0.2, "{error}");
    Ok(())
}

#[test]
fn the_autoencoder_learns_to_draw() -> Outcome {
    let (loss, samples) = alone(|| vae::train(digits()?.images, 4))?;
    // One bit for each of 64 pixels, to begin with.
    assert!(loss < 0.75 * 64.0 * 2_f64.ln(), "{loss}");
    assert_eq!(samples.shape(), [16, 64]);
    Ok(())
}

#[test]
fn the_network_solves_the_heat_equation() -> Outcome {
    let error = alone(|| pinn::train(80))?;
    assert!(error < 0.5, "{error}");
    Ok(())
}

#[test]
fn the_pole_is_balanced_for_a_moment() -> Outcome {
    let length = alone(|| dqn::train(300))?;
    // Always pushed to one side, the pole falls after nine or ten steps.
    assert!(length > 10.0, "{length}");
    Ok(())
}

#[test]
fn the_resnet_is_fine_tuned() -> Outcome {
    let folder = Folder::new("resnet")?;
    let path = folder.0.join("resnet18.pt");
    let model = alone(|| ResNet::new(&ResNetConfig::resnet18()))?;
    let frozen = model.state_dict();
    pytorch::save(&path, &frozen)?;
    // Bright and dark images.
    let labels = Tensor::from_vec((0..8_i64).map(|i| i % 2).collect(), [8])?;
    let images = Generator::seed(1).randn([8, 3, 32, 32])?.add(labels.reshape([8, 1, 1, 1])?.mul(2)?)?;
    let accuracy = alone(|| fine_tuning::train(&path.to_string_lossy(), &images, &labels, 2))?;
    assert!(accuracy >= 0.5, "{accuracy}");
    let tuned = pytorch::load(&path)?;
    let same = |name: &str| Some(frozen.get(name)?.equal(tuned.get(name)?));
    assert!(same("layer3.0.conv1.weight").ok_or("a weight")?? && !same("layer4.0.conv1.weight").ok_or("a weight")??);
    assert_eq!(tuned.get("fc.weight").map(|weight| weight.shape().to_vec()), Some(vec![2, 512]));
    Ok(())
}
