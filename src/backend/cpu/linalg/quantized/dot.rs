//! Dot products of quantised rows: with AVX-512 and VNNI, or as a plain loop that is compiled for every level.
//!
//! Both unpack a group of 256 elements of the matrix into the L1 cache, and multiply it with that group of every row of
//! activations. Sums of products of codes are integers; they are multiplied by the scales of both and added up in f32.

use super::activations::{ActivationGroup, Activations};
use super::unpack::{GROUP, Group, PART, PARTS, Unpack};
use super::{MOST, Matrix};
use crate::backend::cpu::runtime::simd::{Job, dispatch, mul_add};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_add_ps, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_load_ps,
    _mm512_load_si512, _mm512_loadu_ps, _mm512_mul_ps, _mm512_permutexvar_ps, _mm512_reduce_add_ps, _mm512_set1_epi32,
    _mm512_setr_epi32, _mm512_setzero_si512, _mm512_storeu_ps,
};
use std::marker::PhantomData;
use std::ops::Range;

/// Some columns of a product.
pub(super) struct Part<'a> {
    pub matrix: Matrix<'a>,
    pub x: &'a Activations,
    /// `[x.rows, outputs]`.
    pub out: *mut f32,
    pub outputs: usize,
    pub range: Range<usize>,
}

/// # Safety
/// `out` is valid for writes of `x.rows · outputs` elements, and nothing else accesses the columns of `range` meanwhile.
pub(super) unsafe fn run<U: Unpack>(part: Part<'_>) {
    #[cfg(target_arch = "x86_64")]
    if crate::backend::cpu::runtime::simd::has_vnni() {
        // SAFETY: the features were detected, and the caller's promise.
        return unsafe { vnni::<U>(part) };
    }
    // SAFETY: the caller's promise.
    unsafe { run_plain::<U>(part) };
}

/// As [`run`], without instructions for sums of bytes.
///
/// # Safety
/// As there.
pub(super) unsafe fn run_plain<U: Unpack>(part: Part<'_>) {
    dispatch(Plain(part, PhantomData::<U>));
}

/// The arithmetic of a level. Functions of a trait and not closures, which would not be compiled for the CPU's features.
trait Kernel {
    /// An unpacked group.
    type Codes;

    /// # Safety
    /// The CPU has the features of the kernel.
    unsafe fn unpack<U: Unpack>(row: &[u8], index: usize, to: &mut Group) -> Self::Codes;

    /// Adds the products of a group.
    ///
    /// # Safety
    /// As [`unpack`](Self::unpack).
    unsafe fn add<U: Unpack>(codes: &Self::Codes, group: &Group, x: &ActivationGroup, sums: &mut [f32; PARTS]);

    /// The sum of the lanes.
    ///
    /// # Safety
    /// As [`unpack`](Self::unpack).
    unsafe fn total(lanes: &[f32; PARTS]) -> f32;
}

/// The loop over columns and groups.
///
/// # Safety
/// As [`run`], on a CPU with the features of the kernel.
#[inline(always)]
unsafe fn columns<U: Unpack, K: Kernel>(part: Part<'_>) {
    let Part { matrix, x, out, outputs, range } = part;
    let rows = x.rows.min(MOST);
    let (mut group, mut sums) = (Group::new(), [[0.0_f32; PARTS]; MOST]);
    for j in range {
        let row = matrix.row(j);
        sums[..rows].fill([0.0; PARTS]);
        for index in 0..x.groups {
            // SAFETY: the features are the caller's promise.
            let codes = unsafe { K::unpack::<U>(row, index, &mut group) };
            for (i, sums) in sums[..rows].iter_mut().enumerate() {
                // SAFETY: as above.
                unsafe { K::add::<U>(&codes, &group, &x.all[i * x.groups + index], sums) };
            }
        }
        for (i, sums) in sums[..rows].iter().enumerate() {
            // SAFETY: the element is one of the result's, in the range of this thread.
            unsafe { out.add(i * outputs + j).write(K::total(sums)) };
        }
    }
}

struct Plain<'a, U>(Part<'a>, PhantomData<U>);

impl<U: Unpack> Job for Plain<'_, U> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: the promise of `run`, which alone makes this job. The kernel needs no features.
        unsafe { columns::<U, PlainKernel<FMA>>(self.0) };
    }
}

struct PlainKernel<const FMA: bool>;

impl<const FMA: bool> Kernel for PlainKernel<FMA> {
    type Codes = ();

    #[inline(always)]
    unsafe fn unpack<U: Unpack>(row: &[u8], index: usize, to: &mut Group) {
        U::unpack(row, index, to);
    }

    /// Lane `i` gets the products of elements `i` and `i + 8` of every part, for `i < 8`; all lanes get shifts.
    #[inline(always)]
    unsafe fn add<U: Unpack>((): &(), group: &Group, x: &ActivationGroup, sums: &mut [f32; PARTS]) {
        const HALF: usize = PART / 2;
        let (codes, vectors) = (group.codes.as_chunks::<PART>().0, x.codes.as_chunks::<PART>().0);
        let mut lanes = [0.0_f32; HALF];
        for part in 0..GROUP / PART {
            let (codes, vector) = (&codes[part], &vectors[part]);
            let scale = group.scales[part] * x.scales[part];
            // At most 128 · 127, of which 16 bits hold two.
            let mut products = [0_i16; PART];
            for i in 0..PART {
                let code = i16::from(codes[i]).wrapping_sub(i16::from(U::OFFSET));
                products[i] = code.wrapping_mul(i16::from(vector[i]));
            }
            for i in 0..HALF {
                let sum = f32::from(products[i].wrapping_add(products[HALF + i]));
                lanes[i] = mul_add::<FMA>(sum, scale, lanes[i]);
            }
        }
        for i in 0..HALF {
            sums[i] += lanes[i];
        }
        if U::SHIFTED {
            for (sum, (shift, x)) in sums.iter_mut().zip(group.shifts.iter().zip(&x.sums)) {
                *sum = mul_add::<FMA>(*shift, *x, *sum);
            }
        }
    }

    /// By halves.
    #[inline(always)]
    unsafe fn total(lanes: &[f32; PARTS]) -> f32 {
        let (mut lanes, mut width) = (*lanes, PARTS);
        while width > 1 {
            width /= 2;
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
        }
        lanes[0]
    }
}

/// # Safety
/// As [`run`], on a CPU with the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2")]
unsafe fn vnni<U: Unpack>(part: Part<'_>) {
    // SAFETY: the caller's promise.
    unsafe { columns::<U, Vnni>(part) };
}

#[cfg(target_arch = "x86_64")]
struct Vnni;

#[cfg(target_arch = "x86_64")]
impl Kernel for Vnni {
    type Codes = [__m512i; 4];

    #[inline(always)]
    unsafe fn unpack<U: Unpack>(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the features are those of the caller.
        unsafe { U::unpack_512(row, index, to) }
    }

    /// Lanes of 32 bits sum four products each, four neighbouring lanes those of a part.
    #[inline(always)]
    unsafe fn add<U: Unpack>(codes: &[__m512i; 4], group: &Group, x: &ActivationGroup, sums: &mut [f32; PARTS]) {
        // SAFETY: the groups are aligned to 64 bytes, and so are their fields, whose sizes are multiples of that; every load is
        // inside of one of them. The features are those of the caller.
        unsafe {
            let scales = _mm512_mul_ps(_mm512_load_ps(group.scales.as_ptr()), _mm512_load_ps(x.scales.as_ptr()));
            let mut all = _mm512_loadu_ps(sums.as_ptr());
            if U::SHIFTED {
                let (shifts, sums) = (_mm512_load_ps(group.shifts.as_ptr()), _mm512_load_ps(x.sums.as_ptr()));
                all = _mm512_fmadd_ps(shifts, sums, all);
            }
            let mut halves = [all; 2];
            for at in 0..4 {
                let start = if U::OFFSET == 0 {
                    _mm512_setzero_si512()
                } else {
                    _mm512_load_si512(x.starts.as_ptr().add(16 * at).cast())
                };
                let vector = _mm512_load_si512(x.codes.as_ptr().add(64 * at).cast());
                let products = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, codes[at], vector));
                let first_lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
                let lanes = _mm512_add_epi32(first_lanes, _mm512_set1_epi32(4 * at as i32));
                let scales = _mm512_permutexvar_ps(lanes, scales);
                // Two sums, so that additions need not wait for each other.
                halves[at % 2] = match at {
                    1 => _mm512_mul_ps(products, scales),
                    _ => _mm512_fmadd_ps(products, scales, halves[at % 2]),
                };
            }
            _mm512_storeu_ps(sums.as_mut_ptr(), _mm512_add_ps(halves[0], halves[1]));
        }
    }

    #[inline(always)]
    unsafe fn total(lanes: &[f32; PARTS]) -> f32 {
        // SAFETY: the array has 16 elements; the features are those of the caller.
        unsafe { _mm512_reduce_add_ps(_mm512_loadu_ps(lanes.as_ptr())) }
    }
}
