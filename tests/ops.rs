//! Every operation of the list, through one harness: derivatives to second order, layouts, dtypes, extreme values,
//! refused inputs, and samples that prove something.

// A helper of tests may panic like a test.
#![allow(clippy::panic)]

use cotangent::autograd::{Backward, GradCheck, grad_with, gradcheck, gradgradcheck};
use cotangent::ops::{Op, Sample, list};
use cotangent::{DType, Device, Generator, Result, Slice, Tensor};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The devices of this machine.
fn devices() -> Vec<Device> {
    let all = [Device::Cpu, Device::cuda(0)];
    all.into_iter().filter(|device| device.is_available()).collect()
}

/// Calls `check` for every sample of every operation on every device and reports all faults together.
fn for_all_samples(check: impl Fn(&Op, &Sample) -> Result<(), String>) {
    let mut faults = Vec::new();
    let mut count = 0;
    for op in list() {
        let samples = (op.samples)().unwrap_or_else(|e| panic!("the samples of {} cannot be made: {e}", op.name));
        assert!(!samples.is_empty(), "{} has no samples", op.name);
        for (sample, device) in samples.iter().flat_map(|sample| devices().into_iter().map(move |on| (sample, on))) {
            let sample = sample.on(device).unwrap_or_else(|e| panic!("{} cannot be brought to {device}: {e}", op.name));
            count += 1;
            if let Err(fault) = check(op, &sample) {
                faults.push(format!("{} on {device}: {sample:?}: {fault}", op.name));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults in {count} samples:\n{}", faults.len(), faults.join("\n"));
    assert!(count > 100, "only {count} samples were found");
}

fn text<T>(result: Result<T>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}

/// The inputs with those of floating point as leaves.
fn leaves(inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    inputs.iter().map(|x| if x.dtype().is_float() { x.detach().requires_grad_(true) } else { Ok(x.clone()) }).collect()
}

/// The gradients of the call, contracted with a fixed random cotangent; `None` if the result carries none.
fn gradients(sample: &Sample, inputs: &[Tensor]) -> Result<Option<(Tensor, Vec<Option<Tensor>>)>> {
    let leaves = leaves(inputs)?;
    let y = sample.run(&leaves)?;
    if !y.requires_grad() {
        return Ok(None);
    }
    let cotangent = Generator::seed(99).randn_with(y.shape(), (DType::F64, y.device()))?.to_dtype(y.dtype())?;
    let wanted: Vec<&Tensor> = leaves.iter().filter(|x| x.requires_grad()).collect();
    let grads = grad_with(&y, &wanted, Some(&cotangent), Backward::default())?;
    Ok(Some((y.detach(), grads)))
}

/// Whether there is a derivative to check: where all inputs are empty there is no direction to differ in.
fn differentiable(sample: &Sample) -> Result<bool> {
    let empty = sample.inputs().iter().all(|x| x.numel() == 0);
    Ok(!empty && gradients(sample, sample.inputs())?.is_some())
}

#[test]
fn first_derivatives_agree_with_differences() {
    for_all_samples(|_, sample| {
        if !text(differentiable(sample))? {
            return Ok(());
        }
        text(gradcheck(|x| sample.run(x), sample.inputs(), &GradCheck::default()))
    });
}

#[test]
fn second_derivatives_agree_with_differences() {
    for_all_samples(|_, sample| {
        if !text(differentiable(sample))? {
            return Ok(());
        }
        text(gradgradcheck(|x| sample.run(x), sample.inputs(), &GradCheck::default()))
    });
}

#[test]
fn gradients_have_the_shape_and_dtype_of_their_leaves_and_say_something() {
    for_all_samples(|_, sample| {
        let Some((_, grads)) = text(gradients(sample, sample.inputs()))? else { return Ok(()) };
        let floats = sample.inputs().iter().filter(|x| x.dtype().is_float());
        let mut informative = sample.inputs().iter().all(|x| x.numel() == 0);
        for (x, g) in floats.zip(&grads) {
            let Some(g) = g else { return Err("an input got no gradient".into()) };
            if g.shape() != x.shape() || g.dtype() != x.dtype() {
                return Err(format!(
                    "an input of {:?} {} got a gradient of {:?} {}",
                    x.shape(),
                    x.dtype(),
                    g.shape(),
                    g.dtype()
                ));
            }
            informative |= text(g.to_vec::<f64>())?.iter().any(|&v| v != 0.0) || g.numel() == 0;
        }
        match (informative, sample.has_zero_derivative()) {
            (false, false) => Err("all gradients are zero, so the sample proves nothing".into()),
            (true, true) if grads.iter().flatten().any(|g| g.numel() > 0) => {
                Err("the derivative was declared zero and is not".into())
            }
            _ => Ok(()),
        }
    });
}

/// The same values in other layouts: transposed, with an offset, with a step, reversed.
fn relaid(x: &Tensor, way: usize) -> Result<Tensor> {
    let x = x.detach();
    if x.rank() == 0 {
        // A 0-d tensor can only be moved.
        return Tensor::stack(&[&x, &x, &x], 0)?.select(0, 1);
    }
    let last = x.rank() as isize - 1;
    match way {
        0 if x.rank() > 1 => x.transpose(0, last)?.contiguous()?.transpose(0, last),
        0 | 1 => Tensor::cat(&[&x, &x, &x], 0)?.narrow(0, x.shape()[0] as isize, x.shape()[0]),
        2 => {
            let doubled = Tensor::stack(&[&x, &x.zeros_like()?], last + 1)?;
            doubled
                .reshape(
                    doubled.shape()[..x.rank() - 1]
                        .iter()
                        .copied()
                        .chain([2 * x.shape()[x.rank() - 1]])
                        .collect::<Vec<usize>>(),
                )?
                .slice(last, Slice::from(..).step(2))
        }
        _ => x.flip(..)?.contiguous()?.flip(..),
    }
}

fn same_bits(a: &Tensor, b: &Tensor) -> Result<bool> {
    let bits = |t: &Tensor| -> Result<Vec<u64>> {
        Ok(t.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect())
    };
    Ok(a.shape() == b.shape() && a.dtype() == b.dtype() && bits(&a.detach())? == bits(&b.detach())?)
}

fn close(a: &Tensor, b: &Tensor, tolerance: f64) -> Result<bool> {
    Ok(a.shape() == b.shape()
        && a.detach().to_dtype(DType::F64)?.allclose(&b.detach().to_dtype(DType::F64)?, tolerance, tolerance)?)
}

#[test]
fn results_and_gradients_do_not_depend_on_the_layout() {
    for_all_samples(|op, sample| {
        // Reinterpreting memory is what these are for.
        if matches!(op.name, "as_strided" | "view") {
            return Ok(());
        }
        let plain = text(sample.run(sample.inputs()))?;
        let plain_grads = text(gradients(sample, sample.inputs()))?;
        for way in 0..4 {
            let inputs = text(sample.inputs().iter().map(|x| relaid(x, way)).collect::<Result<Vec<_>>>())?;
            for (x, original) in inputs.iter().zip(sample.inputs()) {
                assert!(same_bits(x, original).unwrap_or(false), "relaying changed the values");
            }
            let result = text(sample.run(&inputs))?;
            // Matrix products and sums may add in another order.
            if !text(close(&result, &plain, 1e-12))? || result.dtype() != plain.dtype() {
                return Err(format!("layout {way}: {result} instead of {plain}"));
            }
            if let (Some((_, expected)), Some((_, found))) = (&plain_grads, text(gradients(sample, &inputs))?) {
                for (e, f) in expected.iter().flatten().zip(found.iter().flatten()) {
                    if !text(close(f, e, 1e-12))? {
                        return Err(format!("layout {way}: gradient {f} instead of {e}"));
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn repeated_elements_of_stride_zero_are_read_like_any_others() {
    for_all_samples(|op, sample| {
        if matches!(op.name, "as_strided" | "view") || sample.inputs().iter().any(|x| !x.dtype().is_float()) {
            return Ok(());
        }
        let repeat = |x: &Tensor| -> Result<Tensor> {
            if x.rank() == 0 || x.shape()[0] == 0 { Ok(x.clone()) } else { x.narrow(0, 0, 1)?.expand(x.shape()) }
        };
        let repeated = text(sample.inputs().iter().map(repeat).collect::<Result<Vec<_>>>())?;
        let copied = text(
            repeated
                .iter()
                .map(|x| Tensor::from_vec(x.to_vec::<f64>()?, x.shape())?.to_device(x.device()))
                .collect::<Result<Vec<_>>>(),
        )?;
        let (a, b) = (text(sample.run(&repeated))?, text(sample.run(&copied))?);
        if text(close(&a, &b, 1e-12))? { Ok(()) } else { Err(format!("{a} instead of {b}")) }
    });
}

#[test]
fn every_float_dtype_gives_the_same_answer_to_its_precision() {
    for_all_samples(|_, sample| {
        let exact = text(sample.run(sample.inputs()))?;
        for (dtype, epsilon) in [(DType::F32, 1e-5), (DType::F16, 8e-3), (DType::BF16, 6e-2)] {
            let cast = |x: &Tensor| if x.dtype().is_float() { x.to_dtype(dtype) } else { Ok(x.clone()) };
            let inputs = text(sample.inputs().iter().map(cast).collect::<Result<Vec<_>>>())?;
            // The exact answer for the rounded inputs, so that rounding at a jump does not count.
            let rounded = text(
                inputs
                    .iter()
                    .map(|x| if x.dtype().is_float() { x.to_dtype(DType::F64) } else { Ok(x.clone()) })
                    .collect::<Result<Vec<_>>>(),
            )?;
            let expected = text(sample.run(&rounded))?;
            let result = text(sample.run(&inputs))?;
            let wants_float = exact.dtype().is_float() && inputs.iter().any(|x| x.dtype().is_float());
            let is_cast = sample.label().starts_with("to f64") || sample.label().starts_with("of an integer");
            if wants_float && !is_cast && result.dtype() != dtype {
                return Err(format!("{dtype} inputs gave a result of {}", result.dtype()));
            }
            if exact.dtype().is_float() && !text(close(&result, &expected, epsilon))? {
                return Err(format!("in {dtype}: {result} instead of {expected}"));
            }
            if let Some((_, grads)) = text(gradients(sample, &inputs))? {
                let floats = inputs.iter().filter(|x| x.dtype().is_float());
                for (x, g) in floats.zip(grads.iter()) {
                    let fits = g.as_ref().is_some_and(|g| g.dtype() == x.dtype() && g.shape() == x.shape());
                    if !fits {
                        return Err(format!("in {dtype} a gradient has not its leaf's shape and dtype"));
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn extreme_values_pass_through_every_layout_alike() {
    const EXTREMES: [f64; 8] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, -1e300, 5e-324, -0.0, 0.0];
    for_all_samples(|op, sample| {
        if matches!(op.name, "as_strided" | "view") {
            return Ok(());
        }
        let poison = |(k, x): (usize, &Tensor)| -> Result<Tensor> {
            if x.dtype() != DType::F64 {
                return Ok(x.clone());
            }
            let mut values = x.to_vec::<f64>()?;
            for (i, v) in values.iter_mut().enumerate().filter(|(i, _)| i % 2 == 0) {
                *v = EXTREMES[(i / 2 + 3 * k) % EXTREMES.len()];
            }
            Tensor::from_vec(values, x.shape())?.to_device(x.device())
        };
        let inputs = text(sample.inputs().iter().enumerate().map(poison).collect::<Result<Vec<_>>>())?;
        // Some functions refuse such values, but none may panic, and all must answer alike in every layout.
        let plain = sample.run(&inputs);
        for way in 0..4 {
            let other = text(inputs.iter().map(|x| relaid(x, way)).collect::<Result<Vec<_>>>())?;
            match (&plain, sample.run(&other)) {
                (Ok(a), Ok(b)) if text(close(a, &b, 1e-9))? => {}
                (Err(_), Err(_)) => {}
                (a, b) => return Err(format!("layout {way}: {b:?} instead of {a:?}")),
            }
        }
        Ok(())
    });
}

#[test]
fn nothing_is_recorded_where_no_gradient_is_required() {
    for_all_samples(|_, sample| {
        let y = text(sample.run(sample.inputs()))?;
        if y.requires_grad() || y.grad_fn().is_some() { Err("the result carries a graph".into()) } else { Ok(()) }
    });
}

#[test]
fn bad_inputs_are_refused_by_name_and_value() {
    let mut faults = Vec::new();
    let mut count = 0;
    for op in list() {
        for error_case in
            (op.error_cases)().unwrap_or_else(|e| panic!("the error_cases of {} cannot be made: {e}", op.name))
        {
            count += 1;
            match error_case.run() {
                Ok(y) => faults.push(format!("{}: {error_case:?} gave {y:?}", op.name)),
                Err(e) => {
                    let message = e.to_string();
                    let missing: Vec<_> = error_case.message.iter().filter(|part| !message.contains(*part)).collect();
                    if !missing.is_empty() || error_case.message.is_empty() {
                        faults.push(format!("{}: {error_case:?}: {message:?} does not say {missing:?}", op.name));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(count > 30, "only {count} error_cases were found");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let run = |threads: usize| -> Vec<(String, Vec<u64>)> {
        let all = cotangent::with_num_threads(threads, || {
            let mut all = Vec::new();
            for op in list() {
                for sample in (op.samples)().expect("samples") {
                    if let Some((y, grads)) = gradients(&sample, sample.inputs()).expect("gradients") {
                        let mut bits = Vec::new();
                        for t in std::iter::once(&y).chain(grads.iter().flatten()) {
                            bits.extend(
                                t.to_dtype(DType::F64)
                                    .and_then(|t| t.to_vec::<f64>())
                                    .expect("values")
                                    .iter()
                                    .map(|x| x.to_bits()),
                            );
                        }
                        all.push((format!("{}: {sample:?}", op.name), bits));
                    }
                }
            }
            all
        });
        all.expect("a number of threads")
    };
    let (one, four) = (run(1), run(4));
    assert_eq!(one.len(), four.len());
    for (a, b) in one.iter().zip(&four) {
        assert_eq!(a, b);
    }
}

/// Whether values are alike, where a sum of many may differ in its last digits; NaN and infinities are themselves.
fn alike(a: &Tensor, b: &Tensor, tolerance: f64) -> Result<bool> {
    Ok(a.dtype() == b.dtype() && close(a, &b.to_device(a.device())?, tolerance)?)
}

/// Every operation on a GPU against the CPU: values and gradients, in every float dtype and layout.
#[test]
fn a_gpu_gives_the_processors_answers() {
    let gpu = Device::cuda(0);
    if !gpu.is_available() {
        return eprintln!("skipped: there is no GPU");
    }
    // Many kernels are compiled for it: several threads at a time.
    let next = AtomicUsize::new(0);
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while let Some(op) = list().get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = compare_everywhere(op, gpu);
                    faults.lock().expect("no thread has panicked").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no thread has panicked");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn compare_everywhere(op: &Op, gpu: Device) -> Vec<String> {
    let mut faults = Vec::new();
    let samples = (op.samples)().unwrap_or_else(|e| panic!("the samples of {} cannot be made: {e}", op.name));
    for sample in samples {
        for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 2e-5), (DType::F16, 1e-2), (DType::BF16, 8e-2)] {
            for way in 0..5 {
                if way < 4 && matches!(op.name, "as_strided" | "view") {
                    continue;
                }
                if let Err(fault) = text(compare(&sample, gpu, dtype, way, tolerance)).and_then(|found| found) {
                    faults.push(format!("{} in {dtype}, layout {way}: {sample:?}: {fault}", op.name));
                }
            }
        }
    }
    faults
}

fn compare(sample: &Sample, gpu: Device, dtype: DType, way: usize, tolerance: f64) -> Result<Result<(), String>> {
    let cast = |x: &Tensor| if x.dtype().is_float() { x.to_dtype(dtype) } else { Ok(x.clone()) };
    let here = sample.inputs().iter().map(cast).collect::<Result<Vec<_>>>()?;
    let lay = |x: &Tensor| {
        let there = x.to_device(gpu)?;
        if way < 4 { relaid(&there, way) } else { Ok(there) }
    };
    let there = here.iter().map(lay).collect::<Result<Vec<_>>>()?;
    let (a, b) = (sample.run(&there)?, sample.run(&here)?);
    if a.device() != gpu {
        return Ok(Err(format!("the result is on {}", a.device())));
    }
    if !alike(&a, &b, tolerance)? {
        return Ok(Err(format!("{a} instead of {b}")));
    }
    let (a, b) = (gradients(sample, &there)?, gradients(sample, &here)?);
    let (Some((_, a)), Some((_, b))) = (a, b) else { return Ok(Ok(())) };
    for (a, b) in a.iter().zip(&b) {
        match (a, b) {
            (Some(a), Some(b)) if a.device() == gpu && alike(a, b, tolerance)? => {}
            (None, None) => {}
            (a, b) => return Ok(Err(format!("a gradient of {a:?} instead of {b:?}"))),
        }
    }
    Ok(Ok(()))
}
