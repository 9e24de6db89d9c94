//! Run-time dispatch: the same loop compiled for AVX-512, for AVX2 with FMA, and for the baseline.
//!
//! Rust never contracts `a * b + c`, and elementwise loops use no fused operations, so that all versions give the same bits.
//! Loops with many exponentials get a constant that says whether the CPU has fused multiply-add, which makes them 1.7 times as
//! fast.

use std::mem::MaybeUninit;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A loop that is compiled once for each level. `run` must be `#[inline(always)]`.
pub(crate) trait Job {
    type Output;
    fn run<const FMA: bool>(self) -> Self::Output;
}

/// Whether the target has fused multiply-add on every CPU.
const EVERYWHERE: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

/// `a * b + c`, rounded once if `FMA`. Without the instruction `mul_add` would call a slow library function.
#[inline(always)]
pub(crate) fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `[f(0), f(1), ..]`, always inlined. Without link-time optimisation `std::array::from_fn` and `map` may be function calls, and a
/// loop with a call is not vectorised.
#[inline(always)]
pub(crate) fn each<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut all = MaybeUninit::<[T; N]>::uninit();
    let mut k = 0;
    while k < N {
        // SAFETY: `k` is below the length of the array.
        unsafe { all.as_mut_ptr().cast::<T>().add(k).write(f(k)) };
        k += 1;
    }
    // SAFETY: all of them were written.
    unsafe { all.assume_init() }
}

/// Runs a job with the widest vectors the CPU has.
#[inline]
pub(crate) fn dispatch<J: Job>(job: J) -> J::Output {
    #[cfg(target_arch = "x86_64")]
    {
        let level = match LEVEL.load(Ordering::Relaxed) {
            UNKNOWN => detect(),
            level => level,
        };
        // A call through a function pointer compiles faster than three calls.
        let run: unsafe fn(J) -> J::Output = match level {
            AVX512 => avx512::<J>,
            AVX2 => avx2::<J>,
            _ => baseline::<J>,
        };
        // SAFETY: the features were detected.
        unsafe { run(job) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    baseline(job)
}

/// The result of [`detect`]: one load, where the standard library would need one for each feature.
#[cfg(target_arch = "x86_64")]
static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);
#[cfg(target_arch = "x86_64")]
const UNKNOWN: u8 = 0;
#[cfg(target_arch = "x86_64")]
const BASELINE: u8 = 1;
#[cfg(target_arch = "x86_64")]
const AVX2: u8 = 2;
#[cfg(target_arch = "x86_64")]
const AVX512: u8 = 3;

#[cfg(target_arch = "x86_64")]
#[cold]
fn detect() -> u8 {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("bmi2") && has!("fma");
    let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    let level = if avx512 {
        AVX512
    } else if avx2 {
        AVX2
    } else {
        BASELINE
    };
    LEVEL.store(level, Ordering::Relaxed);
    level
}

/// Whether the CPU multiplies and adds bytes in vectors of 512 bits (AVX-512 VNNI).
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_vnni() -> bool {
    let level = match LEVEL.load(Ordering::Relaxed) {
        UNKNOWN => detect(),
        level => level,
    };
    // The standard library keeps what it has detected.
    level == AVX512 && std::arch::is_x86_feature_detected!("avx512vnni")
}

/// Runs a job without feature detection. Not inlined, so that there is one such version of every loop.
#[inline(never)]
pub(crate) fn baseline<J: Job>(job: J) -> J::Output {
    job.run::<EVERYWHERE>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
fn avx512<J: Job>(job: J) -> J::Output {
    job.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi2")]
fn avx2<J: Job>(job: J) -> J::Output {
    job.run::<true>()
}
