//! `vmap` gives what a loop over the examples gives: values and derivatives, of every operation.

use cotangent::autograd::{GradOptions, grad_with, hessian, jacobian, jvp, value_and_grad};
use cotangent::ops::{self, Arg, Derivative, Op};
use cotangent::{
    DType, Generator, Result, Tensor, VmapFallback, VmapOptions, VmapRandomness, keepdim, tensor, vmap, vmap_all,
    vmap_with,
};

use std::collections::BTreeMap;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

const EXAMPLES: usize = 3;

/// Operations that run for each example by itself, for some arguments at least, and why.
const LOOPS: &[(&str, &str)] = &[
];

/// A tensor for one example: near the sample's, and other than that of the next. Indices and masks are the sample's in another
/// order, so that they are in range, and choose as many elements.
fn example(x: &Tensor, at: usize) -> Result<Tensor> {
    match x.dtype() {
        DType::F64 => x.mul(1.0 - 0.01 * at as f64),
        dtype if dtype.is_complex() || x.numel() < 2 => Ok(x.clone()),
        _ => x.flatten(0, -1)?.roll(at as isize, 0)?.reshape(x.shape()),
    }
}

/// The same arguments with other tensors in them.
fn fill(args: &[Arg], tensors: &[Tensor]) -> Result<Vec<Arg>> {
    let mut next = tensors.iter();
    let mut swap = |x: &Tensor| Ok(next.next().unwrap_or(x).clone());
    args.iter().map(|arg| arg.map_tensors(&mut swap)).collect()
}

fn real(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_complex() { x.view_as_real() } else { Ok(x.clone()) }
}

fn close(a: &Tensor, b: &Tensor) -> Result<bool> {
    Ok(a.shape() == b.shape() && real(a)?.allclose_with(&real(b)?, (1e-9, 1e-9))? || {
        let (a, b) = (real(a)?.to_vec_f64()?, real(b)?.to_vec_f64()?);
        a.len() == b.len()
            && a.iter()
                .zip(&b)
                .all(|(x, y)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-9 * (1.0 + y.abs()))
    })
}

trait Values {
    fn to_vec_f64(&self) -> Result<Vec<f64>>;
}

impl Values for Tensor {
    fn to_vec_f64(&self) -> Result<Vec<f64>> {
        self.to_dtype(DType::F64)?.to_vec()
    }
}

/// A number that depends on every element of some results, each in its own way.
fn weighed(results: &[Tensor]) -> Result<Option<Tensor>> {
    let mut total: Option<Tensor> = None;
    for y in results.iter().filter(|y| y.requires_grad()) {
        let y = real(y)?.to_dtype(DType::F64)?;
        let weights = Tensor::arange(1, y.numel() + 1)?.to_dtype(DType::F64)?.mul(0.7)?.sin()?.reshape(y.shape())?;
        let sum = y.mul(&weights)?.sum(..)?;
        total = Some(match total {
            Some(total) => total.add(&sum)?,
            None => sum,
        });
    }
    Ok(total)
}

/// What is wrong with operations inside of a `vmap`, and which of them ran for each example by itself.
#[derive(Default)]
struct Findings {
    faults: Vec<String>,
    /// By name, with one of the calls.
    loops: BTreeMap<&'static str, String>,
}

impl Findings {
    /// What `f` gives where loops are refused, or else with a loop, and whether there was one.
    fn run<T>(
        &mut self,
        op: &'static Op,
        args: &[Arg],
        options: &VmapOptions,
        f: impl Fn(VmapOptions) -> Result<T>,
    ) -> (Result<T>, bool) {
        match f(options.clone().fallback(VmapFallback::Refuse)) {
            Err(error) if error.to_string().contains("there is no batching rule") => {
                let args: Vec<String> = args.iter().map(Arg::to_string).collect();
                self.loops.entry(op.name).or_insert_with(|| format!("({}), {options:?}: {error}", args.join(", ")));
                (f(options.clone()), true)
            }
            done => (done, false),
        }
    }
}

/// Compares an operation inside of a `vmap` with a loop, for all samples. `which` says of a tensor, and its place among those
/// of floats, or among the others, whether it differs between examples.
fn calls(op: &'static Op, which: impl Fn(&Tensor, usize) -> bool, findings: &mut Findings) -> Result<()> {
    for (number, sample) in op.samples()?.iter().enumerate() {
        let args = sample.bind(op)?;
        let tensors: Vec<Tensor> = args.iter().flat_map(Arg::tensors).cloned().collect();
        let is_float = |x: &Tensor| x.dtype() == DType::F64;
        let place = |at: usize| tensors[..at].iter().filter(|x| is_float(x) == is_float(&tensors[at])).count();
        let differs: Vec<bool> = (0..tensors.len()).map(|at| which(&tensors[at], place(at))).collect();
        if !differs.contains(&true) {
            continue;
        }
        let of = |at: usize| -> Result<Vec<Tensor>> {
            tensors.iter().zip(&differs).map(|(x, &own)| if own { example(x, at) } else { Ok(x.clone()) }).collect()
        };
        let each: Vec<Vec<Tensor>> = (0..EXAMPLES).map(of).collect::<Result<_>>()?;
        let column = |k: usize| Tensor::stack(&each.iter().map(|all| all[k].clone()).collect::<Vec<_>>(), 0);
        let stacked: Vec<Tensor> =
            (0..tensors.len()).map(|k| if differs[k] { column(k) } else { Ok(tensors[k].clone()) }).collect::<Result<_>>()?;
        let refs: Vec<&Tensor> = stacked.iter().collect();
        let in_dims: Vec<Option<isize>> = differs.iter().map(|&own| own.then_some(0)).collect();
        let options = VmapOptions::new().in_dims(in_dims.clone());
        let fault = |what: &str| format!("{} sample {number} ({differs:?} batched): {what}", op.name);
        let call = |x: &[Tensor]| op.call(&fill(&args, x)?);
        // Values. In another order arguments may be none of the operation's.
        let Ok(expected) = each.iter().map(|x| call(x)).collect::<Result<Vec<Vec<Tensor>>>>() else { continue };
        let expected = match together(&expected) {
            Some(expected) => expected?,
            None => continue,
        };
        let (found, loops) = findings.run(op, &args, &options, |options| vmap_all(call, &refs, options));
        match found {
            Ok(found) => {
                for (k, (y, want)) in found.iter().zip(&expected).enumerate() {
                    if !close(y, want)? {
                        findings.faults.push(fault(&format!("result {k} is {y:?}, not {want:?}")));
                    }
                }
            }
            Err(error) => {
                findings.faults.push(fault(&error.to_string()));
                continue;
            }
        }
        if !loops {
            // A batch of none, and one in another.
            let none: Vec<Tensor> =
                stacked.iter().zip(&differs).map(|(x, &own)| if own { x.narrow(0, 0, 0) } else { Ok(x.clone()) }).collect::<Result<_>>()?;
            match vmap_all(call, &none.iter().collect::<Vec<_>>(), options.clone()) {
                Err(error) => findings.faults.push(fault(&format!("no examples: {error}"))),
                Ok(found) => {
                    for (y, want) in found.iter().zip(&expected) {
                        if y.shape()[0] != 0 || y.shape()[1..] != want.shape()[1..] {
                            findings.faults.push(fault(&format!("no examples give {:?}, not {:?}", y.shape(), want.shape())));
                        }
                    }
                }
            }
            let twice = |x: &Tensor, own: bool| if own { Tensor::stack(&[x.clone(), x.flip(0)?], 0) } else { Ok(x.clone()) };
            let pairs: Vec<Tensor> =
                stacked.iter().zip(&differs).map(|(x, &own)| twice(x, own)).collect::<Result<_>>()?;
            let inner = |x: &[Tensor]| vmap_all(call, &x.iter().collect::<Vec<_>>(), options.clone());
            match vmap_all(inner, &pairs.iter().collect::<Vec<_>>(), options.clone()) {
                Err(error) => findings.faults.push(fault(&format!("nested: {error}"))),
                Ok(found) => {
                    for (k, (y, want)) in found.iter().zip(&expected).enumerate() {
                        if !close(y, &twice(want, true)?)? {
                            findings.faults.push(fault(&format!("nested, result {k} is {y:?}")));
                        }
                    }
                }
            }
        }
        if op.derivative != Derivative::Rule || op.random || sample.has_zero_derivative() {
            continue;
        }
        // Derivatives inside, of each example by itself: those of a loop, also by what all examples share.
        let floats: Vec<usize> = (0..tensors.len()).filter(|&k| is_float(&tensors[k])).collect();
        let derivative = |inputs: &[Tensor]| -> Result<Vec<Tensor>> {
            let mut all = inputs.to_vec();
            for &k in &floats {
                all[k] = all[k].detach().requires_grad_(true)?;
            }
            let Some(total) = weighed(&call(&all)?)? else { return Ok(Vec::new()) };
            let leaves: Vec<&Tensor> = floats.iter().map(|&k| &all[k]).collect();
            let grads = grad_with(&total, &leaves, GradOptions::new())?;
            grads.into_iter().zip(leaves).map(|(g, leaf)| g.map_or_else(|| leaf.zeros_like(), Ok)).collect()
        };
        let Ok(expected) = each.iter().map(|inputs| derivative(inputs)).collect::<Result<Vec<_>>>() else { continue };
        let Some(wanted) = together(&expected).transpose()? else { continue };
        match findings.run(op, &args, &options, |options| vmap_all(derivative, &refs, options)).0 {
            Ok(found) => {
                for (k, (g, want)) in found.iter().zip(&wanted).enumerate() {
                    if !close(g, want)? {
                        findings.faults.push(fault(&format!("derivative {k} inside is {g:?}, not {want:?}")));
                    }
                }
            }
            Err(error) => {
                findings.faults.push(fault(&format!("the derivative inside: {error}")));
                continue;
            }
        }
        // From outside the sum over examples is differentiated, also by what they share.
        let mut all = stacked.clone();
        for &k in &floats {
            all[k] = all[k].detach().requires_grad_(true)?;
        }
        let leaves: Vec<&Tensor> = floats.iter().map(|&k| &all[k]).collect();
        let total = vmap_with(
            |x| weighed(&call(x)?)?.map_or_else(|| Tensor::zeros_with([], DType::F64), Ok),
            &all.iter().collect::<Vec<_>>(),
            options,
        )?;
        if !total.requires_grad() {
            continue;
        }
        let grads = match grad_with(&total.sum(..)?, &leaves, GradOptions::new()) {
            Ok(grads) => grads,
            Err(error) => {
                findings.faults.push(fault(&format!("the derivative from outside: {error}")));
                continue;
            }
        };
        for (k, (g, want)) in grads.iter().zip(&wanted).enumerate() {
            let want = if differs[floats[k]] { want.clone() } else { want.sum(0)? };
            let g = g.clone().map_or_else(|| want.zeros_like(), Ok)?;
            if !close(&g, &want)? {
                findings.faults.push(fault(&format!("derivative {k} from outside is {g:?}, not {want:?}")));
            }
        }
    }
    Ok(())
}

/// The results of all examples, each in one tensor; `None` if their shapes differ.
fn together(each: &[Vec<Tensor>]) -> Option<Result<Vec<Tensor>>> {
    let shapes = |all: &[Tensor]| all.iter().map(|x| x.shape().to_vec()).collect::<Vec<_>>();
    if each.iter().any(|all| shapes(all) != shapes(&each[0])) {
        return None;
    }
    let column = |k: usize| Tensor::stack(&each.iter().map(|all| all[k].clone()).collect::<Vec<_>>(), 0);
    Some((0..each[0].len()).map(column).collect())
}

/// Every operation with these tensors batched. One that loops, and is not known to, is a fault.
fn every_operation(which: impl Fn(&Tensor, usize) -> bool + Copy) -> Outcome {
    let mut findings = Findings::default();
    let only = std::env::var("COTANGENT_TEST_OPS").ok();
    for &op in ops::list() {
        let asked = only.as_ref().is_none_or(|names| names.split(',').any(|name| name == op.name));
        if op.random || op.reads_layout || !asked {
            continue;
        }
        calls(op, which, &mut findings).map_err(|error| format!("{}: {error}", op.name))?;
    }
    let Findings { mut faults, loops } = findings;
    let known = |name: &&str| LOOPS.iter().any(|(known, _)| known == name);
    let unknown = loops.into_iter().filter(|(name, _)| !known(name));
    faults.extend(unknown.map(|(name, call)| format!("{name} has no batching rule for {call}")));
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

fn is_float(x: &Tensor) -> bool {
    x.dtype() == DType::F64
}

#[test]
fn every_operation_on_batched_tensors() -> Outcome {
    every_operation(|x, _| is_float(x))
}

#[test]
fn every_operation_with_the_first_tensor_batched() -> Outcome {
    every_operation(|x, k| is_float(x) && k == 0)
}

#[test]
fn every_operation_with_the_second_tensor_batched() -> Outcome {
    every_operation(|x, k| is_float(x) && k == 1)
}

#[test]
fn every_operation_with_indices_and_masks_batched() -> Outcome {
    every_operation(|x, _| !is_float(x) && !x.dtype().is_complex())
}

#[test]
fn every_operation_with_everything_batched() -> Outcome {
    every_operation(|x, _| !x.dtype().is_complex())
}

#[test]
fn functions_nest() -> Outcome {
    let (x, y) = (Tensor::randn_with([2, 3], DType::F64)?, Tensor::randn_with([4, 3], DType::F64)?);
    // All pairs of rows.
    let products = vmap(|a| vmap(|b| a[0].dot(&b[0]), &[&y]), &[&x])?;
    assert!(products.allclose(&x.matmul(&y.t()?)?)?);
    // The inner function over another dimension than the outer.
    let z = Tensor::randn_with([2, 3, 4], DType::F64)?;
    let columns = VmapOptions::new().in_dims([Some(1)]).out_dim(1);
    let sorted = vmap(|z| vmap_with(|column| Ok(column[0].sort(0)?.0), &[&z[0]], columns), &[&z])?;
    assert!(sorted.allclose(&z.sort(1)?.0)?);
    Ok(())
}

#[test]
fn derivatives_of_single_examples() -> Outcome {
    let x = Tensor::randn_with([5, 3], DType::F64)?;
    let w = Tensor::randn_with([3, 3], DType::F64)?;
    let f = |w: &Tensor, x: &Tensor| w.matmul(x)?.tanh()?.square()?.sum(..);
    // By what all examples share, which has one gradient for each of them.
    let found = vmap(|x| Ok(value_and_grad(|w| f(&w[0], &x[0]), &[&w])?.1.swap_remove(0)), &[&x])?;
    for at in 0..5 {
        let want = value_and_grad(|w| f(&w[0], &x.select(0, at)?), &[&w])?.1.swap_remove(0);
        assert!(found.select(0, at)?.allclose(&want)?);
    }
    // The same from a leaf of outside.
    let leaf = w.clone().requires_grad_(true)?;
    let inside = vmap(
        |x| Ok(grad_with(&f(&leaf, &x[0])?, &[&leaf], GradOptions::new())?.swap_remove(0).unwrap_or(w.zeros_like()?)),
        &[&x],
    )?;
    assert!(inside.allclose(&found)?);
    // After it the gradient of the sum.
    vmap(|x| f(&leaf, &x[0]), &[&x])?.sum(..)?.backward()?;
    assert!(leaf.grad().ok_or("there is one")?.allclose(&found.sum(0)?)?);
    // Inside, there is no place for a gradient of each example.
    let error = vmap(
        |x| {
            f(&leaf, &x[0])?.backward()?;
            Ok(x[0].clone())
        },
        &[&x],
    )
    .err()
    .ok_or("it is refused")?;
    assert!(error.to_string().contains("each example"), "{error}");
    let hessians = vmap(|x| hessian(|w| f(w, &x[0]), &w), &[&x])?;
    let jacobians = vmap(|x| jacobian(|x| w.matmul(x)?.tanh(), &x[0]), &[&x])?;
    let tangents = vmap(|x| Ok(jvp(|x| w.matmul(&x[0])?.tanh(), &[&x[0]], &[&x[0]])?.1), &[&x])?;
    for at in 0..5 {
        let x = x.select(0, at)?;
        assert!(hessians.select(0, at)?.allclose(&hessian(|w| f(w, &x), &w)?)?);
        assert!(jacobians.select(0, at)?.allclose(&jacobian(|x| w.matmul(x)?.tanh(), &x)?)?);
        assert!(tangents.select(0, at)?.allclose(&jvp(|x| w.matmul(&x[0])?.tanh(), &[&x], &[&x])?.1)?);
    }
    // And a derivative of a whole vmap.
    let outer = jacobian(|w| vmap(|x| f(w, &x[0]), &[&x]), &w)?;
    assert!(outer.allclose(&found)?);
    Ok(())
}

#[test]
fn bad_calls_are_refused() -> Outcome {
    let x = Tensor::randn([2, 3])?;
    let refused = |result: Result<Tensor>, words: &[&str]| {
        let error = result.map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(words.iter().all(|word| error.contains(word)), "{error:?} has not all of {words:?}");
    };
    refused(
        vmap(
            |x| {
                x[0].sum(..)?.item::<f32>()?;
                Ok(x[0].clone())
            },
            &[&x],
        ),
        &["item", "vmap"],
    );
    refused(
        vmap(
            |x| {
                x[0].to_vec::<f32>()?;
                Ok(x[0].clone())
            },
            &[&x],
        ),
        &["to_vec", "vmap"],
    );
    refused(vmap(|x| Ok(x[0].clone()), &[&x, &Tensor::zeros([4])?]), &["vmap", "[2, 3]", "[4]"]);
    refused(vmap(|x| Ok(x[0].clone()), &[&tensor!(1.0)?]), &["vmap", "rank 0"]);
    refused(
        vmap_with(|x| Ok(x[0].clone()), &[&x], VmapOptions::new().in_dims([None])),
        &["vmap", "dimension of examples"],
    );
    refused(vmap_with(|x| Ok(x[0].clone()), &[&x], VmapOptions::new().in_dims([Some(0), None])), &["vmap", "1 inputs"]);
    refused(vmap_with(|x| Ok(x[0].clone()), &[&x], VmapOptions::new().out_dim(2)), &["vmap", "2"]);
    refused(vmap(|x| x[0].cumsum(1), &[&x]), &["cumsum", "1", "rank 1"]);
    refused(vmap(|x| x[0].cumsum(-2), &[&x]), &["cumsum", "-2", "rank 1"]);
    refused(vmap(|x| x[0].nonzero(), &[&tensor!([[1.0, 0.0], [1.0, 1.0]])?]), &["nonzero", "shapes"]);
    refused(vmap(|x| x[0].as_strided([2], &[1], 0), &[&x]), &["as_strided", "memory"]);
    refused(vmap(|x| x[0].dropout(0.5), &[&x]), &["dropout", "random"]);
    refused(vmap_with(|x| x[0].histc(), &[&x], VmapFallback::Refuse), &["histc", "batching rule"]);
    // A handle that got out is still no tensor with values.
    let mut kept = None;
    vmap(
        |x| {
            kept = Some(x[0].clone());
            Ok(x[0].clone())
        },
        &[&x],
    )?;
    let kept = kept.ok_or("it was kept")?;
    assert!(kept.to_vec::<f32>().is_err() && kept.exp()?.to_vec::<f32>().is_err());
    let printed = format!("{kept:?} {kept}");
    assert!(printed.contains("vmap"), "{printed}");
    Ok(())
}

#[test]
fn random_numbers_as_asked_for() -> Outcome {
    let x = Tensor::ones([4, 50])?;
    let rows = |randomness| vmap_with(|x| x[0].dropout(0.5), &[&x], randomness)?.chunk(4, 0);
    let same = rows(VmapRandomness::Same)?;
    assert!(same.iter().all(|row| row.equal(&same[0]).unwrap_or(false)) && same[0].max(..)?.item::<f32>()? == 2.0);
    let different = rows(VmapRandomness::Different)?;
    assert!(!different[0].equal(&different[1])? && !different[1].equal(&different[2])?);
    // What a loop would draw.
    cotangent::manual_seed(3);
    let drawn = vmap_with(|x| x[0].add(Tensor::randn([50])?), &[&x], VmapRandomness::Different)?;
    cotangent::manual_seed(3);
    let loops: Vec<Tensor> = (0..4).map(|_| Tensor::randn([50])).collect::<Result<_>>()?;
    assert!(drawn.equal(&Tensor::stack(&loops, 0)?.add(1.0)?)?);
    Ok(())
}

#[test]
fn nothing_and_one_example() -> Outcome {
    let none = vmap(|x| x[0].tanh()?.sum(..), &[&Tensor::zeros([0, 3])?])?;
    assert_eq!(none.shape(), [0]);
    let x = Tensor::randn([1, 3])?;
    assert!(vmap(|x| x[0].softmax(0), &[&x])?.allclose(&x.softmax(1)?)?);
    // A result that does not depend on the examples is repeated.
    assert_eq!(vmap(|_| Tensor::ones([2]), &[&Tensor::zeros([3, 1])?])?.shape(), [3, 2]);
    let means = vmap(|x| x[0].mean(keepdim(..)), &[&Tensor::ones([3, 2, 2])?])?;
    assert_eq!((means.shape(), means.to_vec::<f32>()?), (&[3, 1, 1][..], vec![1.0; 3]));
    Ok(())
}

#[test]
fn sizes_are_checked_with_the_examples() -> Outcome {
    let x = Tensor::ones([1])?.expand([1_usize << 20])?;
    let y = Tensor::ones([1])?.expand([1_usize << 56])?;
    for result in [
        vmap(|x| x[0].add(&y), &[&x]),
        vmap(|x| x[0].expand([1_usize << 56])?.exp(), &[&x]),
        vmap(|x| x[0].expand([1_usize << 56])?.sum(..), &[&x]),
        vmap(|x| x[0].expand([1_usize << 56]), &[&x]),
    ] {
        let error = result.err().ok_or("it is refused")?.to_string();
        assert!(error.contains("addressed"), "{error}");
    }
    Ok(())
}

#[test]
fn a_derivative_on_another_thread_is_that_of_single_examples() -> Outcome {
    let (x, w) = (Tensor::arange_with(1, 4, DType::F64)?, tensor!(2.0_f64)?.requires_grad_(true)?);
    let slopes = vmap(
        |x| {
            let y = w.mul(&x[0])?;
            let grads = std::thread::scope(|scope| scope.spawn(|| grad_with(&y, &[&w], GradOptions::new())).join());
            Ok(grads.map_err(|_| "no panic").expect("no panic")?.swap_remove(0).unwrap_or(y))
        },
        &[&x],
    )?;
    assert_eq!(slopes.to_vec::<f64>()?, [1.0, 2.0, 3.0]);
    Ok(())
}

#[test]
fn a_generator_of_ones_own_draws_as_asked_for() -> Outcome {
    let x = Tensor::zeros([3])?;
    let drawn = |randomness| vmap_with(|x| x[0].add(Generator::seed(1).randn([])?), &[&x], randomness);
    assert!(drawn(VmapRandomness::Refuse).is_err() && drawn(VmapRandomness::Different).is_err());
    let same = drawn(VmapRandomness::Same)?.to_vec::<f32>()?;
    assert!(same[0] == same[1] && same[1] == same[2]);
    Ok(())
}
