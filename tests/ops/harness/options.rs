//! Options without effect: a caller would not notice that one is ignored.

use super::call::close;
use super::checks::tried;
use super::samples;
use cotangent::ops::{Arg, ArgKind, Op, Param, Sample};
use cotangent::{DType, Generator, Result, Scalar, Tensor, with_generator};

/// Options that by definition change no result: guarantees that always hold, hints, and one that only affects gradients.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("topk", "sorted"),
    ("unique", "sorted"),
    ("unique_values", "sorted"),
    ("sort", "stable"),
    ("argsort", "stable"),
    ("isin", "assume_unique"),
    ("embedding", "scale_grad_by_freq"),
];

/// Calls that show what an option does where samples, which have derivatives, cannot.
fn more(op: &Op) -> Result<Vec<Sample>> {
    let tensor = |values: &[f64], shape: &[usize]| Tensor::from_slice(values, shape);
    let special = tensor(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0], &[4])?;
    let lower = tensor(&[2.0, 0.0, 1.0, 3.0], &[2, 2])?;
    let singular = tensor(&[1.0, 2.0, 2.0, 4.0], &[2, 2])?;
    let indefinite = tensor(&[0.0, 1.0, 1.0, 0.0], &[2, 2])?;
    let twisted = Tensor::complex(&tensor(&[2.0, 1.0, 1.0, 3.0], &[2, 2])?, &tensor(&[0.0, -1.0, 1.0, 0.0], &[2, 2])?)?;
    let sample = |args: &[&Tensor]| vec![Sample::new(args.iter().map(|&x| Arg::from(x)))];
    Ok(match op.name {
        "nan_to_num" => sample(&[&special]),
        "allclose" => sample(&[&special, &special]),
        "linalg_eigh" | "linalg_eigvalsh" => sample(&[&lower]),
        "linalg_cholesky_ex" => sample(&[&indefinite]),
        "linalg_lu_factor_ex" | "linalg_inv_ex" => sample(&[&singular]),
        "linalg_ldl_factor_ex" => [sample(&[&twisted]), sample(&[&singular])].concat(),
        "linalg_solve_ex" => sample(&[&singular, &lower]),
        "linalg_ldl_factor" => sample(&[&twisted]),
        "linalg_ldl_solve" => sample(&[&twisted, &Tensor::from_slice(&[1_i32, 2], [2])?, &twisted]),
        "triplet_margin_loss" => sample(&[&tensor(&[0.0], &[1])?, &tensor(&[1.0], &[1])?, &tensor(&[1.5], &[1])?]),
        // With the default dropout of 0, training mode is the same as evaluation mode.
        "lstm" | "gru" | "rnn_tanh" | "rnn_relu" => {
            samples(op).into_iter().map(|all| all.with("dropout", 0.5)).collect()
        }
        _ => Vec::new(),
    })
}

/// Other values for an option, some of which may be refused.
fn others(param: &Param, now: &Arg) -> Vec<Arg> {
    match (param.kind, now) {
        (ArgKind::Bool, Arg::Scalar(now)) => vec![Arg::from(*now == Scalar::from(false))],
        (ArgKind::Bool, _) => vec![Arg::from(false), Arg::from(true)],
        (ArgKind::Int, _) => [0_i64, 1, 2, 3].map(Arg::from).into(),
        (ArgKind::Dim, _) => [0_isize, 1, 2, -1].map(Arg::from).into(),
        (ArgKind::Float | ArgKind::Scalar | ArgKind::Operand, _) => {
            [0.0, 0.3, 0.7, 1.7, -0.6, 1e3].map(Arg::from).into()
        }
        (ArgKind::Choice(words), _) => words.iter().map(|&word| Arg::from(word)).collect(),
        (ArgKind::DType, _) => [DType::F64, DType::F32, DType::I32].map(Arg::from).into(),
        _ => Vec::new(),
    }
}

fn results(op: &Op, args: &[Arg]) -> Result<Vec<Tensor>> {
    with_generator(&mut Generator::seed(3), || op.call(args))
}

fn same(a: &Result<Vec<Tensor>>, b: &Result<Vec<Tensor>>) -> Result<bool> {
    let (Ok(a), Ok(b)) = (a, b) else { return Ok(a.is_err() && b.is_err()) };
    for (a, b) in a.iter().zip(b) {
        if !close(a, b, 0.0)? {
            return Ok(false);
        }
    }
    Ok(a.len() == b.len())
}

#[test]
fn every_option_changes_a_result_or_is_refused() -> Result<()> {
    let mut idle = Vec::new();
    let mut tried_options = 0;
    for op in tried() {
        for (at, param) in op.params().enumerate().filter(|(_, param)| param.default.is_some()) {
            let (mut any, mut differs) = (false, false);
            for sample in samples(op).into_iter().chain(more(op)?) {
                let args = sample.bind(op)?;
                let before = results(op, &args);
                for other in others(param, &args[at]) {
                    let mut changed = args.clone();
                    changed[at] = other;
                    any = true;
                    differs = differs || !same(&before, &results(op, &changed))?;
                }
            }
            tried_options += usize::from(any);
            if any && !differs && !WITHOUT_EFFECT.contains(&(op.name, param.name)) {
                idle.push(format!("{} of {}", param.name, op.name));
            }
        }
    }
    assert!(idle.is_empty(), "{} of {tried_options} options change nothing: {}", idle.len(), idle.join(", "));
    Ok(())
}
