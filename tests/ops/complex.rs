//! Complex numbers in operations with real ones: imaginary parts are never dropped silently.

use cotangent::autograd::{gradcheck, gradgradcheck};
use cotangent::ops::{self, Arg};
use cotangent::{
    Complex, DType, Generator, Scalar, Tensor, fft,
    options::{FftNorm, FftOptions, ValueOptions},
    settings::with_num_threads,
    tensor,
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const Z: Complex<f64> = Complex::new(1.0, 2.0);

#[test]
fn no_imaginary_part_is_dropped() -> Outcome {
    let refused = |result: cotangent::Result<Tensor>, op: &str| {
        let error = result.map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(error.starts_with(op) && error.contains("1.0+2.0j"), "{op}: {error:?}");
    };
    let x = tensor!([1.0, 2.0])?;
    refused(Tensor::full_with([2], Z, DType::F32), "full");
    refused(x.full_like_with(Z, DType::F64), "full_like");
    refused(Tensor::arange(Z, 5), "arange");
    refused(x.addcmul_with(&x, &x, Scalar::from(Z)), "addcmul");
    refused(x.masked_fill(&x.gt(0)?, Z), "masked_fill");
    let mut y = x.deep_clone()?;
    let error = y.fill_(Z).map_err(|e| e.to_string()).err().unwrap_or_default();
    assert!(error.starts_with("fill_") && error.contains("1.0+2.0j"), "{error:?}");
    assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    // Parameters of formulas are real.
    let z = Tensor::new([Z, Z])?;
    refused(z.addcmul_with(&z, &z, ValueOptions::new().value(Z)), "addcmul");
    let softplus = ops::find("softplus").ok_or("there is one")?;
    let args = softplus.bind(&[Arg::from(&x)], &[("beta", Arg::from(Scalar::from(Z)))])?;
    assert!(softplus.call(&args).is_err());
    assert!(z.to_dtype(DType::F64).is_err() && z.item::<f64>().is_err() && z.to_vec::<f64>().is_err());
    Ok(())
}

#[test]
fn complex_tensors_are_filled_and_changed_in_place() -> Outcome {
    let mut z = Tensor::zeros_with([2], DType::C64)?;
    z.fill_(Z)?;
    z.add_(1)?;
    z.mul_(Complex::<f64>::I)?;
    assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(-2.0, 2.0); 2]);
    z.set(0, Z)?;
    assert_eq!(z.at(&[0])?, Scalar::from(Z));
    z.zero_()?;
    assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(0.0, 0.0); 2]);
    assert_eq!(format!("{}", Tensor::new([Z])?), "[1.+2.j]");
    Ok(())
}

#[test]
fn a_complex_number_needs_a_cotangent_and_a_real_leaf_gets_a_real_gradient() -> Outcome {
    let x = tensor!([2.0])?.requires_grad_(true)?;
    let y = x.mul(Z)?;
    let error = y.sum(..)?.backward().map_err(|e| e.to_string()).err().unwrap_or_default();
    assert!(error.contains("cotangent") && error.contains("real()"), "{error}");
    y.abs()?.square()?.sum(..)?.backward()?;
    assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?.map(|g| g[0].round()), Some(20.0));
    Ok(())
}

fn random(shape: &[usize], dtype: DType) -> cotangent::Result<Tensor> {
    let mut generator = Generator::seed(shape.iter().sum::<usize>() as u64);
    let part = |generator: &mut Generator| generator.randn_with(shape, DType::F64);
    part(&mut generator)?.complex(&part(&mut generator)?)?.to_dtype(dtype)
}

/// The definition, along one dimension.
fn sums(x: &Tensor, dim: usize, sign: f64) -> cotangent::Result<Tensor> {
    let n = x.shape()[dim];
    let turn = |k: usize| {
        let angle = sign * std::f64::consts::TAU * k as f64 / n as f64;
        Complex::new(angle.cos(), angle.sin())
    };
    let matrix: Vec<_> = (0..n * n).map(|at| turn((at / n) * (at % n) % n)).collect();
    let rows = x.to_dtype(DType::C128)?.transpose(dim, -1)?;
    rows.matmul(&Tensor::new(matrix)?.reshape([n, n])?)?.transpose(dim, -1)
}

/// Relative to the root of the mean square.
fn off_by(x: &Tensor, right: &Tensor) -> cotangent::Result<f64> {
    let error = x.to_dtype(DType::C128)?.sub(right)?.abs()?.square()?.mean(..)?;
    error.div(&right.abs()?.square()?.mean(..)?)?.sqrt()?.item()
}

/// A long transform of real numbers is the first half of that of complex ones, and its inverse gives them back.
#[test]
fn long_real_fourier_transforms_are_those_of_complex_numbers() -> Outcome {
    for n in [1 << 15, 12_006, 10_007, 6561, 2] {
        let x = random(&[3, n], DType::C64)?.real()?;
        let (half, whole) = (fft::rfft(&x)?, fft::fft(&x.to_dtype(DType::C64)?)?);
        let error = off_by(&half, &whole.narrow(1, 0, n / 2 + 1)?)?;
        assert!(error < 2e-6, "rfft of {n}: off by {error}");
        let error = off_by(&fft::irfft_with(&half, n)?.to_dtype(DType::C64)?, &x.to_dtype(DType::C64)?)?;
        assert!(error < 2e-6, "irfft of {n}: off by {error}");
    }
    Ok(())
}

/// Imaginary parts that would be 0 for Hermitian input are not read, as in PyTorch.
#[test]
fn an_inverse_real_transform_reads_no_imaginary_parts_of_real_numbers() -> Outcome {
    for n in [1_usize, 2, 7, 8, 22, 1024] {
        let half = n / 2 + 1;
        let x = random(&[half], DType::C64)?;
        let mut parts = x.to_vec::<Complex<f32>>()?;
        parts[0].im = f32::NAN;
        if n % 2 == 0 {
            parts[half - 1].im = f32::INFINITY;
        }
        let y = Tensor::new(parts)?;
        assert!(fft::irfft_with(&x, n)?.to_vec::<f32>()? == fft::irfft_with(&y, n)?.to_vec::<f32>()?, "{n} numbers");
    }
    Ok(())
}

/// Lengths that have kernels and others, columns that fill registers and others, and one element.
#[test]
fn fourier_transforms_along_every_dimension_are_the_sums() -> Outcome {
    let shapes: [&[usize]; 13] = [
        &[37],
        &[1024],
        &[20, 64],
        &[2, 36, 33],
        &[100, 17],
        &[14, 30],
        &[3, 22, 2],
        &[40, 3],
        &[1, 1],
        &[6, 1],
        &[1, 6, 1],
        &[4, 5, 6, 7],
        &[5, 256],
    ];
    for (dtype, most) in [(DType::C64, 1e-6), (DType::C128, 2e-15)] {
        for shape in shapes {
            let x = random(shape, dtype)?;
            let mut all = x.clone();
            for dim in (0..shape.len()).rev() {
                let options = FftOptions::new().dim(dim as isize).norm(FftNorm::Backward);
                let error = off_by(&fft::fft_with(&x, options)?, &sums(&x, dim, -1.0)?)?;
                assert!(error < most, "fft of {shape:?} {dtype} along {dim}: off by {error}");
                let options = FftOptions::new().dim(dim as isize).norm(FftNorm::Forward);
                let error = off_by(&fft::ifft_with(&x, options)?, &sums(&x, dim, 1.0)?)?;
                assert!(error < most, "ifft of {shape:?} {dtype} along {dim}: off by {error}");
                all = sums(&all, dim, -1.0)?;
            }
            let error = off_by(&fft::fftn(&x)?, &all)?;
            assert!(error < most, "fftn of {shape:?} {dtype}: off by {error}");
        }
    }
    Ok(())
}

#[test]
fn a_fourier_transform_does_not_depend_on_the_number_of_threads() -> Outcome {
    let shapes: [([usize; 2], isize); 9] = [
        ([1, 1 << 15], 1),
        ([3, 12_000], 1),
        ([70, 48], 1),
        ([64, 90], 0),
        ([22, 50], 0),
        ([1, 10_007], 1),
        ([2, 20_014], 1),
        ([90, 37], 1),
        ([2, 6561], 1),
    ];
    for (shape, dim) in shapes {
        let (x, n) = (random(&shape, DType::C64)?, shape[usize::try_from(dim)?]);
        let options = || FftOptions::new().dim(dim).n(n);
        let run = || -> cotangent::Result<_> {
            let complex = fft::fft_with(&x, options())?.to_vec::<Complex<f32>>()?;
            let real = fft::rfft_with(&x.real()?, options())?.to_vec::<Complex<f32>>()?;
            Ok((complex, real, fft::irfft_with(&x, options())?.to_vec::<f32>()?))
        };
        let alone = with_num_threads(1, run)??;
        for threads in [2, 3, 8] {
            assert!(with_num_threads(threads, run)?? == alone, "{shape:?} along {dim}, {threads} threads");
        }
    }
    Ok(())
}

/// Where formulas of the parts select between cases: numbers with a real or imaginary part of 0 or 1.
#[test]
fn derivatives_on_the_axes() -> Outcome {
    // On no cut of any of these but acosh, which is cut below 1.
    let inner =
        [(0.5, 0.0), (0.25, -0.0), (0.0, 0.5), (-0.0, -0.75), (1.0, 0.5), (-1.0, 0.5), (0.5, 1.0), (-0.5, -1.0)];
    let mut functions: Vec<(String, Vec<(f64, f64)>, Vec<Arg>)> = Vec::new();
    let names = "exp expm1 exp2 log log1p log2 log10 sqrt rsqrt square reciprocal sin cos tan sinh cosh tanh asin acos atan \
                 asinh atanh sigmoid silu sinc log_sigmoid neg tanhshrink softsign";
    let takes_complex = |op: &'static ops::Op| op.call(&[Arg::from(&Tensor::new([Z])?)]).map(|_| ());
    for name in names.split_whitespace() {
        if let Some(op) = ops::find(name)
            && takes_complex(op).is_ok()
        {
            functions.push((name.to_string(), inner.to_vec(), Vec::new()));
        }
    }
    functions.push(("acosh".into(), vec![(2.0, 0.0), (1.5, -0.0), (0.0, 2.0), (-1.0, 0.5), (1.0, 0.5)], Vec::new()));
    for exponent in [2.0, 2.5, -1.0] {
        functions.push(("pow".into(), inner.to_vec(), vec![Arg::from(Scalar::from(exponent))]));
    }
    let wide: Vec<(f64, f64)> = vec![(2.0, 0.0), (-3.0, 0.0), (0.0, 1.25), (0.0, 3.0)];
    for name in ["exp", "expm1", "exp2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sigmoid", "square", "reciprocal"]
    {
        functions.push((name.into(), wide.clone(), Vec::new()));
    }
    assert!(functions.len() > 35, "{} functions take complex numbers", functions.len());
    let mut wrong = Vec::new();
    for (name, points, rest) in functions {
        let op = ops::find(&name).ok_or("there is one")?;
        for (re, im) in points {
            let z = Tensor::new([Complex::new(re, im)])?;
            let f = |x: &[Tensor]| {
                let mut args = vec![Arg::from(&x[0])];
                args.extend(rest.iter().cloned());
                let bound = op.bind(&args, &[])?;
                Ok(op.call(&bound)?.remove(0))
            };
            for (what, outcome) in [
                ("first", gradcheck(f, std::slice::from_ref(&z))),
                ("second", gradgradcheck(f, std::slice::from_ref(&z))),
            ] {
                if let Err(error) = outcome {
                    wrong.push(format!("{name}{:?} at {re}+{im}j, {what} derivative: {error}", rest.len()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
