//! Every operation of the list, through one harness: derivatives to second order, layouts, dtypes, extreme values, error
//! cases, and samples that prove something. What an operation is excepted from, its entry says.

use crate::{call, checks};
mod complex;
mod gradients;
mod options;
#[path = "../../../examples/ops/table.rs"]
mod table;

use call::{Call, LAYOUTS, close, differentiable, distance, parts, relaid};
use checks::{all_are_tried, both, gpu, tried};
use cotangent::autograd::{gradcheck, gradgradcheck};
use cotangent::ops::{Arg, ArgKind, Derivative, Op, Sample, list};
use cotangent::{DType, Device, ErrorKind, Result, Tensor};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The devices on which everything is tested. On a GPU this compiles thousands of kernels, which takes many minutes, and is only done
/// with `COTANGENT_TEST_GPU=all`. Otherwise one test compares GPU results with those of the CPU.
fn devices() -> Vec<Device> {
    let wanted = std::env::var("COTANGENT_TEST_GPU").is_ok_and(|wanted| wanted == "all");
    if wanted { checks::devices() } else { vec![Device::Cpu] }
}

fn samples(op: &Op) -> Vec<Sample> {
    let samples = op.samples().unwrap_or_else(|e| panic!("the samples of {} cannot be made: {e}", op.name));
    assert!(!samples.is_empty(), "{} has no samples", op.name);
    samples
}

/// Calls `check` for every sample of every operation on every device and reports all failures together. `check` returns whether
/// there was something to check, which must be true for at least one sample of each operation for which `must` is true.
fn for_all_samples(must: impl Fn(&'static Op) -> bool, check: impl Fn(&Call, &Sample) -> Result<bool, String>) {
    let (mut faults, mut count) = (Vec::new(), 0);
    for op in tried() {
        let mut checked = false;
        for (sample, device) in samples(op).iter().flat_map(|sample| devices().into_iter().map(move |on| (sample, on)))
        {
            let call = Call::new(op, sample, device)
                .unwrap_or_else(|e| panic!("{}{sample:?} cannot be called on {device}: {e}", op.name));
            match check(&call, sample) {
                Ok(found) => {
                    checked |= found;
                    count += usize::from(found);
                }
                Err(fault) => {
                    checked = true;
                    faults.push(format!("{}{sample:?} on {device}: {fault}", op.name));
                }
            }
        }
        if must(op) && !checked {
            faults.push(format!("{}: no sample was checked", op.name));
        }
    }
    assert!(faults.is_empty(), "{} faults and {count} good samples:\n{}", faults.len(), faults.join("\n"));
}

/// Every operation.
fn every(_: &Op) -> bool {
    true
}

/// Operations with a testable derivative.
fn with_a_rule(op: &Op) -> bool {
    op.derivative == Derivative::Rule
}

/// Random draws differ between dtypes.
fn only_draws(op: &Op) -> bool {
    op.random && op.derivative == Derivative::None
}

/// Operations that take a tensor of floats, whatever its layout, and do more than to draw numbers of its shape.
fn of_floats(op: &'static Op) -> bool {
    let takes = |sample: &Sample| {
        Call::new(op, sample, Device::Cpu)
            .is_ok_and(|call| call.tensors().iter().any(|x| x.dtype().is_float() && x.numel() > 0))
    };
    !op.reads_layout && !only_draws(op) && samples(op).iter().any(takes)
}

fn text<T>(result: Result<T>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}

/// The call as a function of its tensors with one result: the results of floating point after one another.
fn joined(call: &Call, tensors: &[Tensor]) -> Result<Tensor> {
    let results = call.with(tensors)?.run()?;
    let flat = |y: &Tensor| parts(y)?.reshape([-1]);
    let floats = results.iter().filter(|y| differentiable(y)).map(flat).collect::<Result<Vec<_>>>()?;
    if let [only] = &floats[..] { Ok(only.clone()) } else { Tensor::cat(&floats, 0) }
}

/// The tensors of a call whose first matrices are Hermitian, where the sample says so: as a function of any.
fn symmetrized(sample: &Sample, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut tensors = tensors.to_vec();
    if sample.is_symmetric() {
        tensors[0] = tensors[0].add(&tensors[0].adjoint()?)?.mul(0.5)?;
    }
    Ok(tensors)
}

/// Whether there is a derivative to compare with finite differences, which needs elements.
fn is_differentiable(call: &Call) -> Result<bool> {
    Ok(call.op.derivative != Derivative::None && !call.is_empty() && call.gradients()?.1.is_some())
}

fn owned(call: &Call) -> Vec<Tensor> {
    call.tensors().into_iter().cloned().collect()
}

#[test]
fn first_derivatives_agree_with_differences() {
    for_all_samples(with_a_rule, |call, sample| {
        if !text(is_differentiable(call))? {
            return Ok(false);
        }
        let inputs = owned(call);
        text(gradcheck(|x| joined(call, &symmetrized(sample, x)?), &inputs))?;
        // Each result alone, so that the others have no cotangent.
        let results = text(call.run())?;
        if results.len() > 1 {
            for at in (0..results.len()).filter(|&at| differentiable(&results[at])) {
                let result = |x: &[Tensor]| {
                    let mut all = call.with(&symmetrized(sample, x)?)?.run()?;
                    Ok(all.swap_remove(at))
                };
                text(gradcheck(result, &inputs))?;
            }
        }
        Ok(true)
    });
}

#[test]
fn second_derivatives_agree_with_differences() {
    for_all_samples(with_a_rule, |call, sample| {
        if !text(is_differentiable(call))? {
            return Ok(false);
        }
        text(gradgradcheck(|x| joined(call, &symmetrized(sample, x)?), &owned(call)))?;
        Ok(true)
    });
}

#[test]
fn gradients_have_the_shape_and_dtype_of_their_leaves_and_say_something() {
    for_all_samples(with_a_rule, |call, sample| {
        let (results, grads) = text(call.gradients())?;
        let Some(grads) = grads else {
            let expected = call.op.derivative == Derivative::None
                || !call.tensors().iter().any(|x| differentiable(x))
                || !results.iter().any(differentiable);
            return if expected { Ok(false) } else { Err("no result carries a gradient".into()) };
        };
        if call.op.derivative == Derivative::None {
            return Err("there is a gradient, and the entry says that there is none".into());
        }
        let tensors = call.tensors();
        // Without elements there is nothing to compare.
        let says = |y: &&Tensor| differentiable(y) && y.numel() > 0;
        let elements = results.iter().any(|y| says(&y)) && tensors.iter().any(says);
        let mut informative = false;
        let floats = tensors.iter().filter(|x| differentiable(x));
        for (x, g) in floats.zip(&grads) {
            let Some(g) = g else { return Err("an input got no gradient".into()) };
            if g.shape() != x.shape() || g.dtype() != x.dtype() {
                let (a, b) = (x.shape(), g.shape());
                return Err(format!("an input of {a:?} {} got a gradient of {b:?} {}", x.dtype(), g.dtype()));
            }
            informative |= text(parts(g).and_then(|g| g.to_vec::<f64>()))?.iter().any(|&v| v != 0.0);
        }
        let declared_zero = sample.has_zero_derivative() || call.op.derivative == Derivative::Zero;
        match (informative, declared_zero) {
            (false, false) if elements => Err("all gradients are zero, so the sample proves nothing".into()),
            (true, true) => Err("the derivative was declared zero and is not".into()),
            _ => Ok(true),
        }
    });
}

#[test]
fn names_and_aliases_are_those_of_one_operation() {
    let mut seen = std::collections::HashMap::new();
    for op in list() {
        for name in std::iter::once(&op.name).chain(op.aliases) {
            let other = seen.insert(*name, op.name);
            assert!(other.is_none(), "{name} is {} and {}", op.name, other.unwrap_or_default());
        }
    }
}

#[test]
fn every_operation_with_a_derivative_has_a_sample_that_shows_it() {
    for op in tried().into_iter().filter(|op| op.derivative == Derivative::Rule) {
        let shows = |sample: &Sample| {
            !sample.has_zero_derivative()
                && Call::new(op, sample, Device::Cpu)
                    .and_then(|call| Ok(!call.is_empty() && call.gradients()?.1.is_some()))
                    .unwrap_or(false)
        };
        assert!(samples(op).iter().any(shows), "no sample of {} has a derivative", op.name);
    }
}

/// Results and gradients of both calls agree.
fn same_answers(a: &Call, b: &Call, tolerance: f64) -> Result<(), String> {
    let ((a, a_grads), (b, b_grads)) = (text(a.gradients())?, text(b.gradients())?);
    if a.len() != b.len() {
        return Err(format!("{} results instead of {}", a.len(), b.len()));
    }
    for (a, b) in a.iter().zip(&b) {
        if !text(close(a, b, tolerance))? {
            return Err(format!("{a:?} instead of {b:?}"));
        }
    }
    for (a, b) in same_gradients(&a_grads, &b_grads)? {
        if !text(close(a, b, tolerance))? {
            return Err(format!("a gradient of {a:?} instead of {b:?}"));
        }
    }
    Ok(())
}

/// The gradients that both have; it is a fault if only one has one.
fn same_gradients<'a>(
    a: &'a Option<Vec<Option<Tensor>>>,
    b: &'a Option<Vec<Option<Tensor>>>,
) -> Result<Vec<(&'a Tensor, &'a Tensor)>, String> {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return Ok(Vec::new()),
        (Some(_), None) => return Err("there are gradients where there should be none".into()),
        (None, Some(_)) => return Err("no result has a gradient".into()),
    };
    if a.len() != b.len() {
        return Err(format!("{} gradients instead of {}", a.len(), b.len()));
    }
    let mut found = Vec::new();
    for (a, b) in a.iter().zip(b) {
        match (a, b) {
            (Some(a), Some(b)) => found.push((a, b)),
            (None, None) => {}
            (a, b) => return Err(format!("a gradient of {a:?} instead of {b:?}")),
        }
    }
    Ok(found)
}

#[test]
fn results_and_gradients_do_not_depend_on_the_layout() {
    for_all_samples(of_floats, |call, _| {
        if call.op.reads_layout || call.tensors().is_empty() {
            return Ok(false);
        }
        for layout in 0..LAYOUTS {
            let other = text(call.map(|x| relaid(x, layout)))?;
            for (x, original) in both(other.tensors(), call.tensors()) {
                assert!(close(x, original, 0.0).unwrap_or(false), "laying {original} out changed the values");
            }
            // Matrix products and sums may add in another order.
            same_answers(&other, call, 1e-12 * call.op.tolerance).map_err(|e| format!("layout {layout}: {e}"))?;
        }
        Ok(true)
    });
}

#[test]
fn repeated_elements_of_stride_zero_are_read_like_any_others() {
    for_all_samples(
        |_| false,
        |call, _| {
            if call.op.reads_layout || call.tensors().iter().any(|x| !x.dtype().is_float()) {
                return Ok(false);
            }
            let repeat = |x: &Tensor| {
                if x.rank() == 0 || x.shape()[0] == 0 { Ok(x.clone()) } else { x.narrow(0, 0, 1)?.expand(x.shape()) }
            };
            let repeated = text(call.map(repeat))?;
            let copied =
                text(repeated.map(|x| Tensor::from_vec(x.to_vec::<f64>()?, x.shape())?.to_device(x.device())))?;
            // Some functions refuse repeated rows, as the inverse does.
            let (a, b) = match (repeated.run(), copied.run()) {
                (Err(a), Err(b)) if a.to_string() == b.to_string() => return Ok(false),
                (a, b) => (text(a)?, text(b)?),
            };
            for (a, b) in both(&a, &b) {
                if !text(close(a, b, 1e-12 * call.op.tolerance))? {
                    return Err(format!("{a:?} instead of {b:?}"));
                }
            }
            Ok(true)
        },
    );
}

#[test]
fn every_float_dtype_gives_the_same_answer_to_its_precision() {
    for_all_samples(of_floats, |call, _| {
        if only_draws(call.op) || call.tensors().iter().all(|x| !x.dtype().is_float()) {
            return Ok(false);
        }
        for (dtype, epsilon) in [(DType::F32, 1e-5), (DType::F16, 8e-3), (DType::BF16, 6e-2)] {
            let epsilon = epsilon * call.op.tolerance;
            let cast = text(call.cast(dtype))?;
            if call.op.full_precision && dtype != DType::F32 {
                match cast.run() {
                    Err(e) if e.kind() == ErrorKind::DType && e.to_string().contains(dtype.name()) => continue,
                    other => return Err(format!("{dtype} should be refused by name: {other:?}")),
                }
            }
            // The exact answer for the rounded inputs and cotangents, so that rounding at a jump does not count.
            let (results, grads) = text(cast.gradients())?;
            let (expected, exact) = text(text(cast.cast(DType::F64))?.gradients_as(&results))?;
            for (result, expected) in both(&results, &expected).filter(|(_, expected)| differentiable(expected)) {
                let wanted = if call.op.in_f64 { DType::F64 } else { call.named_dtype().unwrap_or(dtype) };
                let wanted = if expected.dtype().is_complex() { wanted.to_complex() } else { wanted };
                if result.dtype() != wanted {
                    return Err(format!("{dtype} inputs gave a result of {}", result.dtype()));
                }
                let wide = |x: &Tensor| parts(x)?.to_dtype(DType::F64);
                if !text(close(&text(wide(result))?, &text(wide(expected))?, epsilon))? {
                    return Err(format!("in {dtype}: {result:?} instead of {expected:?}"));
                }
            }
            let (tensors, found) = (cast.tensors(), same_gradients(&grads, &exact)?);
            let floats = tensors.iter().filter(|x| differentiable(x));
            for (x, g) in floats.zip(grads.iter().flatten()) {
                if !g.as_ref().is_some_and(|g| g.dtype() == x.dtype() && g.shape() == x.shape()) {
                    return Err(format!("in {dtype} a gradient has not its leaf's shape and dtype"));
                }
            }
            for (g, exact) in found {
                let off = text(distance(g, exact))?;
                let allowed = gradients::tolerance(call.op.name, dtype);
                if off.is_nan() || off > allowed {
                    return Err(format!(
                        "in {dtype} a gradient is off by {off:.1e} > {allowed:.1e}: {g:?} instead of {exact:?}"
                    ));
                }
            }
        }
        Ok(true)
    });
}

/// Narrow integers are refused, or give what wide ones give, as long as the numbers are small.
#[test]
fn every_integer_dtype_gives_the_same_answer() {
    for_all_samples(
        |_| false,
        |call, _| {
            if call.op.reads_layout || call.op.random || call.tensors().iter().all(|x| !x.dtype().is_float()) {
                return Ok(false);
            }
            let as_ints =
                |dtype: DType| call.map(|x| if x.dtype().is_float() { x.to_dtype(dtype) } else { Ok(x.clone()) });
            let wide = text(as_ints(DType::I64))?.run();
            for dtype in [DType::I32, DType::I16, DType::I8] {
                match (&wide, text(as_ints(dtype))?.run()) {
                    (Err(_), Err(_)) => {}
                    (Ok(wide), Ok(narrow)) => {
                        for (wide, narrow) in both(wide, &narrow) {
                            let narrow = text(narrow.to_dtype(wide.dtype()))?;
                            if !text(close(&narrow, wide, 1e-6))? {
                                return Err(format!("in {dtype}: {narrow:?} instead of {wide:?}"));
                            }
                        }
                    }
                    (wide, narrow) => return Err(format!("in {dtype}: {narrow:?} where i64 gives {wide:?}")),
                }
            }
            Ok(wide.is_ok())
        },
    );
}

/// A number out of range for an integer dtype is refused, or the result is that of wide integers, wrapped around.
#[test]
fn numbers_that_the_dtype_does_not_have_are_refused_or_right() -> Result<()> {
    let mut wrong = Vec::new();
    let (mut right, mut refused) = (0, 0);
    for op in tried() {
        let params: Vec<_> = op.params().collect();
        let operands = params.iter().filter(|param| param.kind == ArgKind::Operand).count();
        if operands == 0 || params[0].kind != ArgKind::Tensor || op.random {
            continue;
        }
        for number in [300_i64, 256, -1, 511] {
            let call = |dtype: DType| {
                let x = Tensor::from_slice(&[1_u8, 2, 44, 255], [4])?.to_dtype(dtype)?;
                let mask = x.eq(2)?;
                let index = mask.to_dtype(DType::I64)?;
                let arg = |param: &&cotangent::ops::Param| match (param.kind, param.name) {
                    (ArgKind::Tensor, "mask" | "condition") => Arg::from(&mask),
                    (ArgKind::Tensor, "index") => Arg::from(&index),
                    (ArgKind::Tensor, _) if op.name == "where" => Arg::from(&mask),
                    (ArgKind::Operand, "other") if op.name == "where" => Arg::from(&x),
                    (ArgKind::Tensor, _) if param.default.is_none() => Arg::from(&x),
                    (ArgKind::Operand, _) => Arg::from(number),
                    (ArgKind::Dim, _) => Arg::from(0_isize),
                    _ => param.default.map_or(Arg::None, |default| default()),
                };
                op.call(&params.iter().map(arg).collect::<Vec<Arg>>())
            };
            match (call(DType::U8), call(DType::I64)) {
                (Ok(narrow), Ok(wide)) => {
                    let wide = wide[0].to_dtype(narrow[0].dtype())?;
                    if !close(&narrow[0], &wide, 1e-5)? {
                        wrong.push(format!("{} with {number}: {} instead of {wide}", op.name, narrow[0]));
                    }
                    right += 1;
                }
                // Some operations refuse these numbers, or all integers.
                (Err(e), wide) => {
                    let text = e.to_string();
                    if wide.is_ok() && !(text.contains("u8") && text.contains(&number.to_string())) {
                        wrong.push(format!("{} with {number}: {text}", op.name));
                    }
                    refused += 1;
                }
                (Ok(narrow), Err(e)) => {
                    wrong.push(format!("{} with {number}: {}, where i64 gives {e}", op.name, narrow[0]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!all_are_tried() || right > 100 && refused > 30, "{right} were right, {refused} were refused");
    Ok(())
}

#[test]
fn extreme_values_pass_through_every_layout_alike() {
    const EXTREMES: [f64; 8] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, -1e300, 5e-324, -0.0, 0.0];
    for_all_samples(of_floats, |call, _| {
        if call.op.reads_layout || call.tensors().iter().all(|x| x.dtype() != DType::F64) {
            return Ok(false);
        }
        let mut number = 0;
        let extreme = text(call.map(|x| {
            if x.dtype() != DType::F64 {
                return Ok(x.clone());
            }
            let mut values = x.to_vec::<f64>()?;
            for (i, v) in values.iter_mut().enumerate().filter(|(i, _)| i % 2 == 0) {
                *v = EXTREMES[(i / 2 + number) % EXTREMES.len()];
            }
            number += 3;
            Tensor::from_vec(values, x.shape())?.to_device(x.device())
        }))?;
        // Some functions refuse such values, but none may panic, and all must answer alike in every layout.
        let plain = extreme.run();
        for layout in 0..LAYOUTS {
            match (&plain, text(extreme.map(|x| relaid(x, layout)))?.run()) {
                (Ok(a), Ok(b)) => {
                    for (a, b) in both(a, &b) {
                        if !text(close(b, a, 1e-9 * call.op.tolerance))? {
                            return Err(format!("layout {layout}: {b:?} instead of {a:?}"));
                        }
                    }
                }
                (Err(_), Err(_)) => {}
                (a, b) => return Err(format!("layout {layout}: {b:?} instead of {a:?}")),
            }
        }
        Ok(true)
    });
}

#[test]
fn nothing_is_recorded_where_no_gradient_is_required() {
    for_all_samples(every, |call, _| {
        let graph = text(call.run())?.iter().any(|y| y.requires_grad() || y.grad_fn().is_some());
        if graph { Err("a result carries a graph".into()) } else { Ok(true) }
    });
}

#[test]
fn views_share_the_memory_of_their_first_argument() {
    for op in tried().into_iter().filter(|op| op.view) {
        for sample in samples(op) {
            let call = Call::new(op, &sample, Device::Cpu).unwrap_or_else(|e| panic!("{}: {e}", op.name));
            let results = call.run().unwrap_or_else(|e| panic!("{}{sample:?}: {e}", op.name));
            let first = call.tensors().first().copied().cloned().expect("a view is one of a tensor");
            let shares = |y: &Tensor| y.numel() == 0 || y.shares_memory(&first);
            assert!(results.iter().all(shares), "{}{sample:?} is no view", op.name);
        }
    }
}

#[test]
fn bad_inputs_are_refused_by_name_and_value() {
    let (mut faults, mut without) = (Vec::new(), Vec::new());
    for op in tried() {
        let cases = op.error_cases().unwrap_or_else(|e| panic!("the error cases of {} cannot be made: {e}", op.name));
        if cases.is_empty() {
            without.push(op.name);
        }
        for case in cases {
            // Arguments that do not bind are refused, too.
            match case.call.bind(op).and_then(|args| op.call(&args)) {
                Ok(y) => faults.push(format!("{}: {case:?} gave {y:?}", op.name)),
                Err(e) => {
                    let message = e.to_string();
                    let missing: Vec<_> = case.message.iter().filter(|part| !message.contains(*part)).collect();
                    if !missing.is_empty() || case.message.is_empty() {
                        faults.push(format!("{}: {case:?}: {message:?} does not say {missing:?}", op.name));
                    }
                    if e.op() != op.name || !message.starts_with(op.name) {
                        faults.push(format!("{}: {case:?}: {message:?} names {:?}", op.name, e.op()));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    // Unary functions accept any shape.
    let few = without.len() * 4 > list().len();
    assert!(!(all_are_tried() && few), "{} operations have no error cases: {without:?}", without.len());
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let run = |threads: usize| -> Vec<(String, Vec<u64>)> {
        let all = cotangent::settings::with_num_threads(threads, || {
            let mut all = Vec::new();
            for (op, sample) in
                tried().into_iter().flat_map(|op| samples(op).into_iter().map(move |sample| (op, sample)))
            {
                let call = Call::new(op, &sample, Device::Cpu).expect("arguments that fit");
                let (results, grads) = call.gradients().expect("gradients");
                let mut bits = Vec::new();
                for t in results.iter().chain(grads.iter().flatten().flatten()) {
                    let values = parts(t).and_then(|t| t.to_dtype(DType::F64)?.to_vec::<f64>()).expect("values");
                    bits.extend(values.iter().map(|x| x.to_bits()));
                }
                all.push((format!("{}: {sample:?}", op.name), bits));
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

/// Every operation on a GPU against the CPU: values and gradients, in every float dtype, and in f64 in every layout.
#[test]
fn a_gpu_gives_the_cpus_answers() {
    let Some(gpu) = gpu() else { return };
    let tried = tried();
    // Many kernels are compiled for it: several threads at a time.
    let next = AtomicUsize::new(0);
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while let Some(op) = tried.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = compare_everywhere(op, gpu);
                    faults.lock().expect("no thread has panicked").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no thread has panicked");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn compare_everywhere(op: &'static Op, gpu: Device) -> Vec<String> {
    let mut faults = Vec::new();
    for sample in samples(op) {
        for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 2e-5), (DType::F16, 1e-2), (DType::BF16, 8e-2)] {
            for layout in if dtype == DType::F64 { 0..=LAYOUTS } else { LAYOUTS..=LAYOUTS } {
                if (layout < LAYOUTS && op.reads_layout) || (op.full_precision && dtype.size() < 4) {
                    continue;
                }
                if let Err(fault) = compare(op, &sample, gpu, dtype, layout, tolerance * op.tolerance) {
                    faults.push(format!("{}{sample:?} in {dtype}, layout {layout}: {fault}", op.name));
                }
            }
        }
    }
    faults
}

fn compare(
    op: &'static Op,
    sample: &Sample,
    gpu: Device,
    dtype: DType,
    layout: usize,
    tolerance: f64,
) -> Result<(), String> {
    let here = text(Call::new(op, sample, Device::Cpu).and_then(|call| call.cast(dtype)))?;
    let there = text(Call::new(op, sample, gpu).and_then(|call| call.cast(dtype)))?;
    let there = text(there.map(|x| if layout < LAYOUTS { relaid(x, layout) } else { Ok(x.clone()) }))?;
    let (results, grads) = text(there.gradients())?;
    if let Some(y) = results.iter().chain(grads.iter().flatten().flatten()).find(|y| y.device() != gpu) {
        return Err(format!("a result is on {}", y.device()));
    }
    same_answers(&there, &here, tolerance)
}

#[test]
fn the_table_in_the_documentation_is_made_from_the_list() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/ops/TABLE.md");
    // Git may have converted the line endings.
    let file = std::fs::read_to_string(path).unwrap_or_default().replace('\r', "");
    let command = "cargo run --example ops -- --markdown > src/ops/TABLE.md";
    assert!(file == table::markdown(), "src/ops/TABLE.md is not what the list gives; regenerate it: {command}");
}
