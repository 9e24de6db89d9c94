//! Event files that TensorBoard reads.

use super::Log;
use super::png;
use super::proto::Message;
use crate::autograd::no_grad;
use crate::error::bail;
use crate::{DType, Device, Error, Result, Tensor};
use cotangent_macros::named;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A run for TensorBoard: `tensorboard --logdir runs` shows each folder in `runs` as a run.
///
/// It is a [`Log`]: [`Trainer::log(board)`](crate::train::Trainer::log) writes the loss, the learning rate and the results of the
/// validation into it.
///
/// ```
/// use cotangent::{Tensor, train::TensorBoard};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-tensorboard-{}", std::process::id()));
/// let mut board = TensorBoard::create(folder.join("runs/first"))?;
/// board.scalar("loss", 1, 0.5)?;
/// board.histogram("weights", 1, &Tensor::randn([100])?)?;
/// board.image("example", 1, &Tensor::rand([3, 16, 16])?)?;
/// board.text("notes", 1, "a *first* try")?;
/// # drop(board);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "SummaryWriter")]
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: BufWriter<fs::File>,
    flushed: Instant,
}

/// The longest time until written data is in the file, for live viewing.
const DELAY: Duration = Duration::from_secs(2);
/// Buckets of a histogram, the number that TensorBoard shows.
const BUCKETS: usize = 30;

impl TensorBoard {
    /// Creates an event file in a folder, which is created if missing. Files of earlier runs stay: TensorBoard shows the files
    /// of one folder as one run.
    ///
    /// # Errors
    /// If it cannot be written.
    #[named("TensorBoard::create")]
    pub fn create(folder: impl AsRef<Path>) -> Result<TensorBoard> {
        const OP: &str = "TensorBoard::create";
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let folder = folder.as_ref();
        fs::create_dir_all(folder).map_err(|error| Error::io(OP, folder, error))?;
        // TensorBoard reads the files of a folder in the order of their names, which begin with the time.
        let (seconds, process) = (now() as u64, std::process::id());
        let name =
            format!("events.out.tfevents.{seconds:010}.cotangent.{process}.{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = BufWriter::new(file.map_err(|error| Error::io(OP, &path, error))?);
        let mut board = TensorBoard { path, file, flushed: Instant::now() };
        let version = Message::new().double(1, now()).bytes(3, b"brain.Event:2");
        board.record(OP, &version)?;
        board.flush_as(OP)?;
        Ok(board)
    }

    /// Logs a number, for a curve.
    ///
    /// # Errors
    /// If it cannot be written.
    #[named("TensorBoard::scalar")]
    pub fn scalar(&mut self, name: &str, step: u64, value: f64) -> Result<()> {
        self.summary("TensorBoard::scalar", name, step, |entry| entry.float(2, value as f32))
    }

    /// Logs a histogram of the values of a tensor. Values that are not finite are left out; at least one must be finite.
    ///
    /// # Errors
    /// If there are no finite values, they are complex, or it cannot be written.
    #[named("TensorBoard::histogram")]
    pub fn histogram(&mut self, name: &str, step: u64, values: &Tensor) -> Result<()> {
        const OP: &str = "TensorBoard::histogram";
        if values.dtype().is_complex() {
            bail!(DType, OP, "values must be real, got {}", values.dtype());
        }
        let mut values: Vec<f64> = no_grad(|| values.detach().to_device(Device::Cpu)?.to_dtype(DType::F64)?.to_vec())?;
        let all = values.len();
        values.retain(|value| value.is_finite());
        if values.is_empty() {
            bail!(Value, OP, "`{name}` must have a finite value, got none among {all}");
        }
        let histogram = histogram(&values);
        self.summary(OP, name, step, |entry| entry.message(5, &histogram))
    }

    /// Logs an image: `[height, width]` or `[channels, height, width]`, of floats from 0 to 1 or of bytes.
    ///
    /// # Errors
    /// If the tensor is not an image, or it cannot be written.
    #[named("TensorBoard::image")]
    pub fn image(&mut self, name: &str, step: u64, image: &Tensor) -> Result<()> {
        const OP: &str = "TensorBoard::image";
        let png = png::encode(OP, image)?;
        let image = Message::new()
            .int(1, png.height as i64)
            .int(2, png.width as i64)
            .int(3, png.channels as i64)
            .bytes(4, &png.bytes);
        self.summary(OP, name, step, |entry| entry.message(4, &image))
    }

    /// Logs a text, as Markdown.
    ///
    /// # Errors
    /// If it cannot be written.
    #[named("TensorBoard::text")]
    pub fn text(&mut self, name: &str, step: u64, text: &str) -> Result<()> {
        const STRING: i64 = 7;
        let shape = Message::new().message(2, &Message::new().int(1, 1));
        let tensor = Message::new().int(1, STRING).message(2, &shape).bytes(8, text.as_bytes());
        let metadata = Message::new().message(1, &Message::new().bytes(1, b"text"));
        self.summary("TensorBoard::text", name, step, |entry| entry.message(8, &tensor).message(9, &metadata))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn summary(
        &mut self,
        op: &'static str,
        name: &str,
        step: u64,
        value: impl FnOnce(Message) -> Message,
    ) -> Result<()> {
        if name.is_empty() {
            bail!(Value, op, "name must not be empty");
        }
        let Ok(step) = i64::try_from(step) else { bail!(Value, op, "step must fit in i64, got {step}") };
        let entry = value(Message::new().bytes(1, name.as_bytes()));
        let summary = Message::new().message(1, &entry);
        self.record(op, &Message::new().double(1, now()).int(2, step).message(5, &summary))?;
        if self.flushed.elapsed() > DELAY { self.flush_as(op) } else { Ok(()) }
    }

    fn record(&mut self, op: &'static str, event: &Message) -> Result<()> {
        event.write_record(&mut self.file).map_err(|error| Error::io(op, &self.path, error))
    }

    fn flush_as(&mut self, op: &'static str) -> Result<()> {
        self.flushed = Instant::now();
        self.file.flush().map_err(|error| Error::io(op, &self.path, error))
    }
}

impl Log for TensorBoard {
    #[named("TensorBoard::log")]
    fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        values.iter().try_for_each(|(name, value)| self.scalar(name, step, *value))
    }

    #[named("TensorBoard::flush")]
    fn flush(&mut self) -> Result<()> {
        self.flush_as("TensorBoard::flush")
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The histogram of finite values, in buckets of one width.
fn histogram(values: &[f64]) -> Message {
    let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    // Halves, since the difference of two finite numbers need not be finite.
    let half = high / 2.0 - low / 2.0;
    let mut counts = [0.0; BUCKETS];
    let limit = |k: usize| low * ((BUCKETS - k) as f64 / BUCKETS as f64) + high * (k as f64 / BUCKETS as f64);
    let limits: Vec<f64> = (1..=BUCKETS).map(limit).collect();
    for value in values {
        let share = if half > 0.0 { (value / 2.0 - low / 2.0) / half } else { 1.0 };
        counts[((share * BUCKETS as f64) as usize).min(BUCKETS - 1)] += 1.0;
    }
    Message::new()
        .double(1, low)
        .double(2, high)
        .double(3, values.len() as f64)
        .double(4, sum)
        .double(5, squares)
        .doubles(6, &limits)
        .doubles(7, &counts)
}
