//! The samples per second of a loader with two workers, a line of JSON for each workload.
//!
//! `cargo bench --features image --bench data -- FOLDER`. It first creates its files in the folder, in the format of
//! MNIST and as a thousand JPEGs. `compare.py` in this folder runs PyTorch's loader on the same files.

use cotangent::data::transforms::{Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor, Transform};
use cotangent::data::{DataLoader, DataLoaderOptions, Dataset, Image, ImageFolder, Mnist, Part};
use cotangent::{Generator, Result, Tensor};
use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageEncoder};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const WORKERS: usize = 2;
const JPEGS: usize = 1000;
const DIGITS: usize = 60_000;
/// Each workload runs at least this long, and at least twice.
const TIME: Duration = Duration::from_secs(3);

const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const STD: [f64; 3] = [0.229, 0.224, 0.225];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|word| word != "--bench");
    let folder = args.next().unwrap_or_else(|| "target/data-bench".to_string());
    let folder = Path::new(&folder);
    let wanted: Vec<String> = args.collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    make_digits(&folder.join("mnist"))?;
    make_jpegs(&folder.join("jpegs_224"), 224, 224)?;
    make_jpegs(&folder.join("jpegs_large"), 400, 300)?;
    if wants("files") {
        return Ok(());
    }

    let options = || DataLoaderOptions::new().batch_size(64).shuffle(true).seed(1).num_workers(WORKERS);
    let digits = Mnist::load(folder.join("mnist"), Part::Train)?;
    if wants("mnist_tensors") {
        let images = digits.images.to_dtype(cotangent::DType::F32)?.div(255)?;
        images.compute()?;
        run("mnist_tensors", &DataLoader::new_with((images, digits.labels.clone()), options())?)?;
    }
    if wants("mnist_items") {
        let normalize = Normalize::new([0.1307], [0.3081])?;
        let dataset = digits.map(move |(image, label)| Ok((normalize.apply(image)?, label)));
        run("mnist_items", &DataLoader::new_with(dataset, options())?)?;
    }
    if wants("jpegs_224") {
        let dataset = ImageFolder::open(folder.join("jpegs_224"))?.transform((ToTensor, Normalize::new(MEAN, STD)?));
        run("jpegs_224", &DataLoader::new_with(dataset, options())?)?;
    }
    if wants("jpegs_augmented") {
        let augment =
            (RandomResizedCrop::new(224)?, RandomHorizontalFlip::new(0.5)?, ToTensor, Normalize::new(MEAN, STD)?);
        let dataset = ImageFolder::open(folder.join("jpegs_large"))?.transform(augment);
        run("jpegs_augmented", &DataLoader::new_with(dataset, options())?)?;
    }
    if wants("parts") {
        parts(folder)?;
    }
    Ok(())
}

/// Times whole epochs, after one epoch as warm-up.
fn run(name: &str, loader: &DataLoader<(Tensor, Tensor)>) -> Result<()> {
    let epoch = || -> Result<usize> {
        let mut samples = 0;
        for batch in loader {
            samples += batch?.1.numel();
        }
        Ok(samples)
    };
    epoch()?;
    let (start, mut samples, mut epochs) = (Instant::now(), 0, 0);
    while epochs < 2 || start.elapsed() < TIME {
        samples += epoch()?;
        epochs += 1;
    }
    let rate = samples as f64 / start.elapsed().as_secs_f64();
    println!(r#"{{"peer": "cotangent", "workload": "{name}", "samples_per_s": {rate:.1}, "epochs": {epochs}}}"#);
    Ok(())
}

/// Prints the time of each step of augmenting an image, on one thread.
fn parts(folder: &Path) -> Result<(), Box<dyn Error>> {
    let folder = ImageFolder::open(folder.join("jpegs_large"))?;
    let (crop, normalize) = (RandomResizedCrop::new(224)?, Normalize::new(MEAN, STD)?);
    let mut times = [0.0; 5];
    let mut timed = |at: usize, start: Instant| times[at] += start.elapsed().as_secs_f64();
    for (path, _) in &folder.paths()[..200] {
        let start = Instant::now();
        let bytes = std::fs::read(path)?;
        timed(0, start);
        let start = Instant::now();
        let image = Image::decode(&bytes)?;
        timed(1, start);
        let start = Instant::now();
        let image = crop.apply(image)?;
        timed(2, start);
        let start = Instant::now();
        let x = image.to_tensor()?;
        timed(3, start);
        let start = Instant::now();
        normalize.apply(x)?.compute()?;
        timed(4, start);
    }
    for (name, time) in ["read", "decode", "crop and resize", "to tensor", "normalize"].iter().zip(times) {
        println!("{name}: {:.3} ms", time / 200.0 * 1e3);
    }
    Ok(())
}

/// Writes noise in the format of MNIST, with a tenth of the pixels nonzero.
fn make_digits(folder: &Path) -> Result<(), Box<dyn Error>> {
    if folder.join("t10k-labels-idx1-ubyte").exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    for (prefix, count) in [("train", DIGITS), ("t10k", 100)] {
        let size = |n: usize| (n as u32).to_be_bytes();
        let noise = Generator::seed(1).randint(0, 2560, [count * 784])?.to_vec::<i64>()?;
        let pixels = noise.into_iter().map(|x| if x < 256 { x as u8 } else { 0 });
        let images = [vec![0, 0, 8, 3], [size(count), size(28), size(28)].concat(), pixels.collect()].concat();
        std::fs::write(folder.join(format!("{prefix}-images-idx3-ubyte")), images)?;
        let labels = (0..count).map(|at| (at % 10) as u8);
        let labels = [vec![0, 0, 8, 1], size(count).to_vec(), labels.collect()].concat();
        std::fs::write(folder.join(format!("{prefix}-labels-idx1-ubyte")), labels)?;
    }
    Ok(())
}

/// Writes JPEGs of colored waves with noise, about as large as photographs compress.
fn make_jpegs(folder: &Path, width: usize, height: usize) -> Result<(), Box<dyn Error>> {
    if folder.join("done").exists() {
        return Ok(());
    }
    let mut generator = Generator::seed(2);
    for number in 0..JPEGS {
        let class = folder.join(format!("class{}", number % 10));
        std::fs::create_dir_all(&class)?;
        let waves = generator.rand([24])?.to_vec::<f32>()?;
        let noise = generator.randn([height * width])?.to_vec::<f32>()?;
        let mut pixels = Vec::with_capacity(height * width * 3);
        for (at, noise) in noise.into_iter().enumerate() {
            let (x, y) = ((at % width) as f32, (at / width) as f32);
            for channel in 0..3 {
                let wave = |k: usize| {
                    let [fx, fy, phase, size] = [0, 1, 2, 3].map(|part| waves[(8 * channel + 4 * k + part) % 24]);
                    (0.2 * fx * x + 0.2 * fy * y + 6.3 * phase).sin() * (20.0 + 50.0 * size)
                };
                pixels.push((128.0 + wave(0) + wave(1) + 8.0 * noise).clamp(0.0, 255.0) as u8);
            }
        }
        let mut bytes = Vec::new();
        let encoder = JpegEncoder::new_with_quality(&mut bytes, 85);
        encoder.write_image(&pixels, width as u32, height as u32, ExtendedColorType::Rgb8)?;
        std::fs::write(class.join(format!("{number}.jpg")), bytes)?;
    }
    std::fs::write(folder.join("done"), "")?;
    Ok(())
}
