//! From an op's name and arguments in the fixtures to the call.

use super::json::{dtype, float, integer, list, signed, sizes, tensor, text};
use cotangent::{Attention, CrossEntropy, Dims, Gelu, Reduction, Result, Slice, Tensor};
use serde_json::Value;

/// The op's result or results; `None` if no such op is known here.
pub fn call(op: &str, args: &Value, inputs: &[Tensor]) -> Option<Result<Vec<Tensor>>> {
    let x = &inputs[0];
    let one = unary(op, args, x)
        .or_else(|| binary(op, args, inputs))
        .or_else(|| reduction(op, args, x))
        .or_else(|| indexing(op, args, inputs))
        .or_else(|| training(op, args, inputs))
        .or_else(|| view(op, args, x));
    one.map(|y| y.map(|y| vec![y])).or_else(|| several(op, args, x))
}

fn unary(op: &str, args: &Value, x: &Tensor) -> Option<Result<Tensor>> {
    Some(match op {
        "neg" => x.neg(),
        "exp" => x.exp(),
        "log" => x.log(),
        "sqrt" => x.sqrt(),
        "abs" => x.abs(),
        "tanh" => x.tanh(),
        "sigmoid" => x.sigmoid(),
        "relu" => x.relu(),
        "silu" => x.silu(),
        "square" => x.square(),
        "reciprocal" => x.reciprocal(),
        "sign" => x.sign(),
        "expm1" => x.expm1(),
        "log1p" => x.log1p(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "erf" => x.erf(),
        "scale" => x.scale(float(&args["factor"])),
        "leaky_relu" => x.leaky_relu(float(&args["slope"])),
        "elu" => x.elu(float(&args["alpha"])),
        "gelu" => x.gelu(if args["approximate"] == "tanh" { Gelu::Tanh } else { Gelu::Erf }),
        "softplus" => x.softplus(float(&args["beta"]), float(&args["threshold"])),
        "clamp" => x.clamp(args["min"].as_f64(), args["max"].as_f64()),
        "to_dtype" => x.to_dtype(dtype(text(&args["dtype"]))),
        _ => return None,
    })
}

/// Ops with a tensor or, as `rhs`, a number on the right.
fn binary(op: &str, args: &Value, inputs: &[Tensor]) -> Option<Result<Tensor>> {
    macro_rules! with_operand {
        ($($name:ident)+) => {
            match op {
                $(stringify!($name) => match (&args["rhs"], inputs) {
                    (Value::Null, [a, b]) => a.$name(b),
                    (rhs, [a]) if rhs.is_i64() => a.$name(integer(rhs) as i64),
                    (rhs, [a]) => a.$name(float(rhs)),
                    _ => return None,
                },)+
                "where_" => inputs[0].where_(&inputs[1], &inputs[2]),
                _ => return None,
            }
        };
    }
    Some(with_operand!(add sub mul div pow maximum minimum eq ne lt le gt ge))
}

fn reduction(op: &str, args: &Value, x: &Tensor) -> Option<Result<Tensor>> {
    let keepdim = args["keepdim"] == true;
    let dims = || dims(&args["dims"]);
    let dim = || isize_of(&args["dim"]);
    let correction = || integer(&args["correction"]) as usize;
    Some(match op {
        "sum" => x.sum(),
        "mean" => x.mean(),
        "prod" => x.prod(),
        "max" => x.max(),
        "min" => x.min(),
        "argmax" => x.argmax(),
        "argmin" => x.argmin(),
        "var" => x.var(correction()),
        "sum_dim" => x.sum_dim(dims(), keepdim),
        "mean_dim" => x.mean_dim(dims(), keepdim),
        "prod_dim" => x.prod_dim(dims(), keepdim),
        "amax" => x.amax(dims(), keepdim),
        "amin" => x.amin(dims(), keepdim),
        "var_dim" => x.var_dim(dims(), correction(), keepdim),
        "logsumexp" => x.logsumexp(dims(), keepdim),
        "argmax_dim" => x.argmax_dim(dim(), keepdim),
        "argmin_dim" => x.argmin_dim(dim(), keepdim),
        "softmax" => x.softmax(dim()),
        "log_softmax" => x.log_softmax(dim()),
        _ => return None,
    })
}

fn indexing(op: &str, args: &Value, inputs: &[Tensor]) -> Option<Result<Tensor>> {
    let dim = || isize_of(&args["dim"]);
    let all = || inputs.iter().collect::<Vec<&Tensor>>();
    Some(match (op, inputs) {
        ("matmul", [a, b]) => a.matmul(b),
        ("cat", _) => Tensor::cat(&all(), dim()),
        ("stack", _) => Tensor::stack(&all(), dim()),
        ("gather", [x, index]) => x.gather(dim(), index),
        ("index_select", [x, index]) => x.index_select(dim(), index),
        ("scatter_add", [x, index, source]) => x.scatter_add(dim(), index, source),
        ("masked_fill", [x, mask]) if args["value"].is_i64() => x.masked_fill(mask, integer(&args["value"]) as i64),
        ("masked_fill", [x, mask]) => x.masked_fill(mask, float(&args["value"])),
        ("tril", [x]) => x.tril(isize_of(&args["diagonal"])),
        ("triu", [x]) => x.triu(isize_of(&args["diagonal"])),
        ("embedding", [index, weight]) => index.embedding(weight),
        _ => return None,
    })
}

fn training(op: &str, args: &Value, inputs: &[Tensor]) -> Option<Result<Tensor>> {
    let reduction = || match text(&args["reduction"]) {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        _ => Reduction::Mean,
    };
    let options = || CrossEntropy {
        weight: inputs.get(2).cloned(),
        ignore_index: args["ignore_index"].as_i64(),
        label_smoothing: args["label_smoothing"].as_f64().unwrap_or(0.0),
        reduction: reduction(),
    };
    Some(match (op, inputs) {
        ("mse_loss", [x, target]) => x.mse_loss(target, reduction()),
        ("cross_entropy", [x, target, ..]) => x.cross_entropy(target, &options()),
        ("nll_loss", [x, target, ..]) => x.nll_loss(target, &options()),
        ("linear", [x, weight, bias @ ..]) => x.linear(weight, bias.first()),
        ("layer_norm", [x, affine @ ..]) => {
            let mut affine = affine.iter();
            let mut next = |used: &str| if args[used] == true { affine.next() } else { None };
            let (weight, bias) = (next("weight"), next("bias"));
            x.layer_norm(sizes(&args["normalized_shape"]), weight, bias, float(&args["eps"]))
        }
        ("scaled_dot_product_attention", [query, key, value, mask @ ..]) => {
            let (causal, scale) = (args["causal"] == true, args["scale"].as_f64());
            query.scaled_dot_product_attention(key, value, &Attention { mask: mask.first(), causal, scale })
        }
        ("dropout", [x]) => x.dropout(float(&args["p"]), args["training"] == true),
        _ => return None,
    })
}

fn view(op: &str, args: &Value, x: &Tensor) -> Option<Result<Tensor>> {
    let at = |name: &str| isize_of(&args[name]);
    let count = |name: &str| integer(&args[name]) as usize;
    let end = |name: &str| args[name].as_i64().map(|i| i as isize);
    Some(match op {
        "permute" => x.permute(signed(&args["dims"])),
        "transpose" => x.transpose(at("dim0"), at("dim1")),
        "t" => x.t(),
        "view" => x.view(signed(&args["shape"])),
        "reshape" => x.reshape(signed(&args["shape"])),
        "flatten" => x.flatten(at("start"), at("end")),
        "squeeze" => x.squeeze(),
        "squeeze_dim" => x.squeeze_dim(at("dim")),
        "unsqueeze" => x.unsqueeze(at("dim")),
        "expand" => x.expand(signed(&args["shape"])),
        "slice" => x.slice(at("dim"), Slice::new(end("start"), end("end")).step(end("step").unwrap_or(1))),
        "select" => x.select(at("dim"), at("index")),
        "narrow" => x.narrow(at("dim"), at("start"), count("len")),
        "flip" => x.flip(signed(&args["dims"])),
        "as_strided" => x.as_strided(sizes(&args["shape"]), &signed(&args["strides"]), count("offset")),
        "contiguous" => x.contiguous(),
        "chain" => return chain(&args["steps"], x),
        _ => return None,
    })
}

fn chain(steps: &Value, x: &Tensor) -> Option<Result<Tensor>> {
    let mut y = x.clone();
    for step in list(steps) {
        match view(text(&step[0]), &step[1], &y)? {
            Ok(next) => y = next,
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(y))
}

/// Ops with more than one result.
fn several(op: &str, args: &Value, x: &Tensor) -> Option<Result<Vec<Tensor>>> {
    let dim = isize_of(&args["dim"]);
    let keepdim = args["keepdim"] == true;
    let pair = |both: Result<(Tensor, Tensor)>| both.map(|(values, indices)| vec![values, indices]);
    Some(match op {
        "max_dim" => pair(x.max_dim(dim, keepdim)),
        "min_dim" => pair(x.min_dim(dim, keepdim)),
        "split" => x.split(integer(&args["size"]) as usize, dim),
        "chunk" => x.chunk(integer(&args["n"]) as usize, dim),
        "unbind" => x.unbind(dim),
        _ => return None,
    })
}

fn isize_of(value: &Value) -> isize {
    value.as_i64().map_or(0, |i| i as isize)
}

fn dims(value: &Value) -> Dims {
    match value {
        Value::String(_) => Dims::from(..),
        Value::Array(_) => Dims::from(signed(value)),
        _ => Dims::from(isize_of(value)),
    }
}

/// Every input of a case, as written.
pub fn inputs(case: &Value) -> Result<Vec<Tensor>> {
    list(&case["inputs"]).iter().map(tensor).collect()
}
