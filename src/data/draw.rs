//! The state of the loader while it reads an item: the index, and the random numbers of the item.
//!
//! Each item is read under its own generator, seeded by the loader's seed, the epoch and the item's index. So random numbers
//! drawn in [`Dataset::get_item`](super::Dataset::get_item) do not depend on the thread or on the timing.

use crate::error::bail;
use crate::random::{self, Generator, with_generator};
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state that all items of an epoch share.
#[derive(Clone)]
pub(super) struct Epoch {
    /// The seed of the epoch, from that of the loader.
    pub(super) key: u64,
    /// Whether the iterator was dropped.
    pub(super) stop: Arc<AtomicBool>,
}

thread_local! {
    static EPOCH: RefCell<Option<Epoch>> = const { RefCell::new(None) };
    /// The index of the item that this thread is reading.
    static AT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs `f` as a part of an epoch.
pub(super) fn in_epoch<R>(epoch: &Epoch, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Epoch>);
    impl Drop for Restore {
        fn drop(&mut self) {
            EPOCH.set(self.0.take());
        }
    }
    let _restore = Restore(EPOCH.replace(Some(epoch.clone())));
    AT.set(None);
    f()
}

/// Reads an item by `f`. Errors get the index.
pub(super) fn item<T>(index: usize, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let epoch = EPOCH.with_borrow(Clone::clone);
    begin_item(index);
    let made = match epoch {
        None => f(),
        Some(epoch) if epoch.stop.load(Ordering::Relaxed) => bail!(Value, "DataLoader", "the iterator was dropped"),
        Some(epoch) => with_generator(&mut Generator::seed(mix(epoch.key, index as u64)), f),
    };
    made.map_err(|error| of_item(index, error))
}

/// Makes a batch by `f` under a generator seeded by its number. Its items have their own generators.
pub(super) fn batch<T>(key: u64, number: usize, f: impl FnOnce() -> Result<T>) -> Result<T> {
    with_generator(&mut Generator::seed(mix(!key, number as u64)), f)
}

/// Adds the index of an item to an error.
pub(super) fn of_item(index: usize, error: Error) -> Error {
    error.inside().context(format_args!("item {index}"))
}

/// Notes that this thread is reading an item.
pub(super) fn begin_item(index: usize) {
    AT.set(Some(index));
}

/// The item that this thread read last.
pub(super) fn last_item() -> Option<usize> {
    AT.get()
}

/// Mixes two numbers into a seed by the steps of SplitMix64.
pub(super) fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed ^ number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A seed from the current generator of this thread.
pub(super) fn fresh_seed() -> u64 {
    let (seed, offset) = random::next_range(1);
    mix(seed, offset)
}

/// Numbers in `[0, 1)` from the current generator of this thread.
pub(super) fn uniforms<const N: usize>() -> [f64; N] {
    let (seed, offset) = random::next_range(random::counters(N as u64, random::PER_COUNTER_64));
    let mut out = [0.0; N];
    random::fill_uniform_f64(&mut out, seed, offset, 0);
    out
}

/// A number in `[low, high)`.
pub(super) fn uniform(low: f64, high: f64) -> f64 {
    let [u] = uniforms();
    low + (high - low) * u
}

/// An integer below `n`, which is not 0.
pub(super) fn below(n: usize) -> usize {
    let (seed, offset) = random::next_range(1);
    let mut out = [0];
    random::fill_integers(&mut out, seed, offset, 0, 0, n as i64);
    out[0] as usize
}

/// True with probability `p`.
pub(super) fn happens(p: f64) -> bool {
    let [u] = uniforms();
    u < p
}

/// Shuffles the elements.
pub(super) fn shuffle<T>(items: &mut [T], generator: &mut Generator) {
    const WORDS: usize = 1024;
    let mut words = [0; WORDS];
    for (at, drawn) in (1..items.len()).rev().zip((0..WORDS).cycle()) {
        if drawn == 0 {
            let (seed, offset) = generator.take(random::counters(WORDS as u64, random::PER_COUNTER_64));
            random::fill_integers(&mut words, seed, offset, 0, 0, i64::MAX);
        }
        // The high part of a 63-bit number times the number of choices.
        items.swap(at, ((words[drawn] as u128 * (at as u128 + 1)) >> 63) as usize);
    }
}

/// `n` integers below `bound`.
pub(super) fn integers(n: usize, bound: usize, generator: &mut Generator) -> Vec<usize> {
    let (seed, offset) = generator.take(random::counters(n as u64, random::PER_COUNTER_64));
    let mut out = vec![0; n];
    random::fill_integers(&mut out, seed, offset, 0, 0, bound as i64);
    out.into_iter().map(|x| x as usize).collect()
}

/// `n` numbers in `[0, 1)`.
pub(super) fn many_uniforms(n: usize, generator: &mut Generator) -> Vec<f64> {
    let (seed, offset) = generator.take(random::counters(n as u64, random::PER_COUNTER_64));
    let mut out = vec![0.0; n];
    random::fill_uniform_f64(&mut out, seed, offset, 0);
    out
}
