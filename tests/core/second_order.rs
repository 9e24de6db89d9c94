//! Hessian-vector products of composite functions against PyTorch: derivatives of derivatives, through many ops at once.
//!
//! `tools/fixture_cases/second_order.py` has the same functions under the same names.

use crate::checks::both;
use crate::json;

use cotangent::autograd::{GradOptions, grad_with};
use cotangent::{
    Result, Tensor,
    options::{CrossEntropyOptions, Gelu, LayerNormOptions},
};
use json::{compare, list, parse, tensor, text};
use serde_json::Value;

fn function(name: &str, x: &[Tensor]) -> Option<Result<Tensor>> {
    Some(match (name, x) {
        ("cubic", [x]) => cubed(x).and_then(|y| y.sum(..)),
        ("broadcast_quotient", [x, y]) => broadcast_quotient(x, y),
        ("power", [x, y]) => x.pow(y).and_then(|z| z.sum(..)),
        ("mlp", [w1, b1, w2]) => mlp(w1, b1, w2),
        ("logsumexp", [x]) => x.logsumexp(1).and_then(|y| y.square()?.sum(..)),
        ("entropy", [x]) => entropy(x),
        ("cross_entropy", [x, w]) => cross_entropy(x, w),
        ("layer_norm", [x, w, b]) => {
            x.layer_norm_with([4], LayerNormOptions::new().weight(w).bias(b)).and_then(|y| cubed(&y)?.mean(..))
        }
        ("activations", [x]) => activations(x),
        ("kinked", [x]) => kinked(x),
        ("variance", [x]) => variance(x),
        ("product", [x]) => x.prod(..).and_then(|p| p.add(&x.prod(1)?.square()?.sum(..)?)),
        ("norms", [x]) => norms(x),
        ("views", [x]) => views(x),
        ("scatter", [x, y]) => scatter(x, y),
        ("attention", [q, k, v]) => attention(q, k, v),
        ("branches", [x]) => branches(x),
        ("triangle", [x]) => triangle(x),
        _ => return None,
    })
}

fn cubed(x: &Tensor) -> Result<Tensor> {
    x.pow(3)
}

fn broadcast_quotient(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    x.mul(y)?.pow(2)?.add(&x.div(y)?)?.sum(..)
}

fn mlp(w1: &Tensor, b1: &Tensor, w2: &Tensor) -> Result<Tensor> {
    let x = Tensor::from_vec(vec![0.5, -1.0, 0.25, 1.5, 0.75, -0.5], [2, 3])?;
    let target = Tensor::from_vec(vec![0.2, -0.4, 1.0, 0.1], [2, 2])?;
    x.linear(w1, Some(b1))?.tanh()?.matmul(w2)?.mse_loss(&target)
}

fn entropy(x: &Tensor) -> Result<Tensor> {
    x.softmax(1)?.mul(&x.log_softmax(1)?)?.sum(..)
}

fn cross_entropy(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let classes = Tensor::from_vec(vec![2_i64, 0, 1, 2], [4])?;
    x.linear(w, None)?.cross_entropy_with(&classes, CrossEntropyOptions::new().label_smoothing(0.1))
}

fn activations(x: &Tensor) -> Result<Tensor> {
    let first = x.gelu()?.mul(&x.silu()?)?;
    let second = x.softplus()?.mul(&x.sigmoid()?)?;
    first.add(&second)?.add(&x.gelu_with(Gelu::Tanh)?)?.sum(..)
}

fn kinked(x: &Tensor) -> Result<Tensor> {
    let powers = x.elu()?.pow(2)?.add(&cubed(&x.leaky_relu_with(0.1)?)?)?;
    powers.add(&x.relu()?.pow(2)?)?.add(&x.abs()?.mul(x)?)?.sum(..)
}

fn variance(x: &Tensor) -> Result<Tensor> {
    let columns = x.var_with(0, 0.0)?.square()?.sum(..)?;
    x.var(..)?.mul(&x.exp()?.mean(..)?)?.add(&columns)
}

fn norms(x: &Tensor) -> Result<Tensor> {
    let norm = x.square()?.sum(..)?.sqrt()?;
    norm.add(&x.reciprocal()?.sum(..)?)?.add(&x.log()?.square()?.sum(..)?)
}

fn views(x: &Tensor) -> Result<Tensor> {
    let a = x.t()?.slice(0, 1..3)?.flip([1])?.reshape([2, 3])?;
    let b = x.permute([1, 0])?.select(0, 3)?.unsqueeze(0)?.expand([2, 3])?;
    cubed(&a.mul(&b)?)?.sum(..)?.add(&a.matmul(&b.t()?)?.sum(..)?)
}

fn scatter(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let index = Tensor::from_vec(vec![0_i64, 2, 2, 1, 1, 0], [2, 3])?;
    let gathered = x.gather(1, &index)?;
    let scattered = x.zeros_like()?.scatter_add(1, &index, &gathered.mul(y)?)?;
    cubed(&scattered)?.sum(..)?.add(&Tensor::cat(&[&gathered, &scattered], 1)?.exp()?.mean(..)?)
}

fn attention(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    q.matmul(&k.transpose(-2, -1)?)?.mul(0.5)?.softmax(-1)?.matmul(v)?.square()?.sum(..)
}

fn branches(x: &Tensor) -> Result<Tensor> {
    let chosen = x.gt(0.0)?.where_(&cubed(x)?, &x.exp()?)?;
    let clamped = x.clamp(-0.5, 1.0)?.pow(2)?;
    chosen.add(&clamped)?.sum(..)?.add(&cubed(&x.max(1)?)?.sum(..)?)
}

fn triangle(x: &Tensor) -> Result<Tensor> {
    x.matmul(x)?.tril(0)?.mul(&x.t()?.tanh()?)?.sum(..)
}

fn complete(grads: Vec<Option<Tensor>>) -> std::result::Result<Vec<Tensor>, String> {
    grads.into_iter().enumerate().map(|(i, g)| g.ok_or_else(|| format!("input {i} has no gradient"))).collect()
}

fn check(case: &Value) -> std::result::Result<(), String> {
    let text_of = |e: cotangent::Error| e.to_string();
    let read = |key: &str| list(&case[key]).iter().map(tensor).collect::<Result<Vec<Tensor>>>().map_err(text_of);
    let leaves: Vec<Tensor> =
        read("inputs")?.into_iter().map(|x| x.requires_grad_(true)).collect::<Result<_>>().map_err(text_of)?;
    let value = function(text(&case["function"]), &leaves).ok_or("no such function here")?.map_err(text_of)?;
    compare(&value, &case["value"], case).map_err(|e| format!("value: {e}"))?;

    let targets: Vec<&Tensor> = leaves.iter().collect();
    let first = complete(grad_with(&value, &targets, GradOptions::new().create_graph(true)).map_err(text_of)?)?;
    for (i, (got, want)) in both(first.iter(), list(&case["grads"])).enumerate() {
        compare(got, want, case).map_err(|e| format!("gradient {i}: {e}"))?;
    }

    let mut along: Option<Tensor> = None;
    for (gradient, vector) in both(first.iter(), read("vectors")?) {
        let part = gradient.mul(&vector).and_then(|p| p.sum(..)).map_err(text_of)?;
        along = Some(match along {
            Some(sum) => sum.add(&part).map_err(text_of)?,
            None => part,
        });
    }
    along.ok_or("no inputs")?.backward().map_err(text_of)?;
    let second = complete(leaves.iter().map(Tensor::grad).collect())?;
    for (i, (got, want)) in both(second.iter(), list(&case["products"])).enumerate() {
        compare(got, want, case).map_err(|e| format!("product {i}: {e}"))?;
    }
    Ok(())
}

#[test]
fn hessian_vector_products_agree_with_pytorch() {
    let parsed = parse(include_str!("../fixtures/second_order.json"));
    let faults: Vec<String> = list(&parsed["cases"])
        .iter()
        .filter_map(|case| check(case).err().map(|what| format!("{}: {what}", text(&case["function"]))))
        .collect();
    assert!(faults.is_empty(), "{} functions differ from PyTorch:\n{}", faults.len(), faults.join("\n"));
}
