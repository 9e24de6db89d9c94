//! Steps of random programs as data, and their execution in the library.

use crate::dice::Dice;
use cotangent::autograd::{BackwardOptions, GradOptions, grad_with, no_grad};
use cotangent::{
    DType, Result, Tensor,
    arguments::{Index, IndexItem, Slice},
    keepdim,
};

/// A step. Numbers are indices of existing tensors; most steps add one more tensor.
#[derive(Clone, Debug)]
pub enum Step {
    Create {
        shape: Vec<usize>,
        values: Vec<f64>,
        leaf: bool,
    },
    Unary(Unary, usize),
    Binary(Binary, usize, Other),
    Matmul(usize, usize),
    Reduce(Reduce, usize, Option<usize>, bool),
    Softmax(usize, usize),
    Cumsum(usize, usize),
    View(View, usize),
    Cat(usize, usize, usize),
    Stack(usize, usize, usize),
    /// Elements of the first where they are above a number, else of the second.
    Where(usize, f64, usize),
    IndexSelect(usize, usize, Vec<i64>),
    Clone(usize),
    DeepClone(usize),
    Detach(usize),
    /// A leaf with the values of another tensor, in the same memory.
    Leaf(usize),
    InPlace(InPlace, usize, Other),
    Set(usize, Place, Other),
    /// Adds the gradient of the sum to all leaves.
    Backward(usize),
    /// The gradient of the sum of the first by the second, recorded.
    Grad(usize, usize),
    /// The gradients of two new leaves, from a pass that frees the graph.
    Fresh(usize, usize),
    TakeGrad(usize),
    Drop(usize),
}

#[derive(Clone, Copy, Debug)]
pub enum Unary {
    Neg,
    Tanh,
    Sigmoid,
    Sin,
    Square,
    Relu,
    Abs,
}

#[derive(Clone, Copy, Debug)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Maximum,
}

#[derive(Clone, Copy, Debug)]
pub enum Other {
    Number(f64),
    Tensor(usize),
}

#[derive(Clone, Copy, Debug)]
pub enum Reduce {
    Sum,
    Mean,
    Max,
    LogSumExp,
}

#[derive(Clone, Debug)]
pub enum View {
    Transpose(usize, usize),
    Reshape(Vec<usize>),
    Slice(usize, usize, usize, isize),
    Select(usize, usize),
    Unsqueeze(usize),
    Squeeze(usize),
    Expand(usize),
    Flip(usize),
}

#[derive(Clone, Copy, Debug)]
pub enum InPlace {
    Add,
    Sub,
    Mul,
    /// Of the number.
    Fill,
    /// Of the tensor.
    Copy,
}

/// A part to be set: along the first dimension.
#[derive(Clone, Debug)]
pub enum Place {
    All,
    At(usize),
    Slice(usize, usize, isize),
    Chosen(Vec<i64>),
}

/// A step, and whether it is taken under `no_grad`.
pub type Move = (Step, bool);

/// The outcome of a step, as far as the model cannot predict it.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done {
        recorded: bool,
    },
    /// There was no gradient.
    Nothing,
    Refused(String),
}

const MOST_TENSORS: usize = 14;

/// The sizes of the tensors of a program.
#[derive(Clone, Copy, PartialEq)]
pub enum Size {
    Small,
    /// Large enough for several threads to share an operation.
    Large,
}

impl Size {
    /// The maximum number of elements of a new tensor.
    fn most(self) -> usize {
        if self == Size::Small { 200 } else { 6000 }
    }
}

/// Whether `b` broadcasts to `a`.
fn fits(a: &[usize], b: &[usize]) -> bool {
    b.len() <= a.len() && a.iter().rev().zip(b.iter().rev()).all(|(a, b)| a == b || *b == 1)
}

fn random_shape(dice: &mut Dice, size: Size) -> Vec<usize> {
    if size == Size::Large && dice.percent(60) {
        return dice.choose(&[vec![70, 70], vec![70, 70], vec![70], vec![70, 1], vec![4900]]);
    }
    let rank = dice.choose(&[0, 1, 1, 2, 2, 2, 3]);
    (0..rank).map(|_| dice.choose(&[1, 2, 3, 3, 4, 5])).collect()
}

fn values(dice: &mut Dice, shape: &[usize]) -> Vec<f64> {
    (0..shape.iter().product()).map(|_| dice.signed()).collect()
}

/// A step that is valid for the existing shapes. In a thread, no step is taken whose result depends on other threads.
pub fn random_move(dice: &mut Dice, tensors: &[Tensor], size: Size, beside_others: bool) -> Move {
    let without = dice.percent(12);
    if tensors.len() > MOST_TENSORS {
        return (Step::Drop(dice.below(tensors.len())), without);
    }
    if tensors.len() < 2 || dice.percent(8) {
        let shape = random_shape(dice, size);
        return (Step::Create { values: values(dice, &shape), shape, leaf: dice.percent(60) }, without);
    }
    let at = dice.below(tensors.len());
    let shape = tensors[at].shape();
    let fitting = |dice: &mut Dice, test: &dyn Fn(&[usize]) -> bool| {
        let all: Vec<usize> = (0..tensors.len()).filter(|&k| test(tensors[k].shape())).collect();
        if all.is_empty() { None } else { Some(dice.choose(&all)) }
    };
    let other = |dice: &mut Dice, test: &dyn Fn(&[usize]) -> bool| match fitting(dice, test) {
        Some(k) if dice.percent(80) => Other::Tensor(k),
        _ => Other::Number(dice.signed()),
    };
    // Mostly a tensor that requires a gradient, or a leaf.
    let recorded = |dice: &mut Dice, leaf: bool| {
        let fits = |k: &usize| tensors[*k].requires_grad() && (!leaf || tensors[*k].is_leaf());
        let all: Vec<usize> = (0..tensors.len()).filter(fits).collect();
        if all.is_empty() || dice.percent(15) { at } else { dice.choose(&all) }
    };
    let dim = dice.below(shape.len());
    let step = match dice.below(100) {
        0..14 => {
            use Unary::{Abs, Neg, Relu, Sigmoid, Sin, Square, Tanh};
            Step::Unary(dice.choose(&[Neg, Tanh, Tanh, Sigmoid, Sin, Square, Relu, Abs]), at)
        }
        14..28 => {
            let kind = dice.choose(&[Binary::Add, Binary::Sub, Binary::Mul, Binary::Mul, Binary::Maximum]);
            // Either side may be the smaller one.
            let found = other(dice, &|b| fits(shape, b) || fits(b, shape));
            Step::Binary(kind, at, found)
        }
        28..33 => {
            let found = fitting(dice, &|b| shape.len() == 2 && b.len() == 2 && b[0] == shape[1]);
            found.map_or(Step::Clone(at), |b| Step::Matmul(at, b))
        }
        33..40 => {
            let kind = dice.choose(&[Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::LogSumExp]);
            let over = if shape.is_empty() || dice.percent(25) { None } else { Some(dim) };
            Step::Reduce(kind, at, over, dice.percent(50))
        }
        40..42 if !shape.is_empty() => Step::Softmax(at, dim),
        42..44 if !shape.is_empty() => Step::Cumsum(at, dim),
        44..60 => Step::View(random_view(dice, shape), at),
        60..62 => {
            let found = fitting(dice, &|b| b == shape && !b.is_empty());
            found.map_or(Step::Clone(at), |b| Step::Cat(at, b, dim))
        }
        62..64 => {
            let found = fitting(dice, &|b| b == shape && b.len() < 3);
            let place = dice.below(shape.len() + 1);
            found.map_or(Step::Clone(at), |b| Step::Stack(at, b, place))
        }
        64..66 => {
            let found = fitting(dice, &|b| b == shape);
            Step::Where(at, dice.signed(), found.unwrap_or(at))
        }
        66..68 if !shape.is_empty() => {
            let count = 1 + dice.below(4);
            Step::IndexSelect(at, dim, (0..count).map(|_| dice.below(shape[dim]) as i64).collect())
        }
        68..70 => Step::Clone(at),
        70 | 71 => Step::DeepClone(at),
        72 => Step::Detach(at),
        73..75 => Step::Leaf(at),
        75..83 => {
            let found = other(dice, &|b| fits(shape, b));
            let kind = match found {
                Other::Number(_) => dice.choose(&[InPlace::Add, InPlace::Mul, InPlace::Fill]),
                Other::Tensor(_) => dice.choose(&[InPlace::Add, InPlace::Sub, InPlace::Mul, InPlace::Copy]),
            };
            Step::InPlace(kind, at, found)
        }
        83..89 if !shape.is_empty() => {
            let (place, part) = random_place(dice, shape);
            let found = other(dice, &|b| fits(&part, b));
            Step::Set(at, place, found)
        }
        89..92 => Step::Backward(recorded(dice, false)),
        92..96 => Step::Grad(recorded(dice, false), recorded(dice, true)),
        96 => Step::Fresh(at, fitting(dice, &|b| b == shape).unwrap_or(at)),
        97 | 98 if !beside_others => Step::TakeGrad(at),
        _ => Step::Drop(at),
    };
    let most = |a: &usize, b: &usize| tensors[*a].numel().max(tensors[*b].numel());
    let too_large = match &step {
        Step::Binary(_, a, Other::Tensor(b)) => most(a, b) > size.most(),
        Step::View(View::Expand(_), a) | Step::Cat(a, ..) | Step::Stack(a, ..) => most(a, a) > size.most() / 2,
        // The model multiplies with scalar loops.
        Step::Matmul(a, b) => most(a, b) > Size::Small.most(),
        _ => false,
    };
    let changes_leaf = |k: usize| tensors[k].requires_grad() && tensors[k].is_leaf();
    match &step {
        // The model would have to know which thread was first.
        Step::InPlace(_, a, _) | Step::Set(a, ..) if beside_others && without && changes_leaf(*a) => {
            (Step::Clone(at), without)
        }
        _ if too_large => (Step::Drop(at), without),
        _ => (step, without),
    }
}

fn random_view(dice: &mut Dice, shape: &[usize]) -> View {
    let rank = shape.len();
    if rank == 0 {
        return View::Unsqueeze(0);
    }
    let (a, b) = (dice.below(rank), dice.below(rank));
    let size = shape[a];
    match dice.below(8) {
        0 => View::Transpose(a, b),
        1 => {
            let count = shape.iter().product();
            let divisors: Vec<usize> = (1..=count).filter(|d| count % d == 0).collect();
            let first = dice.choose(&divisors);
            View::Reshape(if dice.percent(50) { vec![first, count / first] } else { vec![count] })
        }
        2 => {
            let start = dice.below(size);
            View::Slice(a, start, start + 1 + dice.below(size - start), dice.choose(&[1, 1, 2]))
        }
        3 => View::Slice(a, 0, size, -1),
        4 => View::Select(a, dice.below(size)),
        5 if rank < 4 => View::Unsqueeze(dice.below(rank + 1)),
        6 if shape.contains(&1) => View::Squeeze(shape.iter().position(|&size| size == 1).unwrap_or(0)),
        6 => View::Expand(2),
        _ => View::Flip(a),
    }
}

/// A part of a tensor with dimensions, and its shape.
fn random_place(dice: &mut Dice, shape: &[usize]) -> (Place, Vec<usize>) {
    let (size, rest) = (shape[0], &shape[1..]);
    let with = |count: usize| [&[count], rest].concat();
    match dice.below(4) {
        0 => (Place::All, shape.to_vec()),
        1 => (Place::At(dice.below(size)), rest.to_vec()),
        2 => {
            let start = dice.below(size);
            let (end, step) = (start + 1 + dice.below(size - start), dice.choose(&[1, 1, 2]));
            (Place::Slice(start, end, step), with((end - start).div_ceil(step as usize)))
        }
        _ => {
            let count = 1 + dice.below(4);
            (Place::Chosen((0..count).map(|_| dice.below(size) as i64).collect()), with(count))
        }
    }
}

/// Takes a step with the library's tensors.
pub fn take((step, without): &Move, tensors: &mut Vec<Tensor>) -> Outcome {
    let result = if *without { no_grad(|| taken(step, tensors)) } else { taken(step, tensors) };
    match result {
        Ok(Some(new)) => {
            let recorded = new.requires_grad();
            tensors.push(new);
            Outcome::Done { recorded }
        }
        Ok(None) if matches!(step, Step::Grad(..) | Step::TakeGrad(_)) => Outcome::Nothing,
        Ok(None) => Outcome::Done { recorded: false },
        Err(error) => Outcome::Refused(error.to_string()),
    }
}

fn taken(step: &Step, tensors: &mut Vec<Tensor>) -> Result<Option<Tensor>> {
    let t = |at: &usize| &tensors[*at];
    Ok(Some(match step {
        Step::Create { shape, values, leaf } => {
            Tensor::from_vec(values.clone(), shape.as_slice())?.requires_grad_(*leaf)?
        }
        Step::Unary(kind, a) => match kind {
            Unary::Neg => t(a).neg()?,
            Unary::Tanh => t(a).tanh()?,
            Unary::Sigmoid => t(a).sigmoid()?,
            Unary::Sin => t(a).sin()?,
            Unary::Square => t(a).square()?,
            Unary::Relu => t(a).relu()?,
            Unary::Abs => t(a).abs()?,
        },
        Step::Binary(kind, a, Other::Tensor(b)) => match kind {
            Binary::Add => t(a).add(t(b))?,
            Binary::Sub => t(a).sub(t(b))?,
            Binary::Mul => t(a).mul(t(b))?,
            Binary::Maximum => t(a).maximum(t(b))?,
        },
        Step::Binary(kind, a, Other::Number(b)) => match kind {
            Binary::Add => t(a).add(*b)?,
            Binary::Sub => t(a).sub(*b)?,
            Binary::Mul => t(a).mul(*b)?,
            Binary::Maximum => t(a).maximum(*b)?,
        },
        Step::Matmul(a, b) => t(a).matmul(t(b))?,
        Step::Reduce(kind, a, None, _) => match kind {
            Reduce::Sum => t(a).sum(..)?,
            Reduce::Mean => t(a).mean(..)?,
            Reduce::Max => t(a).max(..)?,
            Reduce::LogSumExp => t(a).logsumexp(..)?,
        },
        Step::Reduce(kind, a, Some(dim), kept) => {
            let over = if *kept { keepdim(*dim) } else { (*dim).into() };
            match kind {
                Reduce::Sum => t(a).sum(over)?,
                Reduce::Mean => t(a).mean(over)?,
                Reduce::Max => t(a).max(over)?,
                Reduce::LogSumExp => t(a).logsumexp(over)?,
            }
        }
        Step::Softmax(a, dim) => t(a).softmax(*dim)?,
        Step::Cumsum(a, dim) => t(a).cumsum(*dim)?,
        Step::View(view, a) => viewed(view, t(a))?,
        Step::Cat(a, b, dim) => Tensor::cat(&[t(a), t(b)], *dim)?,
        Step::Stack(a, b, dim) => Tensor::stack(&[t(a), t(b)], *dim)?,
        Step::Where(a, above, b) => t(a).gt(*above)?.where_(t(a), t(b))?,
        Step::IndexSelect(a, dim, index) => t(a).index_select(*dim, &Tensor::new(&index[..])?)?,
        Step::Clone(a) => t(a).clone(),
        Step::DeepClone(a) => t(a).deep_clone()?,
        Step::Detach(a) => t(a).detach(),
        Step::Leaf(a) => t(a).detach().requires_grad_(true)?,
        Step::InPlace(kind, a, other) => {
            // A handle to the right-hand side, which may be the tensor itself.
            let rhs = if let Other::Tensor(b) = other { Some(t(b).clone()) } else { None };
            let x = &mut tensors[*a];
            match (kind, other, &rhs) {
                (InPlace::Add, _, Some(b)) => x.add_(b)?,
                (InPlace::Sub, _, Some(b)) => x.sub_(b)?,
                (InPlace::Mul, _, Some(b)) => x.mul_(b)?,
                (InPlace::Copy, _, Some(b)) => x.copy_(b)?,
                (InPlace::Add, Other::Number(b), None) => x.add_(*b)?,
                (InPlace::Mul, Other::Number(b), None) => x.mul_(*b)?,
                (_, Other::Number(b), None) => x.fill_(*b)?,
                _ => {}
            }
            return Ok(None);
        }
        Step::Set(a, place, other) => {
            let index = match place {
                Place::All => IndexItem::Ellipsis,
                Place::At(at) => IndexItem::At(*at as isize),
                Place::Slice(start, end, step) => {
                    IndexItem::Slice(Slice::new(*start as isize, *end as isize).step(*step))
                }
                Place::Chosen(index) => IndexItem::Tensor(Tensor::new(&index[..])?),
            };
            let index = Index::new(vec![index]);
            match other {
                Other::Number(b) => tensors[*a].set(index, *b)?,
                Other::Tensor(b) => {
                    let value = t(b).clone();
                    tensors[*a].set(index, &value)?;
                }
            }
            return Ok(None);
        }
        Step::Backward(a) => {
            t(a).sum(..)?.backward_with(BackwardOptions::new().retain_graph(true))?;
            return Ok(None);
        }
        Step::Grad(y, x) => {
            let options = GradOptions::new().create_graph(true).retain_graph(true);
            return Ok(grad_with(&t(y).sum(..)?, &[t(x)], options)?.swap_remove(0));
        }
        Step::Fresh(a, b) => {
            let (x, y) = (t(a).detach().requires_grad_(true)?, t(b).detach().requires_grad_(true)?);
            x.mul(&y)?.tanh()?.add(&x)?.square()?.sum(..)?.backward()?;
            let grads = [x.grad(), y.grad()].map(|g| g.map_or_else(|| x.zeros_like(), Ok));
            let [x, y] = grads;
            Tensor::stack(&[x?, y?], 0)?.to_dtype(DType::F64)?
        }
        Step::TakeGrad(a) => return Ok(t(a).grad()),
        Step::Drop(a) => {
            tensors.swap_remove(*a);
            return Ok(None);
        }
    }))
}

fn viewed(view: &View, x: &Tensor) -> Result<Tensor> {
    match view {
        View::Transpose(a, b) => x.transpose(*a, *b),
        View::Reshape(shape) => x.reshape(shape.as_slice()),
        View::Slice(dim, _, _, -1) => x.slice(*dim, Slice::from(..).step(-1)),
        View::Slice(dim, start, end, step) => x.slice(*dim, Slice::new(*start as isize, *end as isize).step(*step)),
        View::Select(dim, at) => x.select(*dim, *at),
        View::Unsqueeze(dim) => x.unsqueeze(*dim),
        View::Squeeze(dim) => x.squeeze(*dim),
        View::Expand(times) => x.expand([&[*times], x.shape()].concat()),
        View::Flip(dim) => x.flip(*dim),
    }
}
