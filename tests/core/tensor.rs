//! Creating and reading tensors.

use cotangent::{DType, Error, Generator, Result, Tensor, manual_seed, tensor, with_generator};

/// What an error says. It has to know the line of these tests that met with it, and prints it where a program ends with it.
#[track_caller]
fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    let said = |e: Error| {
        let location = e.location().map_or_else(|| "nowhere".to_string(), ToString::to_string);
        assert!(location.starts_with("tests/core/tensor.rs:"), "{e} is from {location}");
        assert_eq!(format!("{e:?}"), format!("{e}\n    at {location}"));
        e.to_string()
    };
    result.map_or_else(said, |t| format!("not refused: {t:?}"))
}

#[test]
fn tensors_are_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Tensor>();
    check::<Generator>();
    check::<cotangent::Error>();
    check::<cotangent::autograd::Tape>();
}

#[test]
fn literals_become_the_default_dtypes_and_values_keep_theirs() -> Result<()> {
    assert_eq!(tensor!(1.5)?.dtype(), DType::F32);
    assert_eq!(tensor!([[1, 2], [3, 4]])?.dtype(), DType::I64);
    assert_eq!(tensor!([[1, 2], [3, 4]])?.to_vec::<i64>()?, [1, 2, 3, 4]);
    assert_eq!(tensor!([true, false])?.dtype(), DType::Bool);
    assert_eq!(tensor!([-1, 2], DType::F64)?.to_vec::<f64>()?, [-1.0, 2.0]);
    assert_eq!(Tensor::new(1.5)?.dtype(), DType::F64);
    assert_eq!(Tensor::new([[1, 2], [3, 4]])?.dtype(), DType::I32);
    assert_eq!(Tensor::new([true, false])?.dtype(), DType::Bool);
    assert_eq!(Tensor::new(vec![vec![1_u8; 3]; 2])?.dtype(), DType::U8);
    assert_eq!(Tensor::new(&[1.0_f32, 2.0][..])?.shape(), [2]);
    let empty: [[f64; 3]; 0] = [];
    assert_eq!(Tensor::new(empty)?.shape()[0], 0);
    assert_eq!(Tensor::from_vec(vec![1.0_f64, 2.0], [2])?.dtype(), DType::F64);
    assert_eq!(Tensor::from_iter((0..4).map(|i| i as f32))?.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0]);
    Ok(())
}

#[test]
fn formulas_give_what_they_say() -> Result<()> {
    assert_eq!(Tensor::arange_with(5, 0, -2)?.to_vec::<i64>()?, [5, 3, 1]);
    assert_eq!(Tensor::arange(0, 0)?.numel(), 0);
    assert_eq!(Tensor::linspace(0.0, 1.0, 5)?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    assert_eq!(Tensor::linspace(3.0, 4.0, 1)?.to_vec::<f32>()?, [3.0]);
    assert_eq!(Tensor::eye(2)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    assert_eq!(Tensor::full([2], true)?.to_vec::<bool>()?, [true, true]);
    assert_eq!(Tensor::full_with([2], 7, DType::F64)?.to_vec::<f64>()?, [7.0, 7.0]);
    let x = Tensor::zeros_with([2, 3], DType::BF16)?;
    for like in [x.zeros_like()?, x.ones_like()?, x.full_like(2)?, x.rand_like()?, x.randn_like()?] {
        assert_eq!((like.shape(), like.dtype()), (x.shape(), x.dtype()));
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_numbers() -> Result<()> {
    let draw =
        || -> Result<Vec<f32>> { Tensor::cat(&[&Tensor::rand([3])?, &Tensor::randn([70_000])?], 0)?.to_vec::<f32>() };
    // With a separate generator, since other tests draw from the default one at the same time.
    with_generator(&mut Generator::seed(0), || -> Result<()> {
        manual_seed(11);
        let first = draw()?;
        assert_ne!(first, draw()?, "the sequence goes on");
        manual_seed(11);
        assert_eq!(first, draw()?);
        Ok(())
    })?;
    let ints = Generator::seed(3).randint(-2, 3, [1000])?.to_vec::<i64>()?;
    assert_eq!((ints.iter().min(), ints.iter().max()), (Some(&-2), Some(&2)));
    Ok(())
}

#[test]
fn refusals_say_what_was_wrong() {
    assert_eq!(
        message(Tensor::new(vec![vec![1, 2], vec![3]])),
        "new: nested parts must have one shape, got [2] for part 0 and [1] for part 1"
    );
    assert_eq!(message(Tensor::from_vec(vec![1.0, 2.0], [3])), "from_vec: 2 elements do not match shape [3]");
    assert_eq!(
        message(Tensor::arange_with(0, 5, 0)),
        "arange: step must lead from start to end and all must be finite, got start 0, end 5 and step 0"
    );
    assert_eq!(message(Tensor::randint(3, 3, [1])), "randint: low must be less than high, got 3 and 3");
    assert_eq!(message(Tensor::zeros([usize::MAX, 2])).split(':').next(), Some("zeros"));
    let too_much = message(Tensor::zeros([1 << 50]));
    assert!(too_much.starts_with("zeros: out of memory: 4503599627370496 bytes requested"), "{too_much}");
    let x = Tensor::zeros([2]);
    assert_eq!(
        message(x.and_then(|x| x.to_vec::<i64>())),
        "to_vec: cannot read f32 as i64 without loss: cast with to_dtype first"
    );
    assert_eq!(
        message(Tensor::zeros([2, 3]).and_then(|a| a.matmul(&Tensor::zeros([4, 5])?))),
        "matmul: cannot multiply [2, 3] by [4, 5]: inner sizes 3 and 4 differ"
    );
}

#[test]
#[should_panic(expected = "add: shapes [2] and [3] do not broadcast")]
fn operators_panic_with_the_message_of_the_method() {
    if let (Ok(a), Ok(b)) = (Tensor::zeros([2]), Tensor::zeros([3])) {
        let _ = a + b;
    }
}

#[test]
fn operators_mean_what_they_look_like() -> Result<()> {
    let x = tensor!([1.0, 2.0])?;
    let y = (2.0 * &x - 1.0) / (&x + 1.0) + -&x - 4.0 / &x + (3.0 - &x);
    let want: Vec<f32> = [1.0_f32, 2.0].iter().map(|x| (2.0 * x - 1.0) / (x + 1.0) - x - 4.0 / x + 3.0 - x).collect();
    assert!(y.allclose_with(&Tensor::from_vec(want, [2])?, (1e-6, 1e-6))?);
    Ok(())
}

#[test]
fn tensors_print_like_numpy() -> Result<()> {
    let x = tensor!([[1.0, 2.5], [-3.0, 4.0]])?;
    assert_eq!(x.to_string(), "[[ 1.   2.5]\n [-3.   4. ]]");
    let printed = format!("{:?}", x.requires_grad_(true)?.mul(2.0)?);
    for part in ["tensor([[ 2.,  5.]", "shape=[2, 2]", "dtype=f32", "device=cpu", "grad_fn=mul"] {
        assert!(printed.contains(part), "{part:?} is missing from {printed}");
    }
    Ok(())
}

/// Short runs use the baseline version of a kernel, long ones the widest vectors the CPU has.
#[test]
fn every_version_of_a_kernel_gives_the_same_bits() -> Result<()> {
    let functions: [fn(&Tensor) -> Result<Tensor>; 9] = [
        Tensor::exp,
        Tensor::expm1,
        Tensor::log1p,
        Tensor::tanh,
        Tensor::sigmoid,
        Tensor::erf,
        Tensor::sin,
        Tensor::silu,
        |x| x.mul(x)?.add(1.5)?.log(),
    ];
    for dtype in [DType::F32, DType::F64] {
        let x = Generator::seed(4).rand_with([1003], dtype)?.mul(6.0)?;
        for (which, f) in functions.iter().enumerate() {
            let pieces = x.split(7, 0)?.iter().map(f).collect::<Result<Vec<Tensor>>>()?;
            let short = Tensor::cat(&pieces.iter().collect::<Vec<_>>(), 0)?;
            assert!(f(&x)?.equal(&short)?, "function {which} in {dtype}");
        }
    }
    Ok(())
}
