//! A progress bar.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// A progress bar on stderr, with numbers, the speed and the remaining time. It writes nothing if stderr is not a terminal.
///
/// ```
/// use cotangent::train::Progress;
/// let mut bar = Progress::new(45).label("epoch 3/80");
/// for step in 1..=45 {
///     bar.update(step, &[("loss", 1.0 / step as f64), ("lr", 1e-3)]);
/// }
/// bar.finish();
/// ```
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: Option<u64>,
    done: u64,
    values: String,
    start: Instant,
    /// The time and the count of the last measurement of the speed.
    measured: (Instant, u64),
    speed: Option<f64>,
    drawn: Option<Instant>,
    is_shown: bool,
    is_finished: bool,
}

/// The least time between two drawings.
const PAUSE: Duration = Duration::from_millis(80);
const WIDTH: usize = 28;

impl Progress {
    /// A bar of `total` steps.
    pub fn new(total: u64) -> Progress {
        Progress::of(Some(total))
    }

    /// For an unknown number of steps: a count and the speed without a bar.
    pub fn unbounded() -> Progress {
        Progress::of(None)
    }

    fn of(total: Option<u64>) -> Progress {
        let start = Instant::now();
        // Old terminals of Windows would print the escape codes; newer ones set a variable.
        let understood = !cfg!(windows) || ["WT_SESSION", "TERM"].iter().any(|name| std::env::var_os(name).is_some());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress {
            label: String::new(),
            total,
            done: 0,
            values: String::new(),
            start,
            measured: (start, 0),
            speed: None,
            drawn: None,
            is_shown: understood && !dumb && io::stderr().is_terminal(),
            is_finished: false,
        }
    }

    /// The label before the bar.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Progress {
        self.label = label.into();
        self
    }

    /// Changes the label before the bar.
    pub fn set_label(&mut self, label: impl Into<String>) {
        self.label = label.into();
    }

    /// Changes the number of steps.
    pub fn set_total(&mut self, total: u64) {
        self.total = Some(total);
    }

    /// Writes nothing, also on a terminal.
    #[must_use]
    pub fn quiet(mut self) -> Progress {
        self.is_shown = false;
        self
    }

    /// Sets the number of finished steps, and the numbers to show.
    pub fn update(&mut self, done: u64, values: &[(&str, f64)]) {
        self.done = done;
        if !self.is_shown {
            return;
        }
        // Also if nothing is drawn: these may be the last.
        self.values = figures(values);
        let now = Instant::now();
        if self.drawn.is_some_and(|drawn| now - drawn < PAUSE) {
            return;
        }
        self.measure(now);
        self.drawn = Some(now);
        self.draw(&self.line(now));
    }

    /// Updates the speed, an exponential moving average.
    fn measure(&mut self, now: Instant) {
        let (before, count) = self.measured;
        let seconds = (now - before).as_secs_f64();
        if self.done > count && seconds > 0.0 {
            let recent = (self.done - count) as f64 / seconds;
            let weight = (-seconds / 3.0).exp();
            self.speed = Some(self.speed.map_or(recent, |speed| weight * speed + (1.0 - weight) * recent));
            self.measured = (now, self.done);
        }
    }

    /// Ends the bar with the elapsed time. Nothing more is drawn.
    pub fn finish(&mut self) {
        if self.is_finished {
            return;
        }
        self.is_finished = true;
        if self.is_shown && self.drawn.is_some() {
            let mut line = self.head();
            line.push_str(&self.values);
            let _ = write!(line, "  {}", duration(self.start.elapsed()));
            self.draw(&line);
            let _ = writeln!(io::stderr());
        }
        self.is_shown = false;
    }

    /// Writes a permanent line with the label, these numbers and the elapsed time. The bar continues below it. A line that is
    /// longer than the width of the terminal is wrapped.
    ///
    /// ```
    /// use cotangent::train::Progress;
    /// let mut bar = Progress::new(90);
    /// for epoch in 1..=2 {
    ///     bar.set_label(format!("epoch {epoch}/2"));
    ///     (1..=45).for_each(|step| bar.update(45 * (epoch - 1) + step, &[("loss", 1.0 / step as f64)]));
    ///     bar.summary(&[("loss", 0.1), ("val_accuracy", 0.9)]);
    /// }
    /// bar.clear();
    /// ```
    pub fn summary(&mut self, values: &[(&str, f64)]) {
        if !self.is_shown {
            return;
        }
        let mut out = io::stderr().lock();
        let _ = write!(out, "\r\x1b[K{}\n", self.summary_line(values, self.start.elapsed())).and_then(|()| out.flush());
        // The next update draws the bar at once.
        self.drawn = None;
    }

    fn summary_line(&self, values: &[(&str, f64)], time: Duration) -> String {
        format!("{}{}  {}", self.label, figures(values), duration(time))
    }

    /// Ends the bar and clears it. Nothing more is drawn.
    pub fn clear(&mut self) {
        if self.is_shown && self.drawn.is_some() {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
        (self.is_finished, self.is_shown) = (true, false);
    }

    /// Label, bar and count.
    fn head(&self) -> String {
        let mut line = String::new();
        if !self.label.is_empty() {
            let _ = write!(line, "{}  ", self.label);
        }
        match self.total {
            Some(total) => {
                let share = if total == 0 { 1.0 } else { (self.done as f64 / total as f64).min(1.0) };
                // Eighths of a letter.
                let eighths = (share * (8 * WIDTH) as f64) as usize;
                let (full, part) = (eighths / 8, eighths % 8);
                let tip = if part == 0 { "" } else { ["▏", "▎", "▍", "▌", "▋", "▊", "▉"][part - 1] };
                let empty = WIDTH - full - usize::from(part > 0);
                let _ = write!(line, "{}{tip}{}  {}/{total}", "█".repeat(full), "·".repeat(empty), self.done);
            }
            None => {
                let _ = write!(line, "{}", self.done);
            }
        }
        line
    }

    fn line(&self, now: Instant) -> String {
        let mut line = self.head();
        line.push_str(&self.values);
        if let Some(speed) = self.speed {
            let _ = if speed >= 1.0 {
                write!(line, "  {}/s", figure(speed))
            } else {
                write!(line, "  {} s each", figure(1.0 / speed))
            };
            if let Some(total) = self.total {
                let left = total.saturating_sub(self.done) as f64 / speed;
                let _ = write!(line, "  {} left", duration(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)));
                return line;
            }
        }
        let _ = write!(line, "  {}", duration(now - self.start));
        line
    }

    /// Overwrites the line. A line that is longer than the width of the terminal is cut, not wrapped.
    fn draw(&self, line: &str) {
        let mut out = io::stderr().lock();
        let _ = write!(out, "\r\x1b[?7l{line}\x1b[K\x1b[?7h").and_then(|()| out.flush());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The numbers with their names.
fn figures(values: &[(&str, f64)]) -> String {
    values.iter().map(|(name, value)| format!("  {name} {}", figure(*value))).collect()
}

/// A number with four digits.
fn figure(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() || size == 0.0 {
        return value.to_string();
    }
    if (1e-3..1e5).contains(&size) {
        let digits = (3 - size.log10().floor() as i32).clamp(0, 4) as usize;
        return format!("{value:.digits$}");
    }
    format!("{value:.1e}")
}

/// `4s`, `3m 20s`, `2h 05m`, `3d 04h`.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        86_400..8_640_000 => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
        _ => "very long".into(),
    }
}

/// Wraps an iterator with a progress bar, as `tqdm` does.
///
/// ```
/// use cotangent::train::progress;
/// let mut sum = 0;
/// for number in progress(0..10) {
///     sum += number;
/// }
/// assert_eq!(sum, 45);
/// ```
#[doc(alias = "tqdm")]
pub fn progress<I: IntoIterator>(items: I) -> ProgressIter<I::IntoIter> {
    let items = items.into_iter();
    let bar = match items.size_hint() {
        (low, Some(high)) if low == high => Progress::new(high as u64),
        _ => Progress::unbounded(),
    };
    ProgressIter { items, bar, done: 0 }
}

/// The iterator returned by [`progress`].
#[derive(Debug)]
pub struct ProgressIter<I> {
    items: I,
    bar: Progress,
    done: u64,
}

impl<I: Iterator> Iterator for ProgressIter<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        // An item is done when the next is requested.
        self.bar.update(self.done, &[]);
        let next = self.items.next();
        match next {
            Some(_) => self.done += 1,
            None => self.bar.finish(),
        }
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_bar_figures_speed_and_the_time_left() {
        let mut bar = Progress::new(40).label("epoch 1/3");
        bar.done = 10;
        bar.values = "  loss 0.5000".into();
        bar.measure(bar.start + Duration::from_secs(2));
        let line = bar.line(bar.start + Duration::from_secs(2));
        assert_eq!(line, "epoch 1/3  ███████·····················  10/40  loss 0.5000  5.000/s  6s left");
        bar.done = 11;
        assert!(bar.head().contains("███████▋····"), "{}", bar.head());
    }

    #[test]
    fn a_summary_has_no_bar_and_the_last_line_the_last_figures() {
        let mut bar = Progress::new(40).label("epoch 1/3");
        bar.is_shown = true;
        let line = bar.summary_line(&[("loss", 0.5), ("val_accuracy", 0.75)], Duration::from_secs(65));
        assert_eq!(line, "epoch 1/3  loss 0.5000  val_accuracy 0.7500  1m 05s");
        // As if something had just been drawn.
        bar.drawn = Some(Instant::now() + Duration::from_secs(60));
        bar.update(40, &[("loss", 0.25)]);
        assert_eq!((bar.values.as_str(), bar.done), ("  loss 0.2500", 40));
        bar.is_shown = false;
    }

    #[test]
    fn of_an_unknown_number_there_is_a_count() {
        let mut bar = Progress::unbounded();
        bar.done = 3;
        bar.measure(bar.start + Duration::from_secs(30));
        assert_eq!(bar.line(bar.start + Duration::from_secs(30)), "3  10.00 s each  30s");
    }

    #[test]
    fn times_and_figures_are_short() {
        let texts = [5, 200, 7500, 270_000].map(|seconds| duration(Duration::from_secs(seconds)));
        assert_eq!(texts, ["5s", "3m 20s", "2h 05m", "3d 03h"]);
        assert_eq!([0.0, 1234.5, 0.003, 3e-5, f64::NAN].map(figure), ["0", "1234", "0.0030", "3.0e-5", "NaN"]);
    }
}
