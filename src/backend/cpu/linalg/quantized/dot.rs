//! Dot products of quantised rows: with AVX-512 and VNNI, or as a plain loop that is compiled for every level.
//!
//! Both unpack a group of 256 elements of the matrix into the L1 cache, and multiply it with that group of every row of activations.
//! Sums of products of codes are integers; they are multiplied by the scales of both and added up in f32.

use super::activations::{ActivationGroup, Activations};
use super::unpack::{GROUP, Group, PART, PARTS, Unpack};
use super::{MOST, Matrix};
use crate::backend::cpu::runtime::simd::{Job, dispatch, mul_add};
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
/// `out` is valid for writes of `x.rows · outputs` elements, and nobody else accesses the columns of `range` meanwhile.
pub(super) unsafe fn run<U: Unpack>(part: Part<'_>) {
    #[cfg(target_arch = "x86_64")]
    if crate::backend::cpu::runtime::simd::has_vnni() {
        // SAFETY: the features were detected, and the caller's promise.
        return unsafe { vnni::<U>(part) };
    }
    dispatch(Plain(part, PhantomData::<U>));
}

/// The loop over columns and groups, with the sums of a group as an argument.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn columns<U: Unpack>(
    part: Part<'_>,
    add: impl Fn(&Group, &ActivationGroup, &mut [f32; PARTS]),
    total: impl Fn(&[f32; PARTS]) -> f32,
) {
    let Part { matrix, x, out, outputs, range } = part;
    let rows = x.rows.min(MOST);
    let mut group = Group::new();
    for j in range {
        let row = matrix.row(j);
        let mut sums = [[0.0_f32; PARTS]; MOST];
        for index in 0..x.groups {
            U::unpack(row, index, &mut group);
            for (i, sums) in sums[..rows].iter_mut().enumerate() {
                add(&group, &x.all[i * x.groups + index], sums);
            }
        }
        for (i, sums) in sums[..rows].iter().enumerate() {
            // SAFETY: the element is one of the result's, in the range of this thread.
            unsafe { out.add(i * outputs + j).write(total(sums)) };
        }
    }
}

struct Plain<'a, U>(Part<'a>, PhantomData<U>);

impl<U: Unpack> Job for Plain<'_, U> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: the promise of `run`, which alone makes this job.
        unsafe { columns::<U>(self.0, |group, x, sums| add_plain::<U, FMA>(group, x, sums), total) };
    }
}

/// Lane `i` of the sums gets the products of elements `2i` and `2i + 1` of every part, for `i < 8`; the other lanes the shifts.
#[inline(always)]
fn add_plain<U: Unpack, const FMA: bool>(group: &Group, x: &ActivationGroup, sums: &mut [f32; PARTS]) {
    let (codes, vectors) = (group.codes.as_chunks::<PART>().0, x.codes.as_chunks::<PART>().0);
    let mut lanes = [0.0_f32; PART / 2];
    for part in 0..GROUP / PART {
        let (codes, vector) = (&codes[part], &vectors[part]);
        let scale = group.scales[part] * x.scales[part];
        for (i, lane) in lanes.iter_mut().enumerate() {
            let code = |at: usize| i32::from(i16::from(codes[at]) - i16::from(U::OFFSET));
            let sum = code(2 * i) * i32::from(vector[2 * i]) + code(2 * i + 1) * i32::from(vector[2 * i + 1]);
            *lane = mul_add::<FMA>(sum as f32, scale, *lane);
        }
    }
    for (sum, lane) in sums.iter_mut().zip(lanes) {
        *sum += lane;
    }
    if U::SHIFTED {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = mul_add::<FMA>(group.shifts[i], x.sums[i], *sum);
        }
    }
}

/// The sum of the lanes, by halves.
#[inline(always)]
fn total(lanes: &[f32; PARTS]) -> f32 {
    let (mut lanes, mut width) = (*lanes, PARTS);
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// # Safety
/// As [`run`], on a CPU with the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,bmi2")]
unsafe fn vnni<U: Unpack>(part: Part<'_>) {
    // SAFETY: the caller's promise.
    unsafe { columns::<U>(part, |group, x, sums| add_vnni::<U>(group, x, sums), total) };
}

/// Lanes of 32 bits sum four products each, four neighbouring lanes those of a part.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn add_vnni<U: Unpack>(group: &Group, x: &ActivationGroup, sums: &mut [f32; PARTS]) {
    use std::arch::x86_64::{
        _mm512_add_epi32, _mm512_add_ps, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_load_ps,
        _mm512_load_si512, _mm512_loadu_ps, _mm512_mul_ps, _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_setr_epi32,
        _mm512_setzero_si512, _mm512_storeu_ps,
    };
    // SAFETY: the groups are aligned to 64 bytes, and so are their fields, whose sizes are multiples of that; every load is inside of
    // one of them. The features are those of the caller.
    unsafe {
        let scales = _mm512_mul_ps(_mm512_load_ps(group.scales.as_ptr()), _mm512_load_ps(x.scales.as_ptr()));
        let mut all = _mm512_loadu_ps(sums.as_ptr());
        if U::SHIFTED {
            let (shifts, sums) = (_mm512_load_ps(group.shifts.as_ptr()), _mm512_load_ps(x.sums.as_ptr()));
            all = _mm512_fmadd_ps(shifts, sums, all);
        }
        let spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        let quarter = |at: usize| {
            let start = if U::OFFSET == 0 {
                _mm512_setzero_si512()
            } else {
                _mm512_load_si512(x.starts.as_ptr().add(16 * at).cast())
            };
            let codes = _mm512_load_si512(group.codes.as_ptr().add(64 * at).cast());
            let products = _mm512_dpbusd_epi32(start, codes, _mm512_load_si512(x.codes.as_ptr().add(64 * at).cast()));
            let lanes = _mm512_add_epi32(spread, _mm512_set1_epi32(4 * at as i32));
            (_mm512_cvtepi32_ps(products), _mm512_permutexvar_ps(lanes, scales))
        };
        let ((a, sa), (b, sb), (c, sc), (d, sd)) = (quarter(0), quarter(1), quarter(2), quarter(3));
        let first = _mm512_fmadd_ps(b, sb, _mm512_mul_ps(a, sa));
        let second = _mm512_fmadd_ps(d, sd, _mm512_mul_ps(c, sc));
        _mm512_storeu_ps(sums.as_mut_ptr(), _mm512_add_ps(all, _mm512_add_ps(first, second)));
    }
}
