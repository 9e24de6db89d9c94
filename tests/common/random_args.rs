//! Random arguments of operations, by the kinds of their parameters: some valid, many almost valid, some invalid.

use super::dice::Dice;
use cotangent::ops::{Arg, ArgKind};
use cotangent::{
    DType, Device, Result, Scalar, Tensor,
    arguments::{Index, IndexItem, Slice},
};

const INTS: [i64; 16] = [
    i64::MIN,
    i64::MIN + 1,
    -(1 << 40),
    i32::MIN as i64,
    -1000,
    -5,
    -1,
    0,
    1,
    7,
    1000,
    i32::MAX as i64,
    1 << 40,
    1 << 60,
    i64::MAX - 1,
    i64::MAX,
];

const FLOATS: [f64; 14] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN,
    1e20,
    -1e20,
    1e-300,
    5e-324,
    0.0,
    -0.0,
    0.5,
    -1.0,
    1.0,
];

/// Makes the arguments of one call.
pub struct Args {
    pub dice: Dice,
    /// The value of large sizes: the same call can be made with small ones instead, to see what it would do.
    pub large: usize,
    /// Whether there was a large size.
    pub has_large: bool,
    /// The shape to which most tensors of the call are related.
    shape: Vec<usize>,
}

impl Args {
    pub fn new(mut dice: Dice, large: usize) -> Args {
        let shape = shape(&mut dice);
        Args { dice, large, has_large: false, shape }
    }

    /// An argument for a parameter, or of a wrong kind.
    pub fn of_kind(&mut self, kind: ArgKind) -> Result<Arg> {
        if self.dice.percent(4) {
            return self.of_any_kind();
        }
        Ok(match kind {
            ArgKind::Tensor => Arg::Tensor(self.tensor()?),
            ArgKind::Tensors => {
                let count = self.dice.choose(&[0, 1, 2, 3, 3]);
                Arg::Tensors((0..count).map(|_| self.tensor()).collect::<Result<_>>()?)
            }
            ArgKind::Operand if self.dice.percent(60) => Arg::Tensor(self.tensor()?),
            ArgKind::Operand | ArgKind::Scalar => Arg::Scalar(self.scalar()),
            ArgKind::Int => Arg::from(self.int()),
            ArgKind::Float => Arg::from(self.float()),
            ArgKind::Bool => Arg::from(self.dice.percent(50)),
            ArgKind::Dim => Arg::from(self.dim() as i64),
            ArgKind::Dims if self.dice.percent(25) => Arg::None,
            ArgKind::Dims => {
                let count = self.dice.choose(&[0, 1, 1, 1, 2, 2, 3, 4]);
                Arg::Ints((0..count).map(|_| self.dim()).collect())
            }
            ArgKind::Sizes => Arg::Ints(self.sizes()),
            ArgKind::Ints => {
                let count = self.dice.below(5);
                Arg::Ints((0..count).map(|_| self.int() as isize).collect())
            }
            ArgKind::Floats if self.dice.percent(40) => Arg::from(self.float()),
            ArgKind::Floats => {
                let count = self.dice.below(4);
                Arg::from((0..count).map(|_| self.float()).collect::<Vec<f64>>())
            }
            ArgKind::Slice => Arg::Slice(self.slice()),
            ArgKind::Index => Arg::Index(self.index()?),
            ArgKind::DType => Arg::DType(self.dice.choose(&DType::ALL)),
            ArgKind::Device => {
                Arg::Device(self.dice.choose(&[Device::Cpu, Device::Cpu, Device::Cpu, Device::cuda(99)]))
            }
            ArgKind::Choice(_) if self.dice.percent(5) => Arg::Text("something else".to_string()),
            ArgKind::Choice(words) => Arg::Text(self.dice.choose(words).to_string()),
            ArgKind::Text => Arg::Text("text".to_string()),
            _ => Arg::None,
        })
    }

    fn of_any_kind(&mut self) -> Result<Arg> {
        let kinds = [
            ArgKind::Tensor,
            ArgKind::Tensors,
            ArgKind::Scalar,
            ArgKind::Dims,
            ArgKind::Sizes,
            ArgKind::Slice,
            ArgKind::Index,
            ArgKind::DType,
            ArgKind::Device,
            ArgKind::Text,
        ];
        let kind = self.dice.choose(&kinds);
        if self.dice.percent(15) { Ok(Arg::None) } else { self.of_kind(kind) }
    }

    fn int(&mut self) -> i64 {
        if self.dice.percent(80) { self.dice.below(8) as i64 - 2 } else { self.dice.choose(&INTS) }
    }

    fn float(&mut self) -> f64 {
        if self.dice.percent(60) { self.dice.signed() * 2.0 } else { self.dice.choose(&FLOATS) }
    }

    fn scalar(&mut self) -> Scalar {
        match self.dice.below(4) {
            0 => Scalar::F64(self.float()),
            1 => Scalar::I64(self.int()),
            2 => Scalar::U64(self.int() as u64),
            _ => Scalar::Bool(self.dice.percent(50)),
        }
    }

    fn dim(&mut self) -> isize {
        let rank = self.shape.len() as isize;
        if self.dice.percent(85) {
            self.dice.below(2 * rank as usize) as isize - rank
        } else {
            self.dice.choose(&INTS) as isize
        }
    }

    /// The shape of the call, changed slightly or completely.
    fn sizes(&mut self) -> Vec<isize> {
        let mut sizes: Vec<isize> = self.shape.iter().map(|&size| size as isize).collect();
        match self.dice.below(10) {
            0..4 => {}
            4 => sizes = vec![sizes.iter().product()],
            5 => sizes.insert(0, self.dice.choose(&[1, 2, -1])),
            6 => sizes.reverse(),
            7 => sizes.resize(self.dice.choose(&[0, 1, 8, 100]), 1),
            _ => {
                let at = self.dice.below(sizes.len());
                if let Some(size) = sizes.get_mut(at) {
                    *size = self.dice.choose(&[-1, -1, 0, 1, 2, 3, -2, isize::MAX, isize::MIN, 1 << 40]);
                }
            }
        }
        sizes
    }

    fn slice(&mut self) -> Slice {
        let mut bound = || if self.dice.percent(30) { None } else { Some(self.int() as isize) };
        let (start, end) = (bound(), bound());
        let step = if self.dice.percent(40) { 1 } else { self.int() as isize };
        Slice::new(start, end).step(step)
    }

    fn index(&mut self) -> Result<Index> {
        let count = self.dice.below(self.shape.len() + 2);
        let item = |args: &mut Args| {
            Ok(match args.dice.below(6) {
                0 => IndexItem::At(args.int() as isize),
                1 => IndexItem::Slice(args.slice()),
                2 => IndexItem::NewDim,
                3 => IndexItem::Ellipsis,
                4 => IndexItem::Tensor(args.integers()?),
                _ => {
                    // A mask, not too large to be counted.
                    let shape = args.shape.clone();
                    IndexItem::Tensor(args.plain(&shape, DType::Bool)?)
                }
            })
        };
        Ok(Index::new((0..count).map(|_| item(self)).collect::<Result<_>>()?))
    }

    /// Numbers that may be indices.
    fn integers(&mut self) -> Result<Tensor> {
        let shape = self.related_shape();
        let dtype = self.dice.choose(&[DType::I64, DType::I64, DType::I64, DType::I32, DType::U8, DType::U64]);
        let chance = self.dice.choose(&[0, 0, 0, 10]);
        let largest = self.shape.iter().copied().min().unwrap_or(3);
        let mut one = || {
            if self.dice.percent(chance) { self.int() } else { self.dice.below(largest) as i64 }
        };
        let values = (0..shape.iter().product()).map(|_| one()).collect::<Vec<i64>>();
        Tensor::from_vec(values, shape)?.to_dtype(dtype)
    }

    /// The call's shape, one that broadcasts to it, or an unrelated one.
    fn related_shape(&mut self) -> Vec<usize> {
        let mut related = self.shape.clone();
        match self.dice.below(10) {
            0..5 => {}
            5 if !related.is_empty() => drop(related.remove(0)),
            6 if !related.is_empty() => drop(related.pop()),
            7 => related.iter_mut().filter(|_| self.dice.percent(50)).for_each(|size| *size = 1),
            8 => related.reverse(),
            _ => related = shape(&mut self.dice),
        }
        related
    }

    pub fn tensor(&mut self) -> Result<Tensor> {
        if self.dice.percent(12) {
            return self.integers();
        }
        let dtype = if self.dice.percent(55) {
            self.dice.choose(&[DType::F32, DType::F64])
        } else {
            self.dice.choose(&DType::ALL)
        };
        let shape = self.related_shape();
        let leaf = dtype.is_float() && self.dice.percent(50);
        if self.dice.percent(6) {
            return self.large_tensor(dtype, leaf);
        }
        let first = self.plain(&shape, dtype)?;
        // A leaf before or after the change of layout.
        let first = if leaf && self.dice.percent(50) { first.requires_grad_(true)? } else { first };
        let x = self.laid_out(&first)?;
        let x = if leaf && !x.requires_grad() { x.detach().requires_grad_(true)? } else { x };
        // A deferred value, if it is large enough.
        if x.dtype().is_float() && self.dice.percent(10) { x.mul(2.0) } else { Ok(x) }
    }

    /// One element, or none, expanded to more than fits into memory.
    fn large_tensor(&mut self, dtype: DType, leaf: bool) -> Result<Tensor> {
        self.has_large = true;
        let large = self.large as isize;
        let small = self.dice.choose(&[0, 1, 2, 3]);
        let sizes = match self.dice.below(5) {
            0 => vec![large],
            1 => vec![small, large],
            2 => vec![large, small],
            3 => vec![1, large, 1],
            _ => {
                let mut sizes: Vec<isize> = self.shape.iter().map(|&size| size as isize).collect();
                sizes.insert(self.dice.below(sizes.len() + 1), large);
                sizes
            }
        };
        let one = self.plain(&[], dtype)?;
        let early = self.dice.percent(50);
        let one = if leaf && early { one.requires_grad_(true)? } else { one };
        let x = one.expand(sizes)?;
        if leaf && !early { x.detach().requires_grad_(true) } else { Ok(x) }
    }

    /// A tensor that owns its memory.
    fn plain(&mut self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let count = shape.iter().product::<usize>();
        let wild = self.dice.percent(25);
        if dtype.is_float() {
            let mut one = || if wild { self.float() } else { self.dice.signed() * 3.0 };
            return Tensor::from_vec((0..count).map(|_| one()).collect::<Vec<f64>>(), shape)?.to_dtype(dtype);
        }
        let mut one = || if wild { self.int() } else { self.dice.below(5) as i64 };
        Tensor::from_vec((0..count).map(|_| one()).collect::<Vec<i64>>(), shape)?.to_dtype(dtype)
    }

    /// The same or similar values with other strides.
    fn laid_out(&mut self, x: &Tensor) -> Result<Tensor> {
        let Some(last) = x.rank().checked_sub(1) else { return Ok(x.clone()) };
        match self.dice.below(10) {
            0 => x.transpose(0, last)?.contiguous()?.transpose(0, last),
            1 => x.flip(..),
            2 => x.flip(last),
            3 => Tensor::cat(&[x, x], 0)?.slice(0, Slice::from(..).step(2)),
            4 => Tensor::cat(&[x, x], last)?.narrow(last, x.shape()[last], x.shape()[last]),
            5 if x.numel() > 0 => x.narrow(0, 0, 1)?.expand(x.shape()),
            // Overlapping elements.
            6 if x.numel() > 3 && x.is_contiguous() => x.as_strided([3, 2], &[1, 1], 0),
            _ => Ok(x.clone()),
        }
    }
}

/// Small, empty or 0-d; sometimes large enough for threads and for deferral.
fn shape(dice: &mut Dice) -> Vec<usize> {
    match dice.below(40) {
        0 => return vec![dice.choose(&[1000, 40_000])],
        1 => return vec![dice.choose(&[2, 130]), dice.choose(&[300, 65])],
        2 => return vec![1; dice.choose(&[6, 9])],
        3 | 4 => return (0..dice.choose(&[2, 3])).map(|_| dice.choose(&[1, 7, 16, 17, 33, 40])).collect(),
        _ => {}
    }
    let rank = dice.choose(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
    (0..rank).map(|_| dice.choose(&[0, 1, 2, 2, 3, 3, 4, 5])).collect()
}
