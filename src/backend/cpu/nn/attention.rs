//! Attention, a block of queries at a time: the scores of a block with all keys are computed, used and discarded, and
//! recomputed in the backward pass. The matrix of all scores is never stored.
//!
//! The scores of a block are stored transposed, with a row for each key. Then the softmax over the keys needs no
//! horizontal sums of vectors, and both products that compute or use the scores read the large operand in place.

use crate::backend::cpu::linalg::gemm::{Matrix, Number, Product, Start, gemm};
use crate::backend::cpu::nn::fused::Float;
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{Ptr, num_threads, try_parallel};
use crate::backend::spec::AttentionInputs;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::storage::Storage;
use crate::zip::zip;
use crate::{DType, Device, Result};

/// The most queries in a block: four of the widest vectors.
const QUERIES: usize = 64;

/// Writes the result, `[batch.., T, E]`, and the LSE of the scores, `[batch.., T]`; both contiguous.
pub(crate) fn forward(
    op: &'static str,
    inputs: &AttentionInputs<'_>,
    sums: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype {
        DType::F32 => forward_as::<f32>(op, inputs, sums, out),
        DType::F64 => forward_as::<f64>(op, inputs, sums, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

/// Writes the requested gradients of query, key and value, given the cotangent of the result; all contiguous.
pub(crate) fn backward(
    op: &'static str,
    inputs: &AttentionInputs<'_>,
    sums: View<'_>,
    out: View<'_>,
    g: View<'_>,
    grads: [Option<&mut ViewMut<'_>>; 3],
) -> Result<()> {
    match out.dtype {
        DType::F32 => backward_as::<f32>(op, inputs, sums, out, g, grads),
        DType::F64 => backward_as::<f64>(op, inputs, sums, out, g, grads),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

trait Real: Float + Number {}
impl<T: Float + Number> Real for T {}

/// The inputs of one head of one batch element.
#[derive(Clone, Copy)]
struct Head<C> {
    /// The numbers of queries and keys, and the sizes of a key and of a value.
    t: usize,
    s: usize,
    d: usize,
    e: usize,
    query: Matrix<C>,
    key: Matrix<C>,
    value: Matrix<C>,
    mask: Option<Matrix<C>>,
    causal: bool,
    scale: C,
}

impl<C: Real> Head<C> {
    /// The number of keys visible to queries up to `end`.
    fn keys(&self, end: usize) -> usize {
        if self.causal { self.s.min(end) } else { self.s }
    }

    /// `out (keys x queries, rows of width) = rows (keys x inner) · of (queries x inner)ᵀ`.
    ///
    /// # Safety
    /// The matrices have these elements, `out` has room.
    unsafe fn by_key(
        op: &'static str,
        (keys, queries, inner): (usize, usize, usize),
        rows: Matrix<C>,
        of: Matrix<C>,
        (out, width): (*mut C, usize),
    ) -> Result<()> {
        let (b, start) = (Matrix { ptr: of.ptr, row: of.col, col: of.row }, Start::Zero);
        // SAFETY: the caller's promise.
        unsafe { gemm(op, &Product { m: keys, n: queries, k: inner, a: rows, b, out, width, start }) }
    }
}

/// Calls `f` with every head and its index, on several threads if there are enough heads.
fn heads<C: Real>(inputs: &AttentionInputs<'_>, f: impl Fn(Head<C>, usize) -> Result<()> + Sync) -> Result<()> {
    let AttentionInputs { query, key, value, mask, causal, scale } = inputs;
    let rank = query.layout.rank();
    let sizes = |layout: &Layout| (layout.shape()[rank - 2], layout.shape()[rank - 1]);
    let ((t, d), (s, e)) = (sizes(query.layout), sizes(value.layout));
    let corner = |layout: &Layout| layout.select("attention", -1, 0)?.select("attention", -1, 0);
    let corners = [query.layout, key.layout, value.layout, mask.as_ref().map_or(query.layout, |mask| mask.layout)];
    let [a, b, c, m] = corners.map(corner);
    let (a, b, c, m) = (a?, b?, c?, m?);
    let walk = Walk::new(a.shape(), [&a, &b, &c, &m]);
    let matrix = |view: &View<'_>, first: isize| {
        let strides = view.layout.strides();
        let ptr = view.ptr().cast::<C>().wrapping_offset(first);
        Matrix { ptr, row: strides[rank - 2], col: strides[rank - 1] }
    };
    let head = |first: [isize; 4]| Head {
        t,
        s,
        d,
        e,
        query: matrix(query, first[0]),
        key: matrix(key, first[1]),
        value: matrix(value, first[2]),
        mask: mask.as_ref().map(|mask| matrix(mask, first[3])),
        causal: *causal,
        scale: C::lit(*scale),
    };
    let inner = walk.inner();
    let run = |start: usize, end: usize| {
        let (mut at, mut outcome) = (start, Ok(()));
        walk.runs(start, end, |first, len| {
            for i in 0..len as isize {
                if outcome.is_ok() {
                    outcome = f(head(std::array::from_fn(|n| first[n] + i * inner[n])), at);
                }
                at += 1;
            }
        });
        outcome
    };
    // With few heads the threads are left to the matrix products.
    if walk.numel() < num_threads() {
        return run(0, walk.numel());
    }
    try_parallel(walk.numel(), 1, |range| run(range.start, range.end))
}

/// An uninitialised buffer for `n` numbers, and its owner.
fn room<C: Real>(op: &'static str, n: usize) -> Result<(Storage, *mut C)> {
    let mut owner = Storage::new(op, Device::Cpu, n * size_of::<C>())?;
    let start = owner.get_mut().unwrap_or(std::ptr::null_mut()).cast::<C>();
    Ok((owner, start))
}

fn forward_as<C: Real>(
    op: &'static str,
    inputs: &AttentionInputs<'_>,
    sums: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (sums, out) = (Ptr::new(sums.first().cast::<C>()), Ptr::new(out.first().cast::<C>()));
    heads::<C>(inputs, |head, at| {
        let Head { t, s, d, e, .. } = head;
        // With few queries there is no room for others: a single query has contiguous scores.
        let width = QUERIES.min(t);
        let (_owner, scores) = room::<C>(op, s * width)?;
        for from in (0..t).step_by(QUERIES) {
            let (count, keys) = (QUERIES.min(t - from), head.keys(t.min(from + QUERIES)));
            let mut factors = [<C as Float>::ZERO; QUERIES];
            // SAFETY: the block is a part of the head, whose elements are inside their storages (L2); the result has
            // `t x e` elements for each head and the sums `t`, which no other thread writes; there are `s` rows of
            // scores, of which `keys` are used.
            unsafe {
                Head::by_key(op, (keys, count, d), head.key, head.query.from(from, 0), (scores, width))?;
                let scores = std::slice::from_raw_parts_mut(scores, keys * width);
                let sums = std::slice::from_raw_parts_mut(sums.get().add(at * t + from), count);
                dispatch(Softmax { head: &head, from, scores, width, sums, factors: &mut factors });
                let out = out.get().add((at * t + from) * e);
                let a = Matrix { ptr: scores.as_ptr(), row: 1, col: width as isize };
                let product = Product { m: count, n: e, k: keys, a, b: head.value, out, width: e, start: Start::Zero };
                gemm(op, &product)?;
                let rows = std::slice::from_raw_parts_mut(out, count * e).chunks_exact_mut(e.max(1));
                for (row, &factor) in rows.zip(&factors) {
                    row.iter_mut().for_each(|x| *x = *x * factor);
                }
            }
        }
        Ok(())
    })
}

fn backward_as<C: Real>(
    op: &'static str,
    inputs: &AttentionInputs<'_>,
    sums: View<'_>,
    out: View<'_>,
    g: View<'_>,
    grads: [Option<&mut ViewMut<'_>>; 3],
) -> Result<()> {
    let [sums, out, g] = [sums, out, g].map(|view| Ptr::new(view.first().cast_mut().cast::<C>()));
    let [for_query, for_key, for_value] = grads.map(|view| view.map(|view| Ptr::new(view.first().cast::<C>())));
    heads::<C>(inputs, |head, at| {
        let Head { t, s, d, e, .. } = head;
        let (_owner, scores) = room::<C>(op, 2 * s * QUERIES)?;
        // SAFETY: as in `forward_as`; each head has its own part of every cotangent, and the second half of the buffer
        // is for dS.
        unsafe {
            let slopes = scores.add(s * QUERIES);
            let own = |all: &Option<Ptr<C>>, len: usize| all.as_ref().map(|all| all.get().add(at * len));
            let (for_key, for_value) = (own(&for_key, s * d), own(&for_value, s * e));
            for (sums, len) in [(for_key, s * d), (for_value, s * e)] {
                sums.into_iter().for_each(|to| std::slice::from_raw_parts_mut(to, len).fill(<C as Float>::ZERO));
            }
            for from in (0..t).step_by(QUERIES) {
                let (count, keys) = (QUERIES.min(t - from), head.keys(t.min(from + QUERIES)));
                let row = at * t + from;
                let (query, g_rows) = (head.query.from(from, 0), g.get().add(row * e).cast_const());
                let g = Matrix { ptr: g_rows, row: e as isize, col: 1 };
                Head::by_key(op, (keys, count, d), head.key, query, (scores, QUERIES))?;
                Head::by_key(op, (keys, count, e), head.value, g, (slopes, QUERIES))?;
                dispatch(Slopes {
                    head: &head,
                    from,
                    scores: std::slice::from_raw_parts_mut(scores, keys * QUERIES),
                    slopes: std::slice::from_raw_parts_mut(slopes, keys * QUERIES),
                    sums: std::slice::from_raw_parts(sums.get().add(row), count),
                    out: std::slice::from_raw_parts(out.get().add(row * e), count * e),
                    g: std::slice::from_raw_parts(g_rows, count * e),
                });
                let wide = |ptr: *mut C| Matrix { ptr: ptr.cast_const(), row: QUERIES as isize, col: 1 };
                let high = Matrix { ptr: slopes.cast_const(), row: 1, col: QUERIES as isize };
                let onto =
                    |a, b, out, width| Product { m: keys, n: width, k: count, a, b, out, width, start: Start::Out };
                if let Some(to) = for_value {
                    gemm(op, &onto(wide(scores), g, to, e))?;
                }
                if let Some(to) = for_key {
                    gemm(op, &onto(wide(slopes), query, to, d))?;
                }
                if let Some(all) = &for_query {
                    let (out, start) = (all.get().add(row * d), Start::Zero);
                    gemm(op, &Product { m: count, n: d, k: keys, a: high, b: head.key, out, width: d, start })?;
                }
            }
        }
        Ok(())
    })
}

/// Scales and masks the scores of one key with the queries from `from` on.
#[inline(always)]
fn finish_scores<C: Real>(head: &Head<C>, from: usize, key: usize, scores: &mut [C]) {
    scores.iter_mut().for_each(|x| *x = *x * head.scale);
    if let Some(mask) = &head.mask {
        for (i, x) in scores.iter_mut().enumerate() {
            // SAFETY: query `from + i` and the key are inside the mask, whose positions are in its storage (L2).
            *x = *x + unsafe { mask.at(from + i, key).read() };
        }
    }
    if head.causal && key > from {
        let hidden = (key - from).min(scores.len());
        scores[..hidden].fill(C::LOWEST);
    }
}

/// Turns scores into weights, up to a factor for each query.
struct Softmax<'a, C> {
    head: &'a Head<C>,
    from: usize,
    scores: &'a mut [C],
    width: usize,
    sums: &'a mut [C],
    factors: &'a mut [C; QUERIES],
}

impl<C: Real> Job for Softmax<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Softmax { head, from, scores, width, sums, factors } = self;
        let count = sums.len();
        let (mut most, mut total) = ([C::LOWEST; QUERIES], [<C as Float>::ZERO; QUERIES]);
        for (key, row) in scores.chunks_exact_mut(width).enumerate() {
            finish_scores(head, from, key, &mut row[..count]);
            for (most, &x) in zip(&mut most[..count], &row[..count]) {
                // Keeps NaN, which compares false.
                *most = if x <= *most { *most } else { x };
            }
        }
        // A query without visible keys gets zeros: all its scores are minus infinity, and 0 is subtracted.
        let shift = most.map(|most| if most == C::LOWEST { <C as Float>::ZERO } else { most });
        if width == 1 {
            // The scores of one query are contiguous: exponentials of several keys at a time.
            scores.iter_mut().for_each(|x| *x = (*x - shift[0]).exp_nonpositive::<FMA>());
            total[0] = crate::backend::cpu::nn::fused::sum_by([&*scores], |[x]| x);
        } else {
            for row in scores.chunks_exact_mut(width) {
                for ((x, &shift), total) in zip(zip(&mut row[..count], &shift[..count]), &mut total[..count]) {
                    *x = (*x - shift).exp_nonpositive::<FMA>();
                    *total = *total + *x;
                }
            }
        }
        for (i, sum) in sums.iter_mut().enumerate() {
            let seen = total[i] != <C as Float>::ZERO;
            factors[i] = if seen { C::lit(1.0) / total[i] } else { <C as Float>::ZERO };
            // For the backward pass: with an LSE of plus infinity the weights are 0.
            *sum = if seen { shift[i] + total[i].ln() } else { C::lit(f64::INFINITY) };
        }
    }
}

/// Turns scores into weights, and dP into dS of the unscaled scores.
struct Slopes<'a, C> {
    head: &'a Head<C>,
    from: usize,
    scores: &'a mut [C],
    slopes: &'a mut [C],
    sums: &'a [C],
    out: &'a [C],
    g: &'a [C],
}

impl<C: Real> Job for Slopes<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Slopes { head, from, scores, slopes, sums, out, g } = self;
        let count = sums.len();
        // Σ P · dP of a row equals Σ O · dO.
        let mut means = [<C as Float>::ZERO; QUERIES];
        let rows = out.chunks_exact(head.e.max(1)).zip(g.chunks_exact(head.e.max(1)));
        for (mean, (out, g)) in means.iter_mut().zip(rows) {
            *mean = crate::backend::cpu::nn::fused::sum_by([out, g], |[out, g]| out * g);
        }
        let (means, sums) = (&means[..count], &sums[..count]);
        for (key, (row, slopes)) in scores.chunks_exact_mut(QUERIES).zip(slopes.chunks_exact_mut(QUERIES)).enumerate() {
            finish_scores(head, from, key, &mut row[..count]);
            for (((x, slope), &sum), &mean) in zip(zip(zip(&mut row[..count], &mut slopes[..count]), sums), means) {
                *x = (*x - sum).exp_nonpositive::<FMA>();
                *slope = *x * (*slope - mean) * head.scale;
            }
        }
    }
}
