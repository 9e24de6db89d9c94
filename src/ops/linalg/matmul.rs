//! Matrix products.

use crate::autograd::{BackwardContext, Grads};
use crate::error::bail;
use crate::layout::{Layout, broadcast, check_shape};
use crate::ops::elementwise::call::common_dtype;
use crate::ops::linalg::precision::{MatmulPrecision, matmul_precision, with_matmul_precision};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::tensor::batch::innermost;
use crate::{DType, Device, Error, Result, Shape, Tensor, backend};
use smallvec::{SmallVec, smallvec};

/// # Matrix products
#[ops]
impl Tensor {
    /// The matrix product of the last two dimensions. Leading dimensions broadcast. A vector on the left is a row, on
    /// the right a column, and its dimension is removed from the result.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let a = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(a.matmul(&tensor!([10.0, 1.0])?)?.to_vec::<f32>()?, [12.0, 34.0]);
    /// assert_eq!(a.matmul(&a)?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the inner sizes differ, the batch dimensions do not broadcast, a tensor is 0-dimensional, or the elements are
    /// bools or have no common type.
    #[doc(alias = "mm")]
    #[doc(alias = "bmm")]
    #[doc(alias = "mv")]
    #[doc(alias = "dot")]
    #[doc(alias = "__matmul__")]
    #[op(autocast = lower, samples = matmul_samples, errors = matmul_errors, aliases = ["__matmul__"])]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.shape(), other.shape());
        if a.is_empty() || b.is_empty() {
            bail!(Shape, "matmul", "cannot multiply {a:?} by {b:?}: both must have at least 1 dimension");
        }
        let (inner_a, inner_b) = (a[a.len() - 1], b[b.len().saturating_sub(2)]);
        if inner_a != inner_b {
            bail!(Shape, "matmul", "cannot multiply {a:?} by {b:?}: inner sizes {inner_a} and {inner_b} differ");
        }
        match (a.len(), b.len()) {
            (1, 1) => matrices(&self.unsqueeze(0)?, &other.unsqueeze(1)?)?.reshape(()),
            (1, _) => matrices(&self.unsqueeze(0)?, other)?.squeeze(-2),
            (_, 1) => matrices(self, &other.unsqueeze(1)?)?.squeeze(-1),
            _ => matrices(self, other),
        }
    }

    /// `self · weightᵀ + bias`, with a weight of shape `[out, in]` and a bias of shape `[out]`: the last dimension
    /// changes from size `in` to `out`. With a weight of shape `[in]` and a bias of shape `[]`, it is removed.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let weight = tensor!([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])?;
    /// let y = tensor!([1.0, 10.0])?.linear(&weight, Some(&tensor!([0.0, 0.5, 0.0])?))?;
    /// assert_eq!(y.to_vec::<f32>()?, [21.0, 43.5, 65.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit each other, or the elements are bools or have no common type.
    #[op(autocast = lower, samples = linear_samples, errors = linear_errors)]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        if weight.rank() == 1
            && self.shape().last() == weight.shape().last()
            && bias.is_none_or(|bias| bias.rank() == 0)
        {
            let bias = bias.map(|bias| bias.unsqueeze(0)).transpose()?;
            return self.linear(&weight.unsqueeze(0)?, bias.as_ref())?.squeeze(-1);
        }
        let fits = match (self.shape(), weight.shape(), bias.map(Tensor::shape)) {
            ([.., size], &[_, inner], None) => *size == inner,
            ([.., size], &[out, inner], Some(bias)) => *size == inner && *bias == [out],
            _ => false,
        };
        if !fits {
            let bias = bias.map_or_else(String::new, |bias| format!(", {:?}", bias.shape()));
            let (x, w) = (self.shape(), weight.shape());
            bail!(
                Shape,
                "linear",
                "input, weight and bias must have shapes [.., in], [out, in] and [out], got {x:?}, {w:?}{bias}"
            );
        }
        let dtype = number_dtype("linear", self, weight)?;
        let dtype = bias.map_or(Ok(dtype), |bias| common_dtype("linear", dtype, bias.dtype()))?;
        let batched = self.is_batched() || weight.is_batched() || bias.is_some_and(Tensor::is_batched);
        if dtype.is_complex() || batched {
            let out = self.matmul(&weight.t()?)?;
            return bias.map_or_else(|| Ok(out.clone()), |bias| out.add(bias));
        }
        let (x, weight) = (self.as_dtype(dtype)?, weight.as_dtype(dtype)?);
        let (x, weight) = (&*x, &*weight);
        let bias = bias.map(|bias| bias.as_dtype(dtype)).transpose()?;
        let bias = bias.as_deref();
        let out = product("linear", x, &weight.detach().t()?, bias)?;
        let inputs = [Some(x), Some(weight), bias];
        let inputs: SmallVec<[&Tensor; 3]> = inputs.into_iter().flatten().collect();
        out.record("linear", &inputs, |save| {
            let (kept_x, kept_weight, biased) = (save.save_for(1, x), save.save_for(0, weight), bias.is_some());
            let precision = matmul_precision();
            move |ctx: &BackwardContext, g: &Tensor| {
                let for_weight = || rows(g)?.t()?.matmul(&rows(kept_x.get()?)?);
                let mut grads: Grads = with_matmul_precision(precision, || {
                    Ok::<_, Error>(smallvec![ctx.want(0, || g.matmul(kept_weight.get()?))?, ctx.want(1, for_weight)?])
                })?;
                if biased {
                    // The engine sums it to the bias's shape.
                    grads.push(Some(g.clone()));
                }
                Ok(grads)
            }
        })
    }
}

/// The product of tensors of at least two dimensions, with its derivative.
#[track_caller]
fn matrices(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let dtype = number_dtype("matmul", a, b)?;
    if dtype.is_complex() {
        return complex_matrices(a, b, dtype.to_real());
    }
    if a.is_batched() || b.is_batched() {
        return matrices_of_examples(a, b);
    }
    let (a, b) = (a.as_dtype(dtype)?, b.as_dtype(dtype)?);
    let (a, b) = (&*a, &*b);
    let one_matrix = b.rank() == 2 && a.rank() > 2;
    product("matmul", a, b, None)?.record("matmul", &[a, b], |save| {
        let (a, b, precision) = (save.save_for(1, a), save.save_for(0, b), matmul_precision());
        move |ctx: &BackwardContext, g: &Tensor| {
            let for_a = || g.matmul(&b.get()?.transpose(-2, -1)?);
            // One matrix for a whole batch: its gradient is one product over all rows, not a sum over the batch.
            let for_b = || match a.get()? {
                a if one_matrix => rows(a)?.t()?.matmul(&rows(g)?),
                a => a.transpose(-2, -1)?.matmul(g),
            };
            with_matmul_precision(precision, || Ok(smallvec![ctx.want(0, for_a)?, ctx.want(1, for_b)?]))
        }
    })
}

/// The products of all examples of a `vmap`, whose dimension comes before all others.
#[cold]
#[track_caller]
fn matrices_of_examples(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let Some(level) = innermost([a, b]) else { return matrices(a, b) };
    let rank = a.rank().max(b.rank());
    let all = |x: &Tensor| -> Result<Tensor> {
        // An operand that has no gradient and is the same for all examples is multiplied as one matrix.
        let shared =
            !x.requires_grad() && x.batch_dims().is_none_or(|dims| dims.iter().all(|dim| dim.level != level.number));
        if shared {
            return Ok(x.clone());
        }
        (x.rank()..rank).try_fold(x.unbatch(level)?, |all, _| all.unsqueeze(1))
    };
    matrices(&all(a)?, &all(b)?)?.batch(level)
}

/// The product of complex operands, from products of their parts, whose dtype is `part`.
#[track_caller]
fn complex_matrices(a: &Tensor, b: &Tensor, part: DType) -> Result<Tensor> {
    let product = |a: &Tensor, b: &Tensor| matrices(&a.to_dtype(part)?, &b.to_dtype(part)?);
    match (a.dtype().is_complex(), b.dtype().is_complex()) {
        (true, false) => a.by_parts(|a| product(a, b)),
        (false, _) => b.by_parts(|b| product(a, b)),
        (true, true) => {
            let ((ar, ai), (br, bi)) = ((a.real()?, a.imag()?), (b.real()?, b.imag()?));
            let re = product(&ar, &br)?.sub(&product(&ai, &bi)?)?;
            re.with_imaginary(&product(&ar, &bi)?.add(&product(&ai, &br)?)?)
        }
    }
}

fn number_dtype(op: &'static str, a: &Tensor, b: &Tensor) -> Result<DType> {
    backend::common_device(op, a.device(), [b.device()])?;
    match common_dtype(op, a.dtype(), b.dtype())? {
        DType::Bool => bail!(DType, op, "operands must be numeric, got bool: cast with to_dtype first"),
        dtype => Ok(dtype),
    }
}

/// Flattens all dimensions but the last.
fn rows(x: &Tensor) -> Result<Tensor> {
    x.reshape(folded(x.layout().shape()))
}

fn folded(shape: &Shape) -> Shape {
    let (columns, lead) = shape.split_last().map_or((1, &[][..]), |(&last, lead)| (last, lead));
    [lead.iter().product(), columns].into()
}

/// `a · b`, plus `bias` in every row, outside the graph. The shapes are `[.., m, k]` and `[.., k, n]`, or `[k]` and
/// `[k, n]`; both have the same dtype.
fn product(op: &'static str, a: &Tensor, b: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    // Half precision is computed in f32 and rounded once, at the end; small integers in i64.
    let (dtype, compute) = (a.dtype(), a.dtype().compute_dtype());
    let on_gpu = a.device() != Device::Cpu;
    // A few rows of half precision are multiplied as they are, wherever the matrix is read in memory order.
    let rows = a.numel() / a.shape().last().copied().unwrap_or(1).max(1);
    let few_halves = !on_gpu && backend::takes_half(dtype, rows, b.layout());
    // The precision of this product, if the device supports it.
    let precision = match (dtype, matmul_precision()) {
        _ if few_halves => MatmulPrecision::Full,
        (DType::BF16, _) | (DType::F32, MatmulPrecision::Bf16) if on_gpu || backend::has_bf16() => {
            MatmulPrecision::Bf16
        }
        (DType::F32, MatmulPrecision::Tf32) => MatmulPrecision::Tf32,
        _ => MatmulPrecision::Full,
    };
    // A GPU takes floats in their own dtype and rounds the sums itself.
    let (operand, compute) = match precision {
        MatmulPrecision::Bf16 if on_gpu => (DType::BF16, dtype),
        _ if on_gpu && dtype.is_float() => (dtype, dtype),
        _ if few_halves => (dtype, compute),
        MatmulPrecision::Bf16 => (dtype, compute),
        _ => (compute, compute),
    };
    let plain = |x: &Tensor| x.detach().to_dtype(operand);
    let (cast_a, cast_b);
    let (mut a, mut b) = (a, b);
    if dtype != operand {
        (cast_a, cast_b) = (plain(a)?, plain(b)?);
        (a, b) = (&cast_a, &cast_b);
    }
    let cast_bias = match bias {
        Some(bias) if bias.dtype() != compute || !bias.is_contiguous() => {
            Some(bias.detach().to_dtype(compute)?.contiguous()?)
        }
        _ => None,
    };
    let bias = cast_bias.as_ref().or(bias);
    let build = |shape: Shape, la: &Layout, lb: &Layout| {
        let (va, vb) = (a.as_view_with(la)?, b.as_view_with(lb)?);
        Tensor::build(op, shape, compute, a.device(), |out| {
            backend::matmul(op, va, vb, out, bias.map(Tensor::as_view).transpose()?, precision)
        })
    };
    let (la, lb) = (a.layout(), b.layout());
    let out = if let (&[m, _], &[_, n]) = (a.shape(), b.shape()) {
        build([m, n].into(), la, lb)?
    } else {
        let (shape, la, lb) = batches(op, la, lb)?;
        build(shape, &la, &lb)?
    };
    if dtype == compute { Ok(out) } else { out.to_dtype(dtype) }
}

/// The shape of a batched product, and the layouts of the operands, broadcast to the common batch.
fn batches(op: &'static str, la: &Layout, lb: &Layout) -> Result<(Shape, Layout, Layout)> {
    let (a, b) = (la.shape(), lb.shape());
    let n = b[b.len() - 1];
    // With one matrix on the right, the rows of the whole batch are rows of one product, if strides allow it.
    if b.len() == 2
        && a.len() != 2
        && let Some(all_rows) = la.reshape(&folded(a))
    {
        return Ok((a[..a.len() - 1].iter().copied().chain([n]).collect(), all_rows, lb.clone()));
    }
    let (lead_a, lead_b) = (&a[..a.len() - 2], &b[..b.len() - 2]);
    let Ok(batch) = broadcast(op, &[&lead_a.into(), &lead_b.into()]) else {
        bail!(Shape, op, "cannot multiply {a:?} by {b:?}: batch sizes {lead_a:?} and {lead_b:?} do not broadcast");
    };
    // Operands that fit into memory can broadcast to a shape that does not.
    let in_batch = |rows: usize, columns: usize| -> Result<Shape> {
        let shape: Shape = batch.iter().copied().chain([rows, columns]).collect();
        check_shape(op, &shape).map(|_| shape)
    };
    let (m, k) = (a[a.len() - 2], a[a.len() - 1]);
    Ok((in_batch(m, n)?, la.broadcast_to(&in_batch(m, k)?), lb.broadcast_to(&in_batch(k, n)?)))
}

fn matmul_samples() -> Result<Vec<Sample>> {
    let shapes: [(&[usize], &[usize]); 17] = [
        (&[3], &[3]),
        (&[3], &[3, 4]),
        (&[2, 3], &[3]),
        (&[2, 3], &[3, 4]),
        (&[1, 1], &[1, 1]),
        (&[9, 17], &[17, 5]),
        (&[2, 3, 4], &[4, 2]),
        (&[2, 2, 3, 4], &[4]),
        (&[4], &[2, 4, 3]),
        (&[2, 3, 4], &[2, 4, 2]),
        (&[2, 1, 2, 3], &[4, 3, 2]),
        (&[2, 3], &[2, 3, 2]),
        (&[0, 3], &[3, 2]),
        (&[2, 0], &[0, 3]),
        (&[0], &[0]),
        (&[0, 2, 3], &[3, 2]),
        (&[2, 2, 0], &[0, 3]),
    ];
    let mut all = Vec::new();
    for (a, b) in shapes {
        let sample = sample![normal(a, 1)?, normal(b, 2)?];
        let inner_is_empty = a[a.len() - 1] == 0;
        all.push(if inner_is_empty { sample.zero_derivative() } else { sample });
    }
    let square = normal([3, 3], 1)?;
    all.push(sample![&square, &square]);
    all.push(sample![normal([2, 3], 1)?, normal([2, 3], 2)?.t()?]);
    Ok(all)
}

fn matmul_errors() -> Result<Vec<ErrorCase>> {
    let zeros = |dtype: DType| Tensor::zeros_with([2, 2], dtype);
    Ok(vec![
        error!["inner sizes", "cannot multiply [2, 3] by [4, 5]: inner sizes 3 and 4 differ";
            sample![normal([2, 3], 1)?, normal([4, 5], 2)?]],
        error!["inner sizes of vectors", "[2]", "[3]", "2 and 3"; sample![normal([2], 1)?, normal([3], 2)?]],
        error!["an operand that cannot be addressed", "[1099511627776, 262144, 1, 1024]", "bytes";
            sample![normal([], 1)?.expand([(1_u64 << 40) as usize, 1, 1, 1 << 10])?, normal([], 2)?.expand([1 << 18, 1 << 10, 1])?]],
        error!["batch sizes", "cannot multiply [2, 2, 3] by [3, 3, 4]: batch sizes [2] and [3] do not broadcast";
            sample![normal([2, 2, 3], 1)?, normal([3, 3, 4], 2)?]],
        error!["a single number", "[]", "[3, 4]"; sample![normal([], 1)?, normal([3, 4], 2)?]],
        error!["bools", "bool"; sample![zeros(DType::Bool)?, zeros(DType::Bool)?]],
        error!["no common type", "u64", "i64"; sample![zeros(DType::U64)?, zeros(DType::I64)?]],
    ])
}

fn linear_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 6] = [&[4, 3], &[3], &[2, 2, 3], &[0, 3], &[2, 1, 2, 3], &[1, 3]];
    let mut all = Vec::new();
    for x in shapes {
        let (x, weight, bias) = (normal(x, 1)?, normal([2, 3], 2)?, normal([2], 3)?);
        all.push(sample![&x, &weight]);
        all.push(sample![x, weight, bias]);
    }
    all.push(sample![normal([2, 3], 1)?, normal([3], 2)?]);
    all.push(sample![normal([2, 2, 3], 1)?, normal([3], 2)?, normal([], 3)?]);
    // An inner size of 0: the result is the bias.
    all.push(sample![normal([2, 0], 1)?, normal([3, 0], 2)?, normal([3], 3)?]);
    Ok(all)
}

fn linear_errors() -> Result<Vec<ErrorCase>> {
    let call = |x: &[usize], weight: &[usize], bias: &[usize]| -> Result<Sample> {
        Ok(sample![normal(x, 1)?, normal(weight, 2)?, normal(bias, 3)?])
    };
    let bools = Tensor::zeros_with([2, 2], DType::Bool)?;
    Ok(vec![
        error!["inner sizes", "[4, 2]", "[5, 3]", "[5]"; call(&[4, 2], &[5, 3], &[5])?],
        error!["the bias", "[4, 3]", "[5, 3]", "[3]"; call(&[4, 3], &[5, 3], &[3])?],
        error!["a bias of two dimensions", "[1, 5]"; call(&[4, 3], &[5, 3], &[1, 5])?],
        error!["a weight of one dimension", "[4, 3]", "[3]"; call(&[4, 3], &[3], &[3])?],
        error!["a single number", "[]"; call(&[], &[5, 3], &[5])?],
        error!["bools", "bool"; sample![&bools, &bools]],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Generator;
    use crate::autograd::{GradOptions, grad, grad_with};
    use half::bf16;

    fn leaf(shape: impl Into<Shape>, seed: u64) -> Result<Tensor> {
        normal(shape, seed)?.requires_grad_(true)
    }

    fn found(grads: Vec<Option<Tensor>>) -> Vec<Tensor> {
        grads.into_iter().flatten().collect()
    }

    #[test]
    fn shapes_follow_the_rules_for_vectors_and_batches() -> Result<()> {
        let shapes: [(&[usize], &[usize], &[usize]); 9] = [
            (&[3], &[3], &[]),
            (&[3], &[3, 4], &[4]),
            (&[2, 3], &[3], &[2]),
            (&[2, 3], &[3, 4], &[2, 4]),
            (&[3], &[5, 3, 4], &[5, 4]),
            (&[5, 2, 3], &[3], &[5, 2]),
            (&[5, 2, 3], &[3, 4], &[5, 2, 4]),
            (&[6, 1, 2, 3], &[5, 3, 4], &[6, 5, 2, 4]),
            (&[0, 2, 3], &[1, 3, 4], &[0, 2, 4]),
        ];
        for (a, b, want) in shapes {
            assert_eq!(normal(a, 1)?.matmul(&normal(b, 2)?)?.shape(), want, "{a:?} by {b:?}");
        }
        Ok(())
    }

    /// The gradients, compared with explicit sums.
    #[test]
    fn a_weight_under_a_batch_gets_the_sum_over_all_rows() -> Result<()> {
        for transposed in [false, true] {
            let x = if transposed { normal([2, 5, 4, 3], 1)?.permute([0, 2, 1, 3])? } else { normal([2, 4, 5, 3], 1)? };
            let (x, w) = (x.requires_grad_(true)?, leaf([3, 6], 2)?);
            let y = x.matmul(&w)?;
            assert_eq!(y.grad_fn(), Some("matmul"));
            let g = normal([2, 4, 5, 6], 3)?;
            let grads = found(grad_with(&y, &[&x, &w], &g)?);
            let (xs, ws, gs) = (x.to_vec::<f64>()?, w.to_vec::<f64>()?, g.to_vec::<f64>()?);
            for (at, got) in grads[0].to_vec::<f64>()?.iter().enumerate() {
                let (row, i) = (at / 3, at % 3);
                let want: f64 = (0..6).map(|j| gs[row * 6 + j] * ws[i * 6 + j]).sum();
                assert!((got - want).abs() < 1e-12, "x {at}: {got}, not {want}");
            }
            // Bit for bit one product: a sum of eight products would round differently.
            assert!(grads[1].equal(&rows(&x)?.t()?.matmul(&rows(&g)?)?.detach())?);
            for (at, got) in grads[1].to_vec::<f64>()?.iter().enumerate() {
                let (i, j) = (at / 6, at % 6);
                let want: f64 = (0..40).map(|row| xs[row * 3 + i] * gs[row * 6 + j]).sum();
                assert!((got - want).abs() < 1e-12, "w {at}: {got}, not {want}");
            }
        }
        Ok(())
    }

    #[test]
    fn linear_is_the_product_with_the_transpose_plus_the_bias() -> Result<()> {
        for shape in [&[4, 3][..], &[3], &[2, 5, 3], &[0, 3]] {
            let (x, w, b) = (leaf(shape, 1)?, leaf([6, 3], 2)?, leaf([6], 3)?);
            let (y, plain) = (x.linear(&w, Some(&b))?, x.matmul(&w.t()?)?.add(&b)?);
            assert_eq!(y.grad_fn(), Some("linear"));
            assert!(y.allclose_with(&plain, (1e-14, 1e-14))?, "{y} is not {plain}");
            let g = normal(y.shape(), 4)?;
            let grads = found(grad_with(&y, &[&x, &w, &b], &g)?);
            let wanted = found(grad_with(&plain, &[&x, &w, &b], &g)?);
            assert_eq!((grads.len(), wanted.len()), (3, 3));
            for (got, want) in grads.iter().zip(&wanted) {
                assert!(got.allclose_with(want, (1e-13, 1e-13))?, "{got} is not {want}");
            }
        }
        Ok(())
    }

    #[test]
    fn only_what_a_gradient_needs_is_saved() -> Result<()> {
        let tape = crate::autograd::Tape::new();
        let (x, w) = (normal([4, 3], 1)?, tape.variable(&normal([6, 3], 2)?)?);
        let before = tape.saved_bytes();
        x.linear(&w, None)?;
        assert_eq!(tape.saved_bytes() - before, 4 * 3 * 8, "the input alone, for the weight");
        let before = tape.saved_bytes();
        w.matmul(&x.t()?)?;
        assert_eq!(tape.saved_bytes() - before, 4 * 3 * 8, "the right side alone, for the left");
        Ok(())
    }

    #[test]
    fn half_precision_is_summed_in_f32_and_rounded_once() -> Result<()> {
        // 256 + 1 + 1 + ... stays 256 in bf16, whose next number is 258.
        let mut row = vec![bf16::from_f32(256.0)];
        row.resize(17, bf16::ONE);
        let (a, ones) = (Tensor::from_vec(row, [1, 17])?, Tensor::ones_with([17, 1], DType::BF16)?);
        assert_eq!(a.matmul(&ones)?.to_vec::<bf16>()?, [bf16::from_f32(272.0)]);
        let bias = Tensor::from_vec(vec![bf16::ONE], [1])?;
        assert_eq!(a.linear(&ones.t()?, Some(&bias))?.to_vec::<bf16>()?, [bf16::from_f32(272.0)], "273 rounds to even");
        let wide = a.matmul(&Tensor::ones([17, 1])?)?;
        assert_eq!((wide.dtype(), wide.item::<f32>()?), (DType::F32, 272.0));
        Ok(())
    }

    /// Where the CPU has no unit for bf16 all of this holds trivially.
    #[test]
    fn in_bf16_operands_are_rounded_and_sums_are_not() -> Result<()> {
        let (x, w) = (Generator::seed(1).randn([5, 70, 40])?, Generator::seed(2).randn([90, 40])?);
        let (x, w) = (x.requires_grad_(true)?, w.requires_grad_(true)?);
        let bias = Generator::seed(3).randn([90])?;
        let y = with_matmul_precision(MatmulPrecision::Bf16, || x.linear(&w, Some(&bias)))?;
        assert_eq!(y.dtype(), DType::F32);
        let rounded = |t: &Tensor| t.detach().to_dtype(DType::BF16)?.to_dtype(DType::F32);
        let exact = backend::has_bf16();
        let (want, tolerance) = match exact {
            true => (rounded(&x)?.linear(&rounded(&w)?, Some(&bias))?, 1e-5),
            false => (x.linear(&w, Some(&bias))?, 0.0),
        };
        assert!(y.allclose_with(&want, (tolerance, tolerance))?);
        // The backward pass runs outside of the scope, but with the same precision.
        let g = Generator::seed(4).randn(y.shape())?;
        let grads = found(grad_with(&y, &[&x, &w], &g)?);
        if exact {
            let (g, x, w) = (rounded(&g)?, rounded(&x)?, rounded(&w)?);
            assert!(grads[0].allclose_with(&g.matmul(&w)?, (1e-4, 1e-4))?);
            assert!(grads[1].allclose_with(&rows(&g)?.t()?.matmul(&rows(&x)?)?, (1e-4, 1e-3))?);
            assert!(!grads[1].allclose_with(&rows(&g)?.t()?.matmul(&rows(&x)?)?.mul(1.001)?, (1e-5, 1e-5))?);
        }
        assert_eq!(matmul_precision(), MatmulPrecision::Full);
        Ok(())
    }

    #[test]
    fn integers_wrap_in_their_own_width() -> Result<()> {
        let a = Tensor::from_slice(&[100_u8, 100, 100], [1, 3])?;
        assert_eq!(a.matmul(&a.t()?)?.to_vec::<u8>()?, [(30_000 % 256) as u8]);
        let big = Tensor::from_slice(&[i64::MAX, 1], [1, 2])?;
        let two = Tensor::from_slice(&[2_i64, 3], [2])?;
        assert_eq!(big.matmul(&two)?.to_vec::<i64>()?, [i64::MAX.wrapping_mul(2).wrapping_add(3)]);
        Ok(())
    }

    #[test]
    fn second_derivatives_are_recorded() -> Result<()> {
        let (x, w) = (leaf([2, 2, 3], 1)?, leaf([4, 3], 2)?);
        let y = x.linear(&w, None)?.square()?.sum(..)?;
        let first = found(grad_with(&y, &[&w], GradOptions::new().create_graph(true))?);
        let second = found(grad(&first[0].sum(..)?, &[&x, &w])?);
        // Of 2 (W xᵀ) x, summed: row i of the weight's part is 2 Σ x · (Σ x).
        let (xs, ws) = (x.to_vec::<f64>()?, w.to_vec::<f64>()?);
        for (at, got) in second[1].to_vec::<f64>()?.iter().enumerate() {
            let j = at % 3;
            let want: f64 = xs.chunks(3).map(|row| 2.0 * row[j] * row.iter().sum::<f64>()).sum();
            assert!((got - want).abs() < 1e-12, "{at}: {got}, not {want}");
        }
        let columns: Vec<f64> = (0..3).map(|j| ws.iter().skip(j).step_by(3).sum()).collect();
        for (at, got) in second[0].to_vec::<f64>()?.iter().enumerate() {
            let row = &xs[at / 3 * 3..][..3];
            let output: f64 = row.iter().zip(&columns).map(|(x, w)| x * w).sum();
            let want = 2.0 * (columns[at % 3] * row.iter().sum::<f64>() + output);
            assert!((got - want).abs() < 1e-12, "{at}: {got}, not {want}");
        }
        Ok(())
    }

    #[test]
    fn refusals_name_the_values() -> Result<()> {
        for op in OPS {
            for case in op.error_cases()? {
                let outcome = case.call.bind(op).and_then(|args| op.call(&args));
                let message = outcome.map_or_else(|e| e.to_string(), |y| format!("not refused: {y:?}"));
                let named = message.contains(op.name) && case.message.iter().all(|part| message.contains(part));
                assert!(named, "{case:?}: {message}");
            }
        }
        Ok(())
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() -> Result<()> {
        let x = Generator::seed(1).randn([8, 40, 300])?.requires_grad_(true)?;
        let w = Generator::seed(2).randn([200, 300])?.requires_grad_(true)?;
        let b = Generator::seed(3).randn([200])?;
        let run = |threads: usize| -> Result<Vec<Tensor>> {
            crate::backend::with_num_threads(threads, || {
                let y = x.linear(&w, Some(&b))?;
                let mut all = found(grad_with(&y, &[&x, &w], &y.detach())?);
                all.push(y);
                Ok(all)
            })?
        };
        let one = run(1)?;
        for threads in [2, 5] {
            for (a, b) in run(threads)?.iter().zip(&one) {
                assert!(a.equal(b)?, "{threads} threads");
            }
        }
        Ok(())
    }
}
