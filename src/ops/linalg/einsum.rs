//! Tensor contractions: `einsum`, `tensordot` and `multi_dot`.

use crate::error::{bail, err};
use crate::layout::resolve_dim;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::ops::{Arg, ArgKind, FromArg, ops};
use crate::{Result, Tensor};

/// The label of a dimension: the code of a letter or, for dimensions of an ellipsis, a number from [`ELLIPSIS`] on.
type Label = u32;

/// The label of the last dimension of an ellipsis. The dimension before it has the next number, and so on.
const ELLIPSIS: Label = 1 << 16;

/// A tensor and the labels of its dimensions.
struct Named {
    x: Tensor,
    labels: Vec<Label>,
}

fn text(label: Label) -> String {
    char::from_u32(label).filter(|_| label < ELLIPSIS).map_or_else(|| "...".to_string(), String::from)
}

impl Named {
    /// Replaces dimensions with the same label by their diagonal.
    fn distinct(mut self, op: &'static str) -> Result<Named> {
        let twice = |labels: &[Label]| {
            (0..labels.len()).find_map(|i| Some((i, i + 1 + labels[i + 1..].iter().position(|&l| l == labels[i])?)))
        };
        while let Some((i, j)) = twice(&self.labels) {
            let (a, b, label) = (self.x.shape()[i], self.x.shape()[j], self.labels[i]);
            if a != b {
                let (name, shape) = (text(label), self.x.shape());
                bail!(Shape, op, "dimensions named {name} must have equal sizes, got {a} and {b} in shape {shape:?}");
            }
            self.x = self.x.diagonal(0, i, j)?;
            self.labels.remove(j);
            self.labels.remove(i);
            self.labels.push(label);
        }
        Ok(self)
    }

    fn size(&self, label: Label) -> usize {
        self.labels.iter().position(|&l| l == label).map_or(1, |at| self.x.shape()[at])
    }

    /// Sums over the dimensions whose labels are `gone`.
    fn summed(self, gone: impl Fn(Label) -> bool) -> Result<Named> {
        let dims: Vec<usize> = (0..self.labels.len()).filter(|&d| gone(self.labels[d])).collect();
        if dims.is_empty() {
            return Ok(self);
        }
        // A sum over dimensions of size 1 only changes the shape.
        let ones = dims.iter().all(|&d| self.x.shape()[d] == 1);
        let x = if ones { self.x.squeeze(&dims[..])? } else { self.x.sum(&dims[..])?.to_dtype(self.x.dtype())? };
        Ok(Named { x, labels: self.labels.into_iter().filter(|&l| !gone(l)).collect() })
    }

    /// Permutes the dimensions to the given order of labels.
    fn in_order(&self, order: &[Label]) -> Result<Tensor> {
        let position = |label: &Label| self.labels.iter().position(|l| l == label);
        let dims: Vec<usize> = order.iter().filter_map(position).collect();
        if dims.iter().enumerate().all(|(to, &from)| to == from) {
            Ok(self.x.clone())
        } else {
            self.x.permute(&dims[..])
        }
    }

    /// The product with another tensor, summed over the labels that both have, except those that are `kept`.
    fn times(&self, other: &Named, kept: impl Fn(Label) -> bool) -> Result<Named> {
        let shared = |l: &&Label| other.labels.contains(l);
        let batch: Vec<Label> = self.labels.iter().filter(shared).filter(|l| kept(**l)).copied().collect();
        let inner: Vec<Label> = self.labels.iter().filter(shared).filter(|l| !kept(**l)).copied().collect();
        let left: Vec<Label> = self.labels.iter().filter(|l| !shared(l)).copied().collect();
        let right: Vec<Label> = other.labels.iter().filter(|l| !self.labels.contains(l)).copied().collect();
        let count =
            |named: &Named, labels: &[Label]| labels.iter().fold(1, |n: usize, &l| n.saturating_mul(named.size(l)));
        let (b, k) = (count(self, &batch), count(self, &inner));
        let (m, n) = (count(self, &left), count(other, &right));
        let (x, y) = (
            self.in_order(&[&batch[..], &left, &inner].concat())?,
            other.in_order(&[&batch[..], &inner, &right].concat())?,
        );
        let out = if inner.is_empty() {
            x.reshape([b, m, 1])?.mul(&y.reshape([b, 1, n])?)?
        } else if batch.is_empty() {
            x.reshape([m, k])?.matmul(&y.reshape([k, n])?)?
        } else {
            x.reshape([b, m, k])?.matmul(&y.reshape([b, k, n])?)?
        };
        let labels = [&batch[..], &left, &right].concat();
        let size = |&l: &Label| if self.labels.contains(&l) { self.size(l) } else { other.size(l) };
        let sizes: Vec<usize> = labels.iter().map(size).collect();
        Ok(Named { x: out.reshape(&sizes[..])?, labels })
    }
}

/// The product of all operands, summed over the labels that are not in `output`. Sizes of 1 broadcast.
#[track_caller]
fn contract(op: &'static str, operands: Vec<Named>, output: &[Label]) -> Result<Tensor> {
    let mut all = operands.into_iter().map(|named| named.distinct(op)).collect::<Result<Vec<_>>>()?;
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for named in &all {
        for (&label, &size) in named.labels.iter().zip(named.x.shape()) {
            match sizes.iter_mut().find(|(known, _)| *known == label) {
                None => sizes.push((label, size)),
                Some((_, known)) if *known == 1 => *known = size,
                Some((_, known)) if size != 1 && size != *known => {
                    bail!(Shape, op, "sizes {known} and {size} of dimensions named {} do not broadcast", text(label))
                }
                Some(_) => {}
            }
        }
    }
    let full = |label: Label| sizes.iter().find(|(known, _)| *known == label).map_or(1, |&(_, size)| size);
    // Dimensions of size 1 that broadcast are removed.
    all = all
        .into_iter()
        .map(|named| {
            let repeated: Vec<Label> = named.labels.iter().copied().filter(|&l| named.size(l) != full(l)).collect();
            named.summed(|label| repeated.contains(&label))
        })
        .collect::<Result<Vec<_>>>()?;
    while all.len() > 1 {
        let elsewhere = |label: Label, but: &[usize]| {
            let others = all.iter().enumerate().filter(|(at, _)| !but.contains(at));
            output.contains(&label) || others.flat_map(|(_, named)| &named.labels).any(|&l| l == label)
        };
        // Labels of only one tensor are summed first.
        if let Some(at) = (0..all.len()).find(|&at| all[at].labels.iter().any(|&l| !elsewhere(l, &[at]))) {
            let gone: Vec<Label> = all[at].labels.iter().copied().filter(|&l| !elsewhere(l, &[at])).collect();
            let named = all.swap_remove(at);
            all.push(named.summed(|label| gone.contains(&label))?);
            let last = all.len() - 1;
            all.swap(at, last);
            continue;
        }
        // The pair with the fewest multiplications.
        let cost = |&(i, j): &(usize, usize)| {
            let own = all[i].labels.iter();
            let labels = own.chain(all[j].labels.iter().filter(|l| !all[i].labels.contains(l)));
            labels.map(|&label| full(label) as f64).product::<f64>()
        };
        let pairs = (0..all.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        let Some((i, j)) = pairs.min_by(|a, b| cost(a).total_cmp(&cost(b))) else { break };
        let product = all[i].times(&all[j], |label| elsewhere(label, &[i, j]))?;
        all.remove(j);
        all[i] = product;
    }
    let Some(last) = all.pop() else { bail!(Value, op, "expected at least 1 tensor, got 0") };
    let last = last.summed(|label| !output.contains(&label))?;
    last.in_order(output)
}

/// The labels of one part of an equation, for a tensor of this rank. For the result the rank is `None`, and an ellipsis stands
/// for `wide` dimensions.
fn labels(op: &'static str, part: &str, rank: Option<usize>, wide: usize) -> Result<Vec<Label>> {
    let wrong = |why: String| err!(Value, op, "{part:?} {why}");
    let letters: Vec<char> = part.chars().filter(|c| !c.is_whitespace()).collect();
    let named = letters.iter().filter(|c| c.is_ascii_alphabetic()).count();
    let (mut labels, mut at, mut dots) = (Vec::new(), 0, false);
    while let Some(&letter) = letters.get(at) {
        match letter {
            'a'..='z' | 'A'..='Z' => labels.push(letter as Label),
            '.' if letters[at..].starts_with(&['.', '.', '.']) && !dots => {
                dots = true;
                at += 2;
                let count = match rank {
                    None => wide,
                    Some(rank) => rank
                        .checked_sub(named)
                        .ok_or_else(|| wrong(format!("must name at most {rank} dimensions, got {named}")))?,
                };
                labels.extend((0..count as Label).rev().map(|d| ELLIPSIS + d));
            }
            other => return Err(wrong(format!("must be letters and at most one ellipsis, got {other:?}"))),
        }
        at += 1;
    }
    match rank {
        Some(rank) if labels.len() != rank => Err(wrong(format!("must name {rank} dimensions, got {}", labels.len()))),
        _ => Ok(labels),
    }
}

/// The dimensions that [`Tensor::tensordot`] contracts: the last `n` of the first tensor with the first `n` of the second, or
/// given pairs.
///
/// ```
/// use cotangent::{Tensor, options::TensordotDims};
/// let (a, b) = (Tensor::ones([2, 3, 4])?, Tensor::ones([4, 3])?);
/// assert_eq!(a.tensordot(&b, TensordotDims::Pairs(vec![(1, 1), (2, 0)]))?.shape(), [2]);
/// assert_eq!(a.tensordot(&b, ([1, 2], [1, 0]))?.shape(), [2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensordotDims {
    /// The number of dimensions `n`.
    Count(usize),
    /// Pairs of a dimension of the first tensor and one of the second.
    Pairs(Vec<(isize, isize)>),
}

impl From<usize> for TensordotDims {
    fn from(count: usize) -> TensordotDims {
        TensordotDims::Count(count)
    }
}

impl From<i32> for TensordotDims {
    fn from(count: i32) -> TensordotDims {
        // A negative number becomes one that is too large, which is refused.
        TensordotDims::Count(usize::try_from(count).unwrap_or(usize::MAX))
    }
}

impl<const N: usize> From<([isize; N], [isize; N])> for TensordotDims {
    fn from((a, b): ([isize; N], [isize; N])) -> TensordotDims {
        TensordotDims::Pairs(a.into_iter().zip(b).collect())
    }
}

/// As an argument: a number, or the dimensions of the first tensor and then those of the second.
impl<'a> FromArg<'a> for TensordotDims {
    const KIND: ArgKind = ArgKind::Ints;

    fn from_arg(arg: &'a Arg) -> Option<TensordotDims> {
        match arg {
            Arg::Ints(dims) if dims.len() % 2 == 0 => {
                let (a, b) = dims.split_at(dims.len() / 2);
                Some(TensordotDims::Pairs(a.iter().copied().zip(b.iter().copied()).collect()))
            }
            other => usize::from_arg(other).map(TensordotDims::Count),
        }
    }
}

impl From<TensordotDims> for Arg {
    fn from(dims: TensordotDims) -> Arg {
        match dims {
            TensordotDims::Count(count) => Arg::from(count),
            TensordotDims::Pairs(pairs) => {
                Arg::Ints(pairs.iter().map(|pair| pair.0).chain(pairs.iter().map(|pair| pair.1)).collect())
            }
        }
    }
}

/// # Einsum and tensor contractions
#[ops]
impl Tensor {
    /// The Einstein summation of an equation. Letters name the dimensions of each tensor and, after `->`, those of the
    /// result. Letters missing from the result are summed over, a repeated letter in one tensor takes a diagonal, and
    /// `...` stands for broadcast dimensions. Without `->`, the result has the letters that occur once, in alphabetical
    /// order. Three or more tensors are contracted in pairs, the cheapest first.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let a = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(Tensor::einsum("ij,kj->ik", &[&a, &a])?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// assert_eq!(Tensor::einsum("ii", &[&a])?.item::<f32>()?, 5.0);
    /// assert_eq!(Tensor::einsum("...i,i->...", &[&a, &tensor!([1.0, 10.0])?])?.to_vec::<f32>()?, [21.0, 43.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the equation is malformed or does not fit the tensors, or a letter stands for different sizes.
    #[op(autocast = lower, samples = einsum_samples, errors = einsum_errors)]
    pub fn einsum(equation: &str, operands: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        const OP: &str = "einsum";
        let (inputs, result) = match equation.split_once("->") {
            Some((inputs, result)) => (inputs, Some(result)),
            None => (equation, None),
        };
        let parts: Vec<&str> = inputs.split(',').collect();
        if parts.len() != operands.len() {
            bail!(Value, OP, "expected {} tensors for {equation:?}, got {}", parts.len(), operands.len());
        }
        let mut named = Vec::new();
        for (part, x) in parts.iter().zip(operands) {
            named.push(Named { x: (*x).clone(), labels: labels(OP, part, Some(x.rank()), 0)? });
        }
        let all = || named.iter().flat_map(|named| named.labels.iter().copied());
        let wide = all().filter(|&l| l >= ELLIPSIS).map(|l| (l - ELLIPSIS) as usize + 1).max().unwrap_or(0);
        let output = match result {
            Some(result) => labels(OP, result, None, wide)?,
            None => {
                let mut once: Vec<Label> =
                    all().filter(|&l| l < ELLIPSIS && all().filter(|&other| other == l).count() == 1).collect();
                once.sort_unstable();
                (0..wide as Label).rev().map(|d| ELLIPSIS + d).chain(once).collect()
            }
        };
        for (at, &label) in output.iter().enumerate() {
            if output[..at].contains(&label) {
                bail!(Value, OP, "the result must name each dimension once, got {} twice in {equation:?}", text(label));
            }
            if !all().any(|l| l == label) {
                bail!(
                    Value,
                    OP,
                    "the result must name dimensions of the operands, got {} in {equation:?}",
                    text(label)
                );
            }
        }
        contract(OP, named, &output)
    }

    /// Contracts pairs of dimensions of two tensors. The result has the other dimensions of both.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (a, b) = (Tensor::ones([2, 3, 4])?, Tensor::ones([3, 4, 5])?);
    /// assert_eq!(a.tensordot(&b, 2)?.shape(), [2, 5]);
    /// assert_eq!(a.tensordot(&b, ([0], [0])).is_err(), true);
    /// assert_eq!(a.tensordot(&b, ([1], [0]))?.shape(), [2, 4, 4, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no such dimensions, one is named twice, or their sizes differ.
    #[op(autocast_cpu = lower, autocast_cuda = widest, samples = tensordot_samples, errors = tensordot_errors)]
    pub fn tensordot(&self, other: &Tensor, #[default(2)] dims: impl Into<TensordotDims>) -> Result<Tensor> {
        const OP: &str = "tensordot";
        let pairs = match dims {
            TensordotDims::Pairs(pairs) => pairs,
            TensordotDims::Count(count) if count <= self.rank().min(other.rank()) => {
                (0..count as isize).map(|d| (self.rank() as isize - count as isize + d, d)).collect()
            }
            TensordotDims::Count(count) => {
                let (a, b) = (self.shape(), other.shape());
                bail!(Index, OP, "cannot contract {count} dimensions of {a:?} and {b:?}")
            }
        };
        let rank = self.rank() as Label;
        let mut ours: Vec<Label> = (0..rank).collect();
        let mut theirs: Vec<Label> = (0..other.rank() as Label).map(|d| rank + d).collect();
        let mut gone = Vec::new();
        for (at, (a, b)) in pairs.into_iter().enumerate() {
            let (a, b) = (resolve_dim(OP, a, self.rank())?, resolve_dim(OP, b, other.rank())?);
            let label = ELLIPSIS + at as Label;
            if ours[a] >= ELLIPSIS || theirs[b] >= ELLIPSIS {
                bail!(Index, OP, "dimension {} is named twice", if ours[a] >= ELLIPSIS { a } else { b });
            }
            let (m, n) = (self.shape()[a], other.shape()[b]);
            if m != n && m != 1 && n != 1 {
                let (x, y) = (self.shape(), other.shape());
                bail!(Shape, OP, "cannot contract dimension {a} of {x:?} with {b} of {y:?}: sizes {m} and {n} differ");
            }
            (ours[a], theirs[b]) = (label, label);
            gone.push(label);
        }
        let output: Vec<Label> = ours.iter().chain(&theirs).copied().filter(|l| !gone.contains(l)).collect();
        let operands = vec![Named { x: self.clone(), labels: ours }, Named { x: other.clone(), labels: theirs }];
        contract(OP, operands, &output)
    }

    /// The product of several matrices, in the order with the fewest multiplications. The first may be a row vector and
    /// the last a column vector.
    ///
    /// ```
    /// # use cotangent::{linalg, Tensor};
    /// let all = [Tensor::ones([10, 100])?, Tensor::ones([100, 5])?, Tensor::ones([5, 50])?];
    /// assert_eq!(linalg::multi_dot(&all)?.shape(), [10, 50]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no tensor or only one, one is not a matrix, or inner sizes differ.
    #[doc(alias = "chain_matmul")]
    #[op(function = linalg, autocast = lower, samples = multi_dot_samples, errors = multi_dot_errors, aliases = ["multi_dot", "chain_matmul"])]
    pub fn linalg_multi_dot(tensors: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        const OP: &str = "linalg_multi_dot";
        let last = tensors.len().saturating_sub(1);
        if last == 0 {
            bail!(Value, OP, "expected at least 2 tensors, got {}", tensors.len());
        }
        let mut all = Vec::new();
        for (at, x) in tensors.iter().enumerate() {
            all.push(match x.rank() {
                2 => (*x).clone(),
                1 if at == 0 => x.unsqueeze(0)?,
                1 if at == last => x.unsqueeze(1)?,
                _ => bail!(Shape, OP, "tensor {at} must be a matrix, got shape {:?}", x.shape()),
            });
        }
        let mut sizes = vec![all[0].shape()[0]];
        for (at, x) in all.iter().enumerate() {
            if x.shape()[0] != sizes[at] && at > 0 {
                let (a, b) = (tensors[at - 1].shape(), tensors[at].shape());
                bail!(Shape, OP, "cannot multiply {a:?} by {b:?}: sizes {} and {} differ", sizes[at], x.shape()[0]);
            }
            sizes.push(x.shape()[1]);
        }
        let product = chain(&all, &order(&sizes), 0, last)?;
        match (tensors[0].rank(), tensors[last].rank()) {
            (1, 1) => product.reshape(()),
            (1, _) => product.squeeze(0),
            (_, 1) => product.squeeze(1),
            _ => Ok(product),
        }
    }
}

/// The best place to split each product `i..=j` of matrices of `sizes[i]` by `sizes[i + 1]`.
fn order(sizes: &[usize]) -> Vec<Vec<usize>> {
    let n = sizes.len() - 1;
    let (mut cost, mut cut) = (vec![vec![0.0_f64; n]; n], vec![vec![0; n]; n]);
    for len in 1..n {
        for i in 0..n - len {
            let j = i + len;
            let at = |k: usize| {
                cost[i][k] + cost[k + 1][j] + [i, k + 1, j + 1].map(|d| sizes[d] as f64).iter().product::<f64>()
            };
            let best = (i..j).min_by(|&a, &b| at(a).total_cmp(&at(b))).unwrap_or(i);
            (cost[i][j], cut[i][j]) = (at(best), best);
        }
    }
    cut
}

/// The product `i..=j`. The recursion is at most as deep as there are matrices.
#[track_caller]
fn chain(all: &[Tensor], cut: &[Vec<usize>], i: usize, j: usize) -> Result<Tensor> {
    if i == j {
        return Ok(all[i].clone());
    }
    let at = cut[i][j];
    chain(all, cut, i, at)?.matmul(&chain(all, cut, at + 1, j)?)
}

fn einsum_samples() -> Result<Vec<Sample>> {
    let cases: [(&str, &[&[usize]]); 22] = [
        ("ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("bij,bjk->bik", &[&[2, 2, 3], &[2, 3, 4]]),
        ("bhqd,bhkd->bhqk", &[&[2, 2, 3, 4], &[2, 2, 5, 4]]),
        ("bqhd,bkhd->bhqk", &[&[2, 3, 2, 4], &[2, 5, 2, 4]]),
        ("ij->ji", &[&[2, 3]]),
        ("ij->j", &[&[2, 3]]),
        ("ij", &[&[2, 3]]),
        ("ba", &[&[2, 3]]),
        ("ii->i", &[&[3, 3]]),
        ("ii", &[&[3, 3]]),
        ("iij->ij", &[&[2, 2, 3]]),
        ("i,j->ij", &[&[2], &[3]]),
        ("i,i", &[&[3], &[3]]),
        ("i,j", &[&[2], &[3]]),
        ("ij,ij->ij", &[&[2, 3], &[2, 3]]),
        ("...ij,...jk->...ik", &[&[2, 1, 2, 3], &[4, 3, 2]]),
        ("...i,i...->...", &[&[2, 3], &[3, 2]]),
        ("ij,jk,kl->il", &[&[2, 3], &[3, 4], &[4, 2]]),
        ("ijk,jl,kl,i->l", &[&[2, 3, 4], &[3, 5], &[4, 5], &[2]]),
        ("ij,jk", &[&[2, 1], &[3, 4]]),
        (" i j , -> j i", &[&[2, 3], &[]]),
        ("ij,jk->ik", &[&[0, 3], &[3, 2]]),
    ];
    let mut all = Vec::new();
    for (equation, shapes) in cases {
        let tensors: Vec<Tensor> =
            shapes.iter().enumerate().map(|(at, shape)| normal(*shape, at as u64)).collect::<Result<_>>()?;
        all.push(sample![equation, tensors]);
    }
    all.push(sample!["ij,jk->ik", vec![normal([2, 0], 1)?, normal([0, 3], 2)?]].zero_derivative());
    Ok(all)
}

fn einsum_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["too few tensors", "2 tensors", "got 1"; sample!["ij,jk", vec![x()?]]],
        error!["no tensors", "1 tensors", "got 0"; sample!["", Vec::<Tensor>::new()]],
        error!["too many letters", "\"ijk\"", "2 dimensions", "got 3"; sample!["ijk", vec![x()?]]],
        error!["too many letters with an ellipsis", "at most 2", "got 3"; sample!["ijk...", vec![x()?]]],
        error!["sizes", "sizes 3 and 2", "named j"; sample!["ij,jk", vec![x()?, x()?]]],
        error!["a diagonal", "named i", "2 and 3"; sample!["ii", vec![x()?]]],
        error!["no letter", "'1'"; sample!["i1", vec![x()?]]],
        error!["two ellipses", "'.'"; sample!["......", vec![x()?]]],
        error!["twice in the result", "i twice"; sample!["ij->ii", vec![x()?]]],
        error!["not in a tensor", "got k"; sample!["ij->ik", vec![x()?]]],
        error!["two arrows", "'-'"; sample!["ij->i->j", vec![x()?]]],
    ])
}

fn tensordot_samples() -> Result<Vec<Sample>> {
    let (a, b) = (normal([2, 3, 4], 1)?, normal([3, 4, 5], 2)?);
    Ok(vec![
        sample![&a, &b],
        sample![&a, &b, [1, 0]],
        sample![&a, normal([4, 3], 3)?, [1, -1, 1, 0]],
        sample![normal([2], 1)?, normal([3], 2)?, 0],
        sample![&a, normal([1, 5], 2)?, 1],
        sample![normal([2, 0], 1)?, normal([0, 3], 2)?, 1].zero_derivative(),
        sample![ints(&[1, 2, 3], [3])?, ints(&[4, 5, 6], [3])?, 1],
    ])
}

fn tensordot_errors() -> Result<Vec<ErrorCase>> {
    let (a, b) = (normal([2, 3], 1)?, normal([2, 3], 2)?);
    Ok(vec![
        error!["too many", "[2, 3]", "3 dimensions"; sample![&a, &b, 3]],
        error!["sizes", "sizes 3 and 2"; sample![&a, &b, 1]],
        error!["no such dimension", "2"; sample![&a, &b, [2, 0]]],
        error!["twice", "dimension 0 is named twice"; sample![&a, &b, [0, 0, 0, 1]]],
        error!["an odd number", "dims"; sample![a, b, [0, 1, 1]]],
    ])
}

fn multi_dot_samples() -> Result<Vec<Sample>> {
    let cases: [&[&[usize]]; 5] = [
        &[&[2, 3], &[3, 4]],
        &[&[2, 5], &[5, 1], &[1, 4]],
        &[&[3], &[3, 2], &[2, 4], &[4]],
        &[&[3], &[3]],
        &[&[2, 3], &[3, 0], &[0, 2], &[2]],
    ];
    let mut all = Vec::new();
    for shapes in cases {
        let tensors: Vec<Tensor> =
            shapes.iter().enumerate().map(|(at, shape)| normal(*shape, at as u64)).collect::<Result<_>>()?;
        let empty = tensors.iter().any(|x| x.numel() == 0);
        all.push(if empty { sample![tensors].zero_derivative() } else { sample![tensors] });
    }
    Ok(all)
}

fn multi_dot_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["one tensor", "got 1"; sample![vec![x()?]]],
        error!["no tensor", "got 0"; sample![Vec::<Tensor>::new()]],
        error!["sizes", "[2, 3]", "3 and 2"; sample![vec![x()?, x()?]]],
        error!["a vector between", "tensor 1", "[3]"; sample![vec![x()?, normal([3], 1)?, normal([3], 2)?]]],
    ])
}
