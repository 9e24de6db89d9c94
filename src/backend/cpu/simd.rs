//! Run-time dispatch: the same loop compiled for AVX-512, for AVX2 with FMA, and for the baseline.
//!
//! Rust never contracts `a * b + c`, and elementwise loops use no fused operations, so that all versions give the same bits.
//! Loops that take many exponentials are told whether the processor has fused multiply-add: with it these take half the time.

/// A loop to be compiled once for each level. `run` must be `#[inline(always)]`.
pub(crate) trait Job {
    type Output;
    fn run<const FMA: bool>(self) -> Self::Output;
}

/// Whether every processor that the program is built for has fused multiply-add.
const EVERYWHERE: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

/// `a * b + c`, rounded once if `FMA`: not to be asked for where the processor would have to be imitated.
#[inline(always)]
pub(crate) fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Runs a job with the widest vectors the processor has.
#[inline]
pub(crate) fn dispatch<J: Job>(job: J) -> J::Output {
    #[cfg(target_arch = "x86_64")]
    {
        // The standard library detects once and caches; each test is a load and a branch.
        if std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("fma")
        {
            // SAFETY: the features were just detected.
            return unsafe { avx512(job) };
        }
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("fma")
        {
            // SAFETY: the features were just detected.
            return unsafe { avx2(job) };
        }
    }
    baseline(job)
}

/// Runs a job without asking what the processor has. Not inlined, so that every loop has one such version.
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
