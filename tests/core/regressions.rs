//! Regressions: crashes, hangs and wrong results that were found once.

use cotangent::autograd::{self, GradOptions, grad, grad_with};
use cotangent::{
    Complex, DType, Element, Error, ErrorKind, Scalar, Tensor, keepdim, options::Rounding, s, special, tensor,
};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Result<T = ()> = cotangent::Result<T>;

fn refused<T>(result: Result<T>) -> Error {
    let done = Error::new(ErrorKind::Value, "nothing", "it was not refused");
    result.err().unwrap_or(done)
}

fn says<T>(result: Result<T>, op: &str, parts: &[&str]) {
    let error = refused(result);
    assert_eq!(error.op(), op, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    assert!(error.location().is_some_and(|location| location.file().ends_with("regressions.rs")), "{error:?}");
}

/// More elements than fit into any memory.
fn absurd() -> Result<Tensor> {
    Tensor::ones([1])?.expand([1_usize << 42])
}

#[test]
fn a_change_of_a_view_that_nobody_would_see_is_refused() -> Result {
    let mut y = Tensor::ones([3])?;
    says(y.slice(0, 0..1)?.fill_(0), "fill_", &["view"]);
    y.set(s![0..1], 0)?;
    assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 1.0]);
    Ok(())
}

#[test]
fn numbers_mean_the_same_on_both_sides_of_an_operator() -> Result {
    let bytes = tensor!([3_u8])?;
    assert_eq!((1.0 - &bytes).to_vec::<f32>()?, [-2.0]);
    assert_eq!((1.0 - &bytes).dtype(), Scalar::F64(1.0).minus(&bytes)?.dtype());
    says(
        (|| -> Result<Tensor> { Tensor::zeros_with([2], DType::Bool)?.sub(Tensor::zeros_with([2], DType::Bool)?) })(),
        "sub",
        &["bool"],
    );
    Ok(())
}

/// `number - x` by the method, to compare the operator with.
trait Minus {
    fn minus(self, x: &Tensor) -> Result<Tensor>;
}

impl Minus for Scalar {
    fn minus(self, x: &Tensor) -> Result<Tensor> {
        let dtype = if matches!(self, Scalar::F64(_)) { DType::F32 } else { DType::I64 };
        Tensor::full_with((), self, dtype)?.sub(x)
    }
}

#[test]
fn integers_stay_integers() -> Result {
    let big = (1_i64 << 24) + 1;
    let x = tensor!([big])?;
    assert_eq!(x.clamp(0, i64::MAX)?.to_vec::<i64>()?, [big]);
    says(tensor!([2_i64])?.pow(-1), "pow", &["-1"]);
    assert_eq!(Tensor::new([0.1_f64])?.dtype(), DType::F64);
    assert_eq!(Tensor::from_vec(vec![0.1_f64], [1])?.dtype(), DType::F64);
    Ok(())
}

fn deep_graph(x: &Tensor) -> Result<Tensor> {
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = y.mul(1.0)?;
    }
    Ok(y)
}

thread_local! {
    static KEPT: RefCell<Option<Tensor>> = const { RefCell::new(None) };
}

#[test]
fn a_deep_graph_may_die_with_its_thread() -> Result {
    let dropped = std::thread::Builder::new().stack_size(1 << 20).spawn(|| -> Result {
        // Used first, so that it is dropped last.
        KEPT.with_borrow_mut(Option::take);
        let x = tensor!([1.0])?.requires_grad_(true)?;
        let y = deep_graph(&x)?;
        KEPT.with_borrow_mut(|kept| *kept = Some(y));
        Ok(())
    });
    let joined = dropped.map(std::thread::JoinHandle::join);
    assert!(matches!(joined, Ok(Ok(Ok(())))));
    Ok(())
}

#[test]
fn numbers_of_parts_are_checked_before_memory_is_asked_for() -> Result {
    let x = tensor!([1.0, 2.0])?;
    assert_eq!(x.chunk(usize::MAX, 0)?.len(), 2);
    assert_eq!(x.chunk(1 << 42, 0)?.len(), 2);
    says(absurd()?.unbind(0), "unbind", &["out of memory"]);
    says(absurd()?.split(1, 0), "split", &["out of memory"]);
    says(autograd::jacobian(|x| x.expand([1_usize << 42]), &x.narrow(0, 0, 1)?), "jacobian", &[]);
    let x = x.requires_grad_(true)?;
    let wide = x.as_strided([1_usize << 42], &[0], 0)?;
    says(wide.backward_with(&absurd()?), "backward", &[]);
    Ok(())
}

#[test]
fn sizes_are_checked_where_a_shape_comes_into_being() -> Result {
    let (a, b) = (Tensor::ones([1])?.expand([1 << 16, 1])?, Tensor::ones([1])?.expand([1, (1_usize << 48) + 1])?);
    says(a.add(&b), "add", &["65536"]);
    says(Tensor::ones([1])?.expand([1_usize << 62]), "expand", &["4611686018427387904"]);
    let most = Tensor::ones([1])?.expand([1_usize << 58])?;
    assert!(most.neg().and_then(|y| y.compute()).is_err());
    says(Tensor::ones([1])?.expand([1_usize << 40, 1 << 40]), "expand", &["1099511627776"]);
    Ok(())
}

#[test]
fn absurd_shapes_are_refused_by_reductions_and_products() -> Result {
    let rows = Tensor::ones([1, 1])?.expand([1_usize << 40, 2])?;
    says(rows.sum(1), "sum", &[]);
    says(rows.max(1), "max", &[]);
    says(rows.var(1), "var", &[]);
    says(rows.softmax(1), "softmax", &[]);
    says(rows.argmax(1), "argmax", &[]);
    says(rows.prod(1), "prod", &[]);
    says(rows.logsumexp(1), "logsumexp", &[]);
    says(rows.cumsum(1), "cumsum", &[]);
    says(rows.sort(1), "sort", &[]);
    says(rows.matmul(&Tensor::ones([2, 3])?), "matmul", &[]);
    let targets = Tensor::zeros_with([1], DType::I64)?.expand([1_usize << 40])?;
    says(rows.cross_entropy_with(&targets, cotangent::Reduction::None), "cross_entropy", &[]);
    says(rows.sum(usize::MAX), "sum", &["out of range for rank 2"]);
    Ok(())
}

#[test]
fn pools_of_no_planes_look_at_none_of_their_windows() -> Result {
    let none = Tensor::zeros([0, 2, 5, 7])?;
    assert_eq!(none.adaptive_avg_pool2d([1, 1_isize << 40])?.shape(), [0, 2, 1, 1 << 40]);
    assert_eq!(none.adaptive_max_pool2d([1, 1_isize << 40])?.shape(), [0, 2, 1, 1 << 40]);
    Ok(())
}

#[test]
fn a_failed_pass_says_so_and_leaves_the_gradients() -> Result {
    let (x, w) = (tensor!([1.0, 2.0])?.requires_grad_(true)?, tensor!([3.0, 4.0])?.requires_grad_(true)?);
    let middle = x.mul(&w)?;
    let broken = middle.register_hook(|_| Err(Error::new(ErrorKind::Value, "my_hook", "no luck")))?;
    let y = middle.square()?.sum(..)?;
    says(y.backward(), "backward", &["my_hook", "no luck"]);
    assert!(x.grad().is_none() && w.grad().is_none());
    broken.remove();
    // The failed pass had freed part of the graph: the message must name that pass.
    match y.backward() {
        Ok(()) => assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![18.0, 64.0])),
        Err(error) => assert!(error.to_string().contains("failed"), "{error}"),
    }
    Ok(())
}

#[test]
fn debug_says_what_display_does_and_where() -> Result {
    let error = refused(tensor!([1_i64])?.mean(..));
    let text = format!("{error:?}");
    assert!(text.starts_with(&error.to_string()) && text.contains("regressions.rs:"), "{text}");
    Ok(())
}

#[test]
fn errors_bear_the_name_that_was_called() -> Result {
    let x = Tensor::ones([2, 3])?;
    says(Tensor::eye(1 << 40), "eye", &["1099511627776"]);
    says(Tensor::from_vec(vec![1.0_f32], [2]), "from_vec", &["[2]"]);
    says(x.to_vec::<i64>(), "to_vec", &["f32", "i64"]);
    says(absurd()?.to_vec::<f32>(), "to_vec", &[]);
    says(x.unsqueeze(4), "unsqueeze", &["got 4", "[2, 3]"]);
    says(x.gather(1, &tensor!([[0, 2], [1, 7]])?), "gather", &["7", "[1, 1]"]);
    let y = x.requires_grad_(true)?.exp()?.sum(..)?;
    y.backward()?;
    says(y.backward(), "backward", &["BackwardOptions::new().retain_graph(true)"]);
    let mut model = cotangent::nn::Linear::new(2, 2)?;
    says(cotangent::nn::Module::to_dtype(&mut model, DType::I64), "to_dtype", &["i64"]);
    Ok(())
}

#[test]
fn forms_that_pytorch_takes() -> Result {
    let x = tensor!(2.0)?;
    assert_eq!(x.transpose(0, -1)?.item::<f64>()?, 2.0);
    assert_eq!(x.index_select(0, &tensor!([0])?)?.item::<f64>()?, 2.0);
    assert_eq!(Tensor::cat(&[Tensor::zeros([0])?, Tensor::ones([2, 3])?], 0)?.shape(), [2, 3]);
    assert_eq!(tensor!([7, -7])?.div_with(2, Rounding::Floor)?.to_vec::<i64>()?, [3, -4]);
    assert_eq!(Tensor::eye_with(2, cotangent::options::EyeOptions::new().m(3).dtype(DType::I64))?.shape(), [2, 3]);
    assert_eq!(Tensor::arange_with(0, 3, DType::F64)?.dtype(), DType::F64);
    assert_eq!(Tensor::linspace_with(0.0, 1.0, 3, DType::F64)?.dtype(), DType::F64);
    Ok(())
}

/// Runs a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn removing_a_hook_may_remove_another() -> Result {
    let done = std::thread::spawn(|| -> Result {
        let x = tensor!([1.0])?.requires_grad_(true)?;
        let inner = Mutex::new(Some(x.register_hook(|g| Ok(Some(g.clone())))?));
        let guard = OnDrop(move || {
            if let Some(inner) = inner.lock().unwrap_or_else(PoisonError::into_inner).take() {
                inner.remove();
            }
        });
        let outer = x.register_hook(move |g| {
            let _owned = &guard;
            Ok(Some(g.clone()))
        })?;
        outer.remove();
        Ok(())
    });
    for _ in 0..500 {
        if done.is_finished() {
            assert!(matches!(done.join(), Ok(Ok(()))));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(Error::new(ErrorKind::Value, "test", "it hangs"))
}

#[test]
fn a_panic_while_a_graph_is_dropped_leaks_no_later_graph() -> Result {
    let x = tensor!([1.0])?.requires_grad_(true)?;
    let inner = x.mul(2.0)?;
    let bomb = OnDrop(|| {
        if !std::thread::panicking() {
            std::panic::panic_any("on purpose");
        }
    });
    inner.register_hook(move |g| {
        let _owned = &bomb;
        Ok(Some(g.clone()))
    })?;
    let y = inner.mul(3.0)?;
    drop(inner);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(y))).is_err());
    let alive = Arc::new(());
    let z = x.mul(2.0)?;
    let owned = alive.clone();
    z.register_hook(move |g| {
        let _owned = &owned;
        Ok(Some(g.clone()))
    })?;
    drop(z.mul(3.0)?);
    drop(z);
    assert_eq!(Arc::strong_count(&alive), 1, "the later graph is gone");
    Ok(())
}

fn second(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let x = x.detach().requires_grad_(true)?;
    let first = grad_with(&f(&x)?.sum(..)?, &[&x], GradOptions::new().create_graph(true))?;
    let Some(Some(first)) = first.into_iter().next() else { return Ok(Vec::new()) };
    if !first.requires_grad() {
        return Ok(vec![0.0; x.numel()]);
    }
    match grad(&first.sum(..)?, &[&x])?.into_iter().next() {
        Some(Some(second)) => second.to_vec::<f64>(),
        _ => Ok(vec![0.0; x.numel()]),
    }
}

#[test]
fn second_derivatives_are_numbers_where_the_function_has_them() -> Result {
    let far = Tensor::new([100.0_f64, 800.0, -1.0])?;
    assert_eq!(second(&far, |x| x.elu())?, [0.0, 0.0, (-1.0_f64).exp()]);
    assert_eq!(second(&Tensor::new([0.0_f64, 2.0])?, |x| x.pow(0.0))?, [0.0, 0.0]);
    let mixed = Tensor::new([-1.0_f64, 4.0])?;
    // The branch not taken gets a harmless number.
    let root = |x: &Tensor| {
        let taken = x.gt(0)?;
        taken.where_(taken.where_(x, 1.0)?.sqrt()?, x.mul(2)?)
    };
    assert_eq!(second(&mixed, root)?, [0.0, -0.25 / 8.0]);
    Ok(())
}

#[test]
fn the_variance_does_not_suffer_from_an_offset() -> Result {
    let x: Vec<f32> = (0..4096).map(|i| 1e6 + [-2.0, 2.0][i % 2]).collect();
    let x = Tensor::from_vec(x, [4096])?;
    let var = x.var_with(.., 0.0)?.item::<f64>()?;
    assert!((var - 4.0).abs() < 1e-5, "{var}");
    let rows = x.reshape([2, 2048])?.var_with(keepdim(1), 0.0)?.to_vec::<f32>()?;
    assert!(rows.iter().all(|v| (v - 4.0).abs() < 1e-5), "{rows:?}");
    Ok(())
}

#[test]
fn a_float_becomes_the_same_integer_everywhere() -> Result {
    for value in [-1.5, 1e30, -1e30, f64::NAN, 3.99, 1.8e19] {
        let number = <u64 as Element>::from_scalar(value.into());
        let cast = Tensor::full_with([1], value, DType::F64)?.to_dtype(DType::U64)?.to_vec::<u64>()?;
        assert_eq!([number], cast[..], "{value}");
        match Tensor::full_with([1], value, DType::U64) {
            Ok(filled) => assert_eq!(filled.to_vec::<u64>()?, cast, "{value}"),
            Err(e) => assert!(!(0.0..1.9e19).contains(&value) && e.to_string().contains("out of range for u64"), "{e}"),
        }
    }
    Ok(())
}

/// The second gradient of a complex leaf was refused instead of added to the first.
#[test]
fn gradients_of_complex_leaves_add_up() -> Result<()> {
    let z = Tensor::new([Complex::new(3.0_f64, 4.0)])?.requires_grad_(true)?;
    for _ in 0..2 {
        z.abs()?.sum(..)?.backward()?;
    }
    let found = z.grad().map(|g| g.to_vec::<Complex<f64>>()).transpose()?;
    assert_eq!(found, Some(vec![Complex::new(1.2, 1.6)]));
    Ok(())
}

/// A number was converted to the tensor's dtype first: 256 became 0 for u8, and a degree of -2 became 65534.
#[test]
fn a_number_that_is_none_of_the_tensors_is_itself_where_integers_become_floats() -> Result {
    for dtype in [DType::U8, DType::I8, DType::U16, DType::U32, DType::U64, DType::I64] {
        let x = Tensor::full_with([1], 2, dtype)?;
        let wide = x.to_dtype(DType::F32)?;
        for number in [-2_i64, 256, 70_000] {
            let pairs = [
                [x.div(number)?, wide.div(number)?],
                [number / &x, number / &wide],
                [x.atan2(number)?, wide.atan2(number)?],
                [x.logaddexp(number)?, wide.logaddexp(number)?],
                [x.logaddexp2(number)?, wide.logaddexp2(number)?],
                [x.lerp(number, 1)?, wide.lerp(number, 1)?],
                [x.igamma(number)?, wide.igamma(number)?],
                [special::chebyshev_polynomial_t(&x, number)?, special::chebyshev_polynomial_t(&wide, number)?],
            ];
            for (at, [got, want]) in pairs.iter().enumerate() {
                let bits = |x: &Tensor| -> Result<u32> { Ok(x.item::<f32>()?.to_bits()) };
                assert_eq!(bits(got)?, bits(want)?, "{at}: {dtype} with {number}: {got} and not {want}");
            }
        }
    }
    Ok(())
}
