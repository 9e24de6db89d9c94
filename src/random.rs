//! Seeds and states of the random numbers that [`Tensor::rand`](crate::Tensor::rand), dropout, initialisers and others draw.
//!
//! [`manual_seed`] seeds the default generator, which all functions draw from that get no other. A [`Generator`] has a seed and
//! a position of its own. Its methods draw tensors, and [`with_generator`] makes a function draw from it.
//!
//! ```
//! use cotangent::{Generator, Tensor, manual_seed, with_generator};
//! manual_seed(42);
//! let first = Tensor::randn([3])?;
//! manual_seed(42);
//! assert!(Tensor::randn([3])?.equal(&first)?);
//!
//! let mut generator = Generator::seed(42);
//! assert!(generator.randn([3])?.equal(&first)?);
//! let noise = with_generator(&mut generator, || Tensor::randn([3]))?;
//! assert!(!noise.equal(&first)?);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! A draw depends only on the seed and the position, which each draw moves forward. The numbers of a seed are the same with any
//! number of threads and on every platform, but they are not PyTorch's. Without [`manual_seed`] the seed differs between runs.
//!
//! [`rng_state`] and [`set_rng_state`] save and restore the state; a [`Checkpoint`](crate::io::Checkpoint) does it for a whole
//! training run.
#![forbid(unsafe_code)]

// The numbers are those of Philox4x32-10.
//
// An ordinary generator is sequential: the millionth number needs the ones before it. Philox (Salmon
// et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) instead maps a counter and a key to
// four random words. Element `i` of a draw depends only on the seed, the offset of the draw and `i`:
// any number of threads can fill a tensor, and the bits are the same.
//
// A draw of `n` values takes the counters `offset..offset + counters(n, per)`, where one counter
// gives `per` values (`PER_COUNTER_32` or `PER_COUNTER_64`). The next draw starts where it ends.
// The bits are also the same on every platform: normals use the logarithm, sine and cosine below,
// since those of the system's library differ between platforms.

use std::cell::RefCell;
#[cfg(not(feature = "samples"))]
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

/// Values per counter for values of 32 bits: f32 uniforms and normals, Bernoulli draws.
pub(crate) const PER_COUNTER_32: u64 = 4;
/// Values per counter for values of 64 bits: f64 uniforms and normals, integers.
pub(crate) const PER_COUNTER_64: u64 = 2;

/// The number of counters that a draw of `n` values takes.
pub(crate) const fn counters(n: u64, per_counter: u64) -> u64 {
    n.div_ceil(per_counter)
}

/// Ten rounds of Philox with four 32-bit words. Tests compare [`philox_batch`], the form for many counters, with this one.
pub(crate) fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        counter = round(counter, key);
        key = next_key(key);
    }
    counter
}

#[inline(always)]
fn round([c0, c1, c2, c3]: [u32; 4], [k0, k1]: [u32; 2]) -> [u32; 4] {
    let p0 = u64::from(c0) * 0xD251_1F53;
    let p1 = u64::from(c2) * 0xCD9E_8D57;
    [(p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32]
}

/// The increments are the fractional parts of the golden ratio and of the square root of three.
fn next_key([k0, k1]: [u32; 2]) -> [u32; 2] {
    [k0.wrapping_add(0x9E37_79B9), k1.wrapping_add(0xBB67_AE85)]
}

/// A random number generator: a seed and a position in its sequence.
///
/// Generators with the same seed give the same numbers, on every platform and with any number of
/// threads. A clone continues from the same position.
///
/// ```
/// use cotangent::Generator;
///
/// let generator = Generator::seed(42);
/// let (seed, offset) = generator.state();
/// assert_eq!(Generator::from_state(seed, offset), generator);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    seed: u64,
    offset: u64,
}

impl Generator {
    /// A generator at the start of the sequence that belongs to `seed`.
    ///
    /// ```
    /// use cotangent::Generator;
    /// let (mut a, mut b) = (Generator::seed(7), Generator::seed(7));
    /// assert!(a.rand([3])?.equal(&b.rand([3])?)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "manual_seed")]
    pub fn seed(seed: u64) -> Self {
        Generator { seed, offset: 0 }
    }

    /// The seed and the position in its sequence, from which [`Generator::from_state`] makes a generator that continues
    /// from here.
    ///
    /// ```
    /// use cotangent::Generator;
    /// let mut generator = Generator::seed(7);
    /// let state = generator.state();
    /// let first = generator.rand([3])?;
    /// let (seed, offset) = state;
    /// assert!(Generator::from_state(seed, offset).rand([3])?.equal(&first)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "get_state")]
    pub fn state(&self) -> (u64, u64) {
        (self.seed, self.offset)
    }

    /// A generator with this [`Generator::state`].
    ///
    /// ```
    /// use cotangent::Generator;
    /// assert_eq!(Generator::from_state(7, 0), Generator::seed(7));
    /// ```
    #[doc(alias = "set_state")]
    pub fn from_state(seed: u64, offset: u64) -> Self {
        Generator { seed, offset }
    }

    /// Reserves counters for a draw: the seed, and the first counter that belongs to it.
    pub(crate) fn take(&mut self, counters: u64) -> (u64, u64) {
        let offset = self.offset;
        self.offset = offset.wrapping_add(counters);
        (self.seed, offset)
    }
}

/// The default generator. It is created at first use, with [`first_seed`] unless [`manual_seed`] was
/// called before.
static DEFAULT: Mutex<Option<Generator>> = Mutex::new(None);

thread_local! {
    /// Generators that replace [`DEFAULT`] on this thread, the innermost last.
    static OVERRIDES: RefCell<Vec<Generator>> = const { RefCell::new(Vec::new()) };
}

/// Calls `act` with the current generator of this thread.
fn with_current<R>(act: impl Fn(&mut Generator) -> R) -> R {
    // The stack is gone only while a thread ends.
    let overridden = OVERRIDES.try_with(|stack| stack.borrow_mut().last_mut().map(&act));
    if let Ok(Some(result)) = overridden {
        return result;
    }
    // A thread that panicked with the lock held has left a valid generator.
    let mut default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner);
    act(default.get_or_insert_with(|| Generator::seed(first_seed())))
}

/// The seed of a program that does not call [`manual_seed`], from the system's entropy.
#[cfg(not(feature = "samples"))]
fn first_seed() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// The seed of a test that does not call [`manual_seed`]: the environment variable `COTANGENT_SEED`, or 0. So a failure that
/// depends on the draws can be repeated.
#[cfg(feature = "samples")]
#[allow(clippy::panic)] // in test builds only
fn first_seed() -> u64 {
    let Ok(seed) = std::env::var("COTANGENT_SEED") else { return 0 };
    seed.parse().unwrap_or_else(|_| panic!("COTANGENT_SEED must be an integer from 0 to 2^64 - 1, got {seed:?}"))
}

/// Seeds the default generator.
///
/// Without this call the seed differs between runs of a program. Inside [`with_generator`] this seeds
/// the generator given there.
///
/// ```
/// use cotangent::{Tensor, manual_seed};
/// manual_seed(42);
/// let x = Tensor::randn([3])?;
/// manual_seed(42);
/// assert!(Tensor::randn([3])?.equal(&x)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn manual_seed(seed: u64) {
    with_current(|generator| *generator = Generator::seed(seed));
}

/// The [`Generator::state`] of the current generator, for [`set_rng_state`] or
/// [`Generator::from_state`].
///
/// ```
/// use cotangent::{Tensor, random::{rng_state, set_rng_state}};
/// let state = rng_state();
/// let first = Tensor::rand([3])?;
/// set_rng_state(state);
/// assert!(Tensor::rand([3])?.equal(&first)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "get_rng_state")]
pub fn rng_state() -> (u64, u64) {
    with_current(|generator| generator.state())
}

/// Sets the state of the current generator to an earlier [`rng_state`].
///
/// ```
/// use cotangent::{Tensor, random::{rng_state, set_rng_state}};
/// let state = rng_state();
/// let first = Tensor::randn([3])?;
/// set_rng_state(state);
/// assert!(Tensor::randn([3])?.equal(&first)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn set_rng_state((seed, offset): (u64, u64)) {
    with_current(|generator| *generator = Generator::from_state(seed, offset));
}

/// Reserves counters of the current generator: the seed, and the first counter of the draw.
pub(crate) fn next_range(counters: u64) -> (u64, u64) {
    with_current(|generator| generator.take(counters))
}

/// Runs `body` with `generator` in place of the default one, on this thread only. Afterwards
/// `generator` has the state after the last draw of `body`, even if `body` panicked.
///
/// ```
/// use cotangent::{Generator, Tensor, with_generator};
/// let draw = |seed| with_generator(&mut Generator::seed(seed), || Tensor::rand([3]));
/// assert!(draw(1)?.equal(&draw(1)?)? && !draw(1)?.equal(&draw(2)?)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "fork_rng")]
pub fn with_generator<R>(generator: &mut Generator, body: impl FnOnce() -> R) -> R {
    struct Restore<'a>(&'a mut Generator);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            let popped = OVERRIDES.try_with(|stack| stack.borrow_mut().pop());
            if let Ok(Some(generator)) = popped {
                *self.0 = generator;
            }
        }
    }
    OVERRIDES.with(|stack| stack.borrow_mut().push(generator.clone()));
    let _restore = Restore(generator);
    body()
}

/// Counters that are processed together, so that the compiler can vectorise.
const BATCH: usize = 16;
/// The words of a batch; those of a counter are adjacent.
type Words = [u32; 4 * BATCH];

/// [`philox`] of the counters from `first` on.
fn philox_batch(first: u64, key: [u32; 2]) -> Words {
    let [mut c0, mut c1, mut c2, mut c3] = [[0_u32; BATCH]; 4];
    for lane in 0..BATCH {
        let counter = first.wrapping_add(lane as u64);
        (c0[lane], c1[lane]) = (counter as u32, (counter >> 32) as u32);
    }
    let mut key = key;
    for _ in 0..10 {
        for lane in 0..BATCH {
            [c0[lane], c1[lane], c2[lane], c3[lane]] = round([c0[lane], c1[lane], c2[lane], c3[lane]], key);
        }
        key = next_key(key);
    }
    let mut words = [0; 4 * BATCH];
    for lane in 0..BATCH {
        words[4 * lane..4 * lane + 4].copy_from_slice(&[c0[lane], c1[lane], c2[lane], c3[lane]]);
    }
    words
}

/// Fills `out` with the elements `first..first + out.len()` of the draw that starts at `offset`.
///
/// One counter gives `per_counter` elements, at most four. `convert` computes those of a batch, in
/// order; it does not read `out`.
fn fill<T: Copy + Default>(
    mut out: &mut [T],
    (seed, offset): (u64, u64),
    first: u64,
    per_counter: u64,
    convert: impl Fn(&Words, &mut [T]),
) {
    let key = [seed as u32, (seed >> 32) as u32];
    let full = per_counter as usize * BATCH;
    let mut counter = offset.wrapping_add(first / per_counter);
    // `out` may start in the middle of a counter's elements, and end in the middle of a batch.
    let mut skip = (first % per_counter) as usize;
    while !out.is_empty() {
        let words = philox_batch(counter, key);
        let (part, rest) = out.split_at_mut(out.len().min(full - skip));
        if part.len() == full {
            convert(&words, part);
        } else {
            let mut batch = [T::default(); 4 * BATCH];
            convert(&words, &mut batch[..full]);
            part.copy_from_slice(&batch[skip..skip + part.len()]);
        }
        out = rest;
        counter = counter.wrapping_add(BATCH as u64);
        skip = 0;
    }
}

/// The 64-bit words of a batch. The first word of a pair is the low half.
fn doubles(words: &Words) -> impl Iterator<Item = u64> {
    words.chunks_exact(2).map(|pair| u64::from(pair[1]) << 32 | u64::from(pair[0]))
}

/// `2^-n`, exactly.
fn inverse_power(n: u32) -> f64 {
    1.0 / (1_u64 << n) as f64
}

/// Uniform in `[0, 1)`, in steps of `2^-bits` for 1 to 24 bits: four to a counter.
///
/// For types narrower than f32, with as many bits as their significand has (11 for f16, 8 for
/// bf16): a uniform f32 near one would be rounded to one.
pub(crate) fn fill_uniform_bits(out: &mut [f32], seed: u64, offset: u64, first: u64, bits: u32) {
    let bits = bits.clamp(1, f32::MANTISSA_DIGITS);
    let step = inverse_power(bits) as f32;
    fill(out, (seed, offset), first, PER_COUNTER_32, |words, out| {
        for (out, word) in out.iter_mut().zip(words) {
            // Through i32, which vector units convert and which holds 24 bits.
            *out = (word >> (32 - bits)) as i32 as f32 * step;
        }
    });
}

/// Uniform in `[0, 1)`, in steps of `2^-53`: two to a counter.
pub(crate) fn fill_uniform_f64(out: &mut [f64], seed: u64, offset: u64, first: u64) {
    let step = inverse_power(53);
    fill(out, (seed, offset), first, PER_COUNTER_64, |words, out| {
        for (out, word) in out.iter_mut().zip(doubles(words)) {
            *out = (word >> 11) as f64 * step;
        }
    });
}

/// Normal with mean 0 and variance 1: four to a counter. No value is beyond ±6.67.
pub(crate) fn fill_normal_f32(out: &mut [f32], seed: u64, offset: u64, first: u64) {
    let step = inverse_power(32);
    fill(out, (seed, offset), first, PER_COUNTER_32, |words, out| {
        let mut normals = [0.0; 4 * BATCH];
        for (normal, &word) in normals.iter_mut().zip(words) {
            *normal = f64::from(word);
        }
        box_muller_batch(&mut normals, step);
        for (out, normal) in out.iter_mut().zip(normals) {
            *out = normal as f32;
        }
    });
}

/// Normal with mean 0 and variance 1: two to a counter. No value is beyond ±8.58.
pub(crate) fn fill_normal_f64(out: &mut [f64], seed: u64, offset: u64, first: u64) {
    let step = inverse_power(53);
    fill(out, (seed, offset), first, PER_COUNTER_64, |words, out| {
        for (out, word) in out.iter_mut().zip(doubles(words)) {
            *out = (word >> 11) as f64;
        }
        box_muller_batch(out, step);
    });
}

/// Turns each pair of random integers below `1 / step` into a pair of normals.
fn box_muller_batch(pairs: &mut [f64], step: f64) {
    // The halves of the pairs are separated, so that the arithmetic runs over plain arrays and is
    // vectorised.
    const HALF: usize = 2 * BATCH;
    let (mut u, mut v) = ([1.0; HALF], [0.0; HALF]);
    for ((u, v), pair) in u.iter_mut().zip(&mut v).zip(pairs.chunks_exact(2)) {
        (*u, *v) = ((pair[0] + 1.0) * step, pair[1] * step);
    }
    let count = pairs.len() / 2;
    for (u, v) in u.iter_mut().zip(&mut v).take(count) {
        (*u, *v) = box_muller(*u, *v);
    }
    for ((u, v), pair) in u.iter().zip(&v).zip(pairs.chunks_exact_mut(2)) {
        (pair[0], pair[1]) = (*u, *v);
    }
}

/// Integers in `[low, high)`: two to a counter. If the interval is empty, all are `low`.
///
/// Computed as the high half of a 64-bit word times the width `w` of the interval. Some integers are
/// more likely than others by a factor of at most `1 + w / 2^64`, which is negligible for the widths
/// in use. In return every element takes the same number of words.
pub(crate) fn fill_integers(out: &mut [i64], seed: u64, offset: u64, first: u64, low: i64, high: i64) {
    let width = if low < high { high.wrapping_sub(low) as u64 } else { 0 };
    fill(out, (seed, offset), first, PER_COUNTER_64, |words, out| {
        for (out, word) in out.iter_mut().zip(doubles(words)) {
            let step = (u128::from(word) * u128::from(width)) >> 64;
            *out = low.wrapping_add(step as i64);
        }
    });
}

/// The largest 32-bit word that means yes, `None` if there is none. Yes has probability `p`, rounded to a multiple of
/// `2^-32`. Comparing words is faster than comparing floats.
pub(crate) fn greatest_yes(p: f64) -> Option<u32> {
    // At p = 1 the limit is above every word; a NaN gives 0.
    let limit = (p / inverse_power(32)).round() as u64;
    limit.checked_sub(1).map(|last| last.min(u32::MAX.into()) as u32)
}

/// `yes` for words up to [`greatest_yes`], else `no`: four per counter.
pub(crate) fn fill_bernoulli<T: Copy + Default>(
    out: &mut [T],
    seed: u64,
    offset: u64,
    first: u64,
    last: Option<u32>,
    [yes, no]: [T; 2],
) {
    let Some(last) = last else { return out.fill(no) };
    fill(out, (seed, offset), first, PER_COUNTER_32, |words, out| {
        for (out, &word) in out.iter_mut().zip(words) {
            *out = if word <= last { yes } else { no };
        }
    });
}

/// Two independent normals from `u` in (0, 1] and `v` in [0, 1): a point whose distance from the
/// origin depends on `u` and whose direction depends on `v`.
fn box_muller(u: f64, v: f64) -> (f64, f64) {
    // The square root is exact to the last bit on every platform, by IEEE 754.
    let radius = (-2.0 * ln(u)).sqrt();
    let (sin, cos) = sin_cos_turns(v);
    (radius * cos, radius * sin)
}

/// `c[0] + c[1] z + c[2] z² + …`, in plain products and sums, which are the same everywhere.
fn polynomial<const N: usize>(z: f64, coefficients: [f64; N]) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * z + c)
}

/// The logarithm of a normal number, to within a few units in the last place; the same bits everywhere.
pub(crate) fn ln(x: f64) -> f64 {
    // x = m 2^k with m between the square roots of 1/2 and 2: the subtraction of the former's bits
    // borrows from the exponent exactly where m would be below it. The upper halves suffice.
    const LEAST: i32 = (std::f64::consts::FRAC_1_SQRT_2.to_bits() >> 32) as i32;
    let bits = x.to_bits();
    let k = ((bits >> 32) as i32 - LEAST) >> 20;
    let m = f64::from_bits(bits.wrapping_sub((k as u32 as u64) << 52));
    // ln m = 2 artanh(s), and s² < 0.0295: the next term would be below 2e-18 of the sum.
    let s = (m - 1.0) / (m + 1.0);
    const SERIES: [f64; 11] = {
        let mut terms = [0.0; 11];
        let mut n = 0;
        while n < 11 {
            terms[n] = 2.0 / (2 * n + 1) as f64;
            n += 1;
        }
        terms
    };
    f64::from(k) * std::f64::consts::LN_2 + s * polynomial(s * s, SERIES)
}

/// Sine and cosine of `2π v`, for `v` in [0, 1), to within a few units in the last place of one.
fn sin_cos_turns(v: f64) -> (f64, f64) {
    // The nearest quarter turn is subtracted before the product with π, which is exact. The rest is
    // at most π/4, for which the omitted terms of both series are below 5e-17.
    let quarters = 4.0 * v;
    // Adding this rounds a number to an integer, which is then in the lowest bits.
    const ROUND: f64 = 1.5 * (1_u64 << 52) as f64;
    let shifted = quarters + ROUND;
    let angle = (quarters - (shifted - ROUND)) * std::f64::consts::FRAC_PI_2;
    const SIN: [f64; 8] = alternating_inverse_factorials(1);
    const COS: [f64; 9] = alternating_inverse_factorials(0);
    let square = angle * angle;
    let (sin, cos) = (angle * polynomial(square, SIN), polynomial(square, COS));
    // Each quarter turn maps (sin, cos) to (cos, -sin). Written without branches, which are
    // unpredictable for random numbers.
    let quadrant = shifted.to_bits();
    let (sin, cos) = if quadrant & 1 == 0 { (sin, cos) } else { (cos, sin) };
    let negate = |x: f64, sign: u64| f64::from_bits(x.to_bits() ^ (sign & 2) << 62);
    (negate(sin, quadrant), negate(cos, quadrant + 1))
}

/// `1/n!, -1/(n+2)!, 1/(n+4)!, …` starting with `n` = 0 or 1.
const fn alternating_inverse_factorials<const N: usize>(first: usize) -> [f64; N] {
    let mut terms = [1.0; N];
    let mut factorial = 1.0; // exact: 16! needs 44 bits, less its trailing zeros
    let mut n = 1;
    while n < N {
        let top = (2 * n + first) as f64;
        factorial *= (top - 1.0) * top;
        terms[n] = if n % 2 == 0 { 1.0 / factorial } else { -1.0 / factorial };
        n += 1;
    }
    terms
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
#[path = "random_tests.rs"]
mod tests;
