//! Random shapes, strides and chains of views against a simple reference that works index by index.

use cotangent::{DType, ErrorKind, Result, Tensor, arguments::Slice};
use proptest::prelude::*;

/// The reference: a shape and every element in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Plain {
    fn new(shape: &[usize], f: impl Fn(&[usize]) -> f64) -> Plain {
        let data = indices(shape).iter().map(|index| f(index)).collect();
        Plain { shape: shape.to_vec(), data }
    }

    fn at(&self, index: &[usize]) -> f64 {
        let flat = index.iter().zip(&self.shape).fold(0, |flat, (i, size)| flat * size + i);
        self.data[flat]
    }
}

/// All indices of a shape in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &size in shape {
        all = all.into_iter().flat_map(|index| (0..size).map(move |i| [index.clone(), vec![i]].concat())).collect();
    }
    all
}

/// A view to take, with numbers that are reduced to the valid range when the shape is known.
#[derive(Clone, Debug)]
enum View {
    Transpose(usize, usize),
    Slice(usize, Option<isize>, Option<isize>, isize),
    Select(usize, usize),
    Unsqueeze(usize),
    Expand(usize),
    Flip(usize),
    Reshape(usize),
}

fn view() -> impl Strategy<Value = View> {
    let bound = || prop::option::of(-7_isize..7);
    prop_oneof![
        (0_usize..4, 0_usize..4).prop_map(|(a, b)| View::Transpose(a, b)),
        (0_usize..4, bound(), bound(), prop_oneof![-3_isize..=-1, 1_isize..=3])
            .prop_map(|(d, s, e, k)| View::Slice(d, s, e, k)),
        (0_usize..4, 0_usize..6).prop_map(|(d, i)| View::Select(d, i)),
        (0_usize..4).prop_map(View::Unsqueeze),
        (1_usize..4).prop_map(View::Expand),
        (0_usize..4).prop_map(View::Flip),
        (0_usize..8).prop_map(View::Reshape),
    ]
}

/// Python's slice, position by position.
fn positions(size: usize, start: Option<isize>, end: Option<isize>, step: isize) -> Vec<usize> {
    let n = size as isize;
    let wrap = |i: isize| if i < 0 { i + n } else { i };
    let mut at = start.map_or(if step > 0 { 0 } else { n - 1 }, wrap);
    at = if step > 0 { at.clamp(0, n) } else { at.clamp(-1, n - 1) };
    let stop = end.map_or(if step > 0 { n } else { -1 }, |e| {
        if step > 0 { wrap(e).clamp(0, n) } else { wrap(e).clamp(-1, n - 1) }
    });
    let mut all = Vec::new();
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        all.push(at as usize);
        at += step;
    }
    all
}

/// Takes the view of both.
fn take(view: &View, tensor: &Tensor, plain: &Plain) -> Result<(Tensor, Plain)> {
    let (rank, shape) = (plain.shape.len(), &plain.shape);
    let replaced = |dim: usize, index: &[usize], to: usize| {
        let mut index = index.to_vec();
        index[dim] = to;
        index
    };
    Ok(match *view {
        View::Transpose(a, b) if rank > 0 => {
            let (a, b) = (a % rank, b % rank);
            let mut swapped = shape.clone();
            swapped.swap(a, b);
            let result = Plain::new(&swapped, |index| {
                let mut index = index.to_vec();
                index.swap(a, b);
                plain.at(&index)
            });
            // The second dimension is counted from the end, to test that, too.
            (tensor.transpose(a as isize, b as isize - rank as isize)?, result)
        }
        View::Slice(dim, start, end, step) if rank > 0 => {
            let dim = dim % rank;
            let kept = positions(shape[dim], start, end, step);
            let mut sliced = shape.clone();
            sliced[dim] = kept.len();
            let result = Plain::new(&sliced, |index| plain.at(&replaced(dim, index, kept[index[dim]])));
            (tensor.slice(dim as isize, Slice::new(start, end).step(step))?, result)
        }
        View::Select(dim, at) if rank > 0 && shape[dim % rank] > 0 => {
            let dim = dim % rank;
            let at = at % shape[dim];
            let mut rest = shape.clone();
            rest.remove(dim);
            let result = Plain::new(&rest, |index| {
                let mut index = index.to_vec();
                index.insert(dim, at);
                plain.at(&index)
            });
            (tensor.select(dim as isize, at as isize - shape[dim] as isize)?, result)
        }
        View::Unsqueeze(dim) if rank < 4 => {
            let dim = dim % (rank + 1);
            let mut longer = shape.clone();
            longer.insert(dim, 1);
            (tensor.unsqueeze(dim as isize)?, Plain { shape: longer, data: plain.data.clone() })
        }
        View::Expand(times) if rank < 4 => {
            // A new leading dimension, and every dimension of size 1 repeated.
            let wide: Vec<usize> =
                std::iter::once(times).chain(shape.iter().map(|&s| if s == 1 { times } else { s })).collect();
            let result = Plain::new(&wide, |index| {
                plain.at(&index[1..].iter().zip(shape).map(|(&i, &s)| if s == 1 { 0 } else { i }).collect::<Vec<_>>())
            });
            (tensor.expand(wide)?, result)
        }
        View::Flip(dim) if rank > 0 => {
            let dim = dim % rank;
            let result = Plain::new(shape, |index| plain.at(&replaced(dim, index, shape[dim] - 1 - index[dim])));
            (tensor.flip(dim)?, result)
        }
        View::Reshape(pick) => {
            let numel = plain.data.len();
            let divisors: Vec<usize> = (1..=numel.max(1)).filter(|d| numel.is_multiple_of(*d)).collect();
            let d = divisors[pick % divisors.len()];
            let result = Plain { shape: vec![d, numel / d], data: plain.data.clone() };
            (tensor.reshape(vec![d, numel / d])?, result)
        }
        _ => (tensor.clone(), plain.clone()),
    })
}

fn start(shape: &[usize]) -> Result<(Tensor, Plain)> {
    let numel: usize = shape.iter().product();
    let data: Vec<f64> = (0..numel).map(|i| i as f64 + 0.5).collect();
    Ok((Tensor::from_vec(data.clone(), shape)?, Plain { shape: shape.to_vec(), data }))
}

fn chain(shape: &[usize], views: &[View]) -> Result<(Tensor, Plain)> {
    views.iter().try_fold(start(shape)?, |(tensor, plain), view| take(view, &tensor, &plain))
}

fn check(tensor: &Tensor, plain: &Plain) -> std::result::Result<(), TestCaseError> {
    prop_assert_eq!(tensor.shape(), &plain.shape[..]);
    prop_assert_eq!(&tensor.to_vec::<f64>().map_err(|e| TestCaseError::fail(e.to_string()))?, &plain.data);
    Ok(())
}

fn ok<T>(result: Result<T>) -> std::result::Result<T, TestCaseError> {
    result.map_err(|e| TestCaseError::fail(e.to_string()))
}

fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..5, 0..4)
}

fn views() -> impl Strategy<Value = Vec<View>> {
    prop::collection::vec(view(), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn views_of_views_show_the_right_elements(shape in shape(), views in views()) {
        let (tensor, plain) = ok(chain(&shape, &views))?;
        check(&tensor, &plain)?;
    }

    #[test]
    fn contiguity_says_whether_memory_order_is_row_major(shape in shape(), views in views()) {
        let (tensor, plain) = ok(chain(&shape, &views))?;
        let mut expected = 1;
        let mut contiguous = true;
        for (&size, &stride) in tensor.shape().iter().zip(tensor.strides()).rev() {
            contiguous &= size == 1 || stride == expected;
            expected *= size as isize;
        }
        prop_assert_eq!(tensor.is_contiguous(), contiguous || plain.data.is_empty());
        check(&ok(tensor.contiguous())?, &plain)?;
    }

    #[test]
    fn arithmetic_on_views_goes_element_by_element(shape in shape(), views in views(), other in views()) {
        let (a, plain_a) = ok(chain(&shape, &views))?;
        let (b, plain_b) = ok(chain(&shape, &other))?;
        let rank = plain_a.shape.len().max(plain_b.shape.len());
        let padded = |s: &[usize]| [vec![1; rank - s.len()], s.to_vec()].concat();
        let (sa, sb) = (padded(&plain_a.shape), padded(&plain_b.shape));
        let fits = sa.iter().zip(&sb).all(|(&x, &y)| x == y || x == 1 || y == 1);
        let sum = a.add(&b);
        prop_assert_eq!(sum.is_ok(), fits);
        if let Ok(sum) = sum {
            let joint: Vec<usize> = sa.iter().zip(&sb).map(|(&x, &y)| if x == 1 { y } else { x }).collect();
            let part = |index: &[usize], shape: &[usize], plain: &Plain| {
                let own: Vec<usize> = index.iter().zip(shape).map(|(&i, &s)| if s == 1 { 0 } else { i }).collect();
                plain.at(&own[rank - plain.shape.len()..])
            };
            check(&sum, &Plain::new(&joint, |index| part(index, &sa, &plain_a) + part(index, &sb, &plain_b)))?;
        }
    }

    #[test]
    fn reductions_of_views_go_element_by_element(shape in shape(), views in views(), mask in 0_u8..16, keepdim: bool) {
        let (tensor, plain) = ok(chain(&shape, &views))?;
        let reduced: Vec<bool> = (0..plain.shape.len()).map(|d| mask >> (d % 4) & 1 == 1).collect();
        let dims: Vec<isize> = (0..plain.shape.len() as isize).filter(|&d| reduced[d as usize]).collect();
        // An empty list of dimensions means all of them, as in PyTorch.
        let reduced: Vec<bool> = reduced.iter().map(|&r| r || dims.is_empty()).collect();
        let kept: Vec<usize> = plain.shape.iter().zip(&reduced).map(|(&s, &r)| if r { 1 } else { s }).collect();
        let mut sums = Plain::new(&kept, |_| 0.0);
        for index in indices(&plain.shape) {
            let own: Vec<usize> = index.iter().zip(&reduced).map(|(&i, &r)| if r { 0 } else { i }).collect();
            let flat = own.iter().zip(&kept).fold(0, |flat, (i, size)| flat * size + i);
            sums.data[flat] += plain.at(&index);
        }
        if !keepdim {
            sums.shape = plain.shape.iter().zip(&reduced).filter(|&(_, &r)| !r).map(|(&s, _)| s).collect();
        }
        // The elements are halves of small integers, so every order of adding is exact.
        let over = if keepdim { cotangent::keepdim(dims) } else { dims.into() };
        check(&ok(tensor.sum(over))?, &sums)?;
    }

    #[test]
    fn a_changed_view_changes_no_other_tensor(shape in shape(), views in views()) {
        let (base, before) = ok(start(&shape))?;
        let (mut tensor, plain) = ok(views.iter().try_fold((base.clone(), before.clone()), |(t, p), view| take(view, &t, &p)))?;
        let clone = tensor.clone();
        if let Err(error) = tensor.mul_(2.0) {
            // A view of the base cannot be changed in place; a copy can.
            prop_assert!(tensor.shares_memory(&base), "{}", error);
            prop_assert!(error.kind() == ErrorKind::Value && error.to_string().contains("is a view"), "{}", error);
            check(&tensor, &plain)?;
            tensor = ok(tensor.deep_clone())?;
            ok(tensor.mul_(2.0))?;
        } else {
            prop_assert!(!clone.shares_memory(&base) || clone.is_same(&base));
        }
        check(&base, &before)?;
        check(&clone, &plain)?;
        check(&tensor, &Plain { shape: plain.shape.clone(), data: plain.data.iter().map(|x| 2.0 * x).collect() })?;
    }

    #[test]
    fn gradients_of_view_chains_count_each_elements_uses(shape in shape(), views in views()) {
        let (base, before) = ok(start(&shape))?;
        let leaf = ok(base.requires_grad_(true))?;
        let (tensor, plain) = ok(views.iter().try_fold((leaf.clone(), before.clone()), |(t, p), view| take(view, &t, &p)))?;
        // The sum of squares: every use of an element x adds 2x.
        let loss = ok(tensor.mul(&tensor).and_then(|t| t.sum(..)))?;
        ok(loss.backward())?;
        let expected: Vec<f64> = before.data.iter().map(|&x| 2.0 * x * plain.data.iter().filter(|&&y| y == x).count() as f64).collect();
        let grad = leaf.grad();
        prop_assert_eq!(grad.as_ref().map(|g| g.shape().to_vec()), Some(shape.clone()));
        if let Some(grad) = grad {
            prop_assert_eq!(ok(grad.to_vec::<f64>())?, expected);
        }
    }

    #[test]
    fn casts_round_trip_where_the_type_holds_the_value(shape in shape(), views in views()) {
        let (tensor, plain) = ok(chain(&shape, &views))?;
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            check(&ok(tensor.to_dtype(dtype).and_then(|t| t.to_dtype(DType::F64)))?, &plain)?;
        }
        let floors = Plain { shape: plain.shape.clone(), data: plain.data.iter().map(|x| x.floor()).collect() };
        for dtype in [DType::I64, DType::I16, DType::U8, DType::U64] {
            check(&ok(tensor.to_dtype(dtype).and_then(|t| t.to_dtype(DType::F64)))?, &floors)?;
        }
    }
}
