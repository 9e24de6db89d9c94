//! Complex numbers.
//!
//! A complex tensor stores the real and imaginary parts of an element next to each other. Kernels operate on real numbers
//! only. Operations on complex numbers are composed of operations on the parts, and differentiated through them: the
//! cotangent of `re + i im` is that of `re` plus `i` times that of `im`, which is PyTorch's convention. Elementwise formulas
//! are split into parts by [`ComplexFormula`](crate::backend::spec::ComplexFormula).

use crate::autograd::BackwardContext;
use crate::backend::spec::{Ordered, select};
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::elementwise::call::{common_dtype, elementwise, zero};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::{DType, Result, Tensor};
use smallvec::smallvec;
use std::f64::consts::PI;

impl Tensor {
    /// Complex numbers from this tensor as real parts, and another of the same shape and dtype as imaginary parts.
    #[track_caller]
    pub(crate) fn with_imaginary(&self, imag: &Tensor) -> Result<Tensor> {
        // The stacked parts are not shared, so that the result is not a view.
        Ok(Tensor::stack(&[self, imag], -1)?.view_as_complex()?.into_value())
    }

    /// Applies a function to the real and to the imaginary parts separately.
    #[track_caller]
    pub(crate) fn by_parts(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        f(&self.real()?)?.with_imaginary(&f(&self.imag()?)?)
    }
}

/// # Complex numbers
#[ops]
impl Tensor {
    /// A view of complex numbers as real ones, with a last dimension of size 2 for the real and imaginary parts. Real
    /// tensors are refused.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor};
    /// let z = Tensor::new([Complex::new(3.0_f32, 4.0)])?;
    /// assert_eq!(z.view_as_real()?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not complex.
    #[op(samples = complex_samples, errors = view_as_real_errors, view)]
    pub fn view_as_real(&self) -> Result<Tensor> {
        if !self.dtype().is_complex() {
            bail!(DType, "view_as_real", "input must be complex, got {}", self.dtype());
        }
        let layout = self.layout().pairs();
        self.reinterpreted(layout, self.dtype().to_real()).record("view_as_real", &[self], |_| {
            |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.view_as_complex()?)])
        })
    }

    /// Complex numbers from a last dimension of size 2 with real and imaginary parts. The result is a view if the two
    /// parts are adjacent in memory, and a copy otherwise.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor, tensor};
    /// let z = tensor!([[3.0, 4.0]])?.view_as_complex()?;
    /// assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(3.0, 4.0)]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are neither f32 nor f64, or the size of the last dimension is not 2.
    #[op(autocast_cpu = f32, samples = pair_samples, errors = pair_errors, full_precision)]
    pub fn view_as_complex(&self) -> Result<Tensor> {
        let dtype = match self.dtype() {
            DType::F32 => DType::C64,
            DType::F64 => DType::C128,
            other => bail!(DType, "view_as_complex", "input must be f32 or f64, got {other}"),
        };
        if self.shape().last() != Some(&2) {
            bail!(Shape, "view_as_complex", "last dimension must have size 2, got shape {:?}", self.shape());
        }
        let mut whole = if self.layout().joined_pairs().is_some() { self.clone() } else { self.contiguous()? };
        let odd = |whole: &Tensor| whole.batch_dims().is_some_and(|dims| dims.iter().any(|dim| dim.stride % 2 != 0));
        if whole.layout().joined_pairs().is_none() || odd(&whole) {
            // Adjacent pairs that are not aligned to complex numbers.
            whole = self.deep_clone()?;
        }
        let Some(layout) = whole.layout().joined_pairs() else {
            bail!(Backend, "view_as_complex", "cannot pair the elements of a copy of shape {:?}", self.shape());
        };
        whole.reinterpreted(layout, dtype).record("view_as_complex", &[&whole], |_| {
            |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.view_as_real()?)])
        })
    }

    /// Complex numbers from real parts, this tensor, and imaginary parts, the other. The two broadcast.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor, tensor};
    /// let z = tensor!([3.0])?.complex(&tensor!([4.0])?)?;
    /// assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(3.0, 4.0)]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the elements are neither f32 nor f64.
    #[op(samples = part_samples, errors = complex_errors, full_precision)]
    pub fn complex(&self, imag: &Tensor) -> Result<Tensor> {
        let dtype = common_dtype("complex", self.dtype(), imag.dtype())?;
        if !matches!(dtype, DType::F32 | DType::F64) {
            bail!(DType, "complex", "inputs must be f32 or f64, got {dtype}");
        }
        let shape = broadcast("complex", &[self.layout().shape(), imag.layout().shape()])?;
        let part = |x: &Tensor| x.to_dtype(dtype)?.expand(&shape);
        Tensor::stack(&[&part(self)?, &part(imag)?], -1)?.view_as_complex()
    }

    /// Complex numbers from absolute values, this tensor, and angles.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor, tensor};
    /// let z = tensor!([2.0])?.polar(&tensor!([0.0])?)?;
    /// assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(2.0, 0.0)]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the elements are neither f32 nor f64.
    #[op(autocast_cpu = f32, samples = polar_samples, errors = complex_errors, full_precision)]
    pub fn polar(&self, angle: &Tensor) -> Result<Tensor> {
        for x in [self, angle] {
            if !matches!(x.dtype(), DType::F32 | DType::F64) {
                bail!(DType, "polar", "inputs must be f32 or f64, got {}", x.dtype());
            }
        }
        self.mul(&angle.cos()?)?.complex(&self.mul(&angle.sin()?)?)
    }

    /// The real parts, as a view. A real tensor is returned unchanged.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor};
    /// let z = Tensor::new([Complex::new(3.0_f32, 4.0)])?;
    /// assert_eq!(z.real()?.to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = complex_samples, view)]
    pub fn real(&self) -> Result<Tensor> {
        if !self.dtype().is_complex() {
            return Ok(self.clone());
        }
        self.view_as_real()?.select(-1, 0)
    }

    /// The imaginary parts, as a view. Real tensors are refused.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor};
    /// let z = Tensor::new([Complex::new(3.0_f32, 4.0)])?;
    /// assert_eq!(z.imag()?.to_vec::<f32>()?, [4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not complex.
    #[op(samples = complex_samples, errors = imag_errors, view)]
    pub fn imag(&self) -> Result<Tensor> {
        if !self.dtype().is_complex() {
            bail!(DType, "imag", "input must be complex, got {}", self.dtype());
        }
        self.view_as_real()?.select(-1, 1)
    }

    /// The complex conjugate. A real tensor is returned unchanged.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor};
    /// let z = Tensor::new([Complex::new(3.0_f32, 4.0)])?;
    /// assert_eq!(z.conj()?.to_vec::<Complex<f32>>()?, [Complex::new(3.0, -4.0)]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = any_samples, aliases = ["conj_physical"])]
    #[doc(alias = "conj_physical")]
    pub fn conj(&self) -> Result<Tensor> {
        if !self.dtype().is_complex() {
            return Ok(self.clone());
        }
        self.real()?.with_imaginary(&self.imag()?.neg()?)
    }

    /// The conjugate transpose of the last two dimensions.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor};
    /// let z = Tensor::new([[Complex::new(3.0_f32, 4.0), Complex::<f32>::I]])?;
    /// assert_eq!(z.adjoint()?.to_vec::<Complex<f32>>()?, [Complex::new(3.0, -4.0), Complex::new(0.0, -1.0)]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    #[op(samples = adjoint_samples, errors = adjoint_errors, aliases = ["mH", "H"])]
    #[doc(alias = "mH")]
    pub fn adjoint(&self) -> Result<Tensor> {
        if self.rank() < 2 {
            bail!(Shape, "adjoint", "input must have at least 2 dimensions, got shape {:?}", self.shape());
        }
        self.transpose(-2, -1)?.conj()
    }

    /// The angle of each element in the complex plane; 0 or π for real numbers.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2.0, -2.0])?.angle()?.to_vec::<f32>()?, [0.0, std::f32::consts::PI]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = angle_samples)]
    pub fn angle(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.imag()?.atan2(&self.real()?);
        }
        elementwise!(Float angle(self) |x| select(x.ne(x), x, select(x.lt(zero()), zero() + PI, zero())),
            |g, _y| [g * 0.0])
    }

    /// `x / |x|`, and 0 at 0. For real numbers this is [`sign`](Self::sign).
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor};
    /// let z = Tensor::new([Complex::new(3.0_f32, 4.0)])?;
    /// assert_eq!(z.sgn()?.to_vec::<Complex<f32>>()?, [Complex::new(0.6, 0.8)]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = complex_samples)]
    pub fn sgn(&self) -> Result<Tensor> {
        if !self.dtype().is_complex() {
            return self.sign();
        }
        let size = self.abs()?;
        // At 0 both the result and its derivative are 0.
        let size = size.masked_fill(&size.eq(0)?, f64::INFINITY)?;
        self.by_parts(|part| part.div(&size))
    }

    /// True where the imaginary part is 0. Real tensors are always real.
    ///
    /// ```
    /// # use cotangent::{Complex, Tensor};
    /// let z = Tensor::new([Complex::new(3.0_f32, 4.0)])?;
    /// assert_eq!(z.isreal()?.to_vec::<bool>()?, [false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = any_samples, derivative = none)]
    pub fn isreal(&self) -> Result<Tensor> {
        if !self.dtype().is_complex() {
            return crate::ops::elementwise::classify::everywhere(self, true);
        }
        self.imag()?.eq(0)
    }
}

/// Complex numbers of this shape, away from 0.
pub(in crate::ops) fn complex_spread(shape: &[usize]) -> Result<Tensor> {
    spread(shape, -2.0, 2.1)?.with_imaginary(&spread(shape, 0.3, 1.9)?.flip(..)?)
}

fn complex_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![complex_spread(&[2, 3])?], sample![complex_spread(&[])?], sample![complex_spread(&[2, 0])?]])
}

fn any_samples() -> Result<Vec<Sample>> {
    let mut all = complex_samples()?;
    all.push(sample![spread([2, 3], -2.0, 2.1)?]);
    all.push(sample![ints(&[1, -2], [2])?]);
    Ok(all)
}

fn angle_samples() -> Result<Vec<Sample>> {
    let mut all = complex_samples()?;
    all.push(sample![spread([2, 3], -2.0, 2.1)?].zero_derivative());
    all.push(sample![ints(&[1, -2], [2])?]);
    Ok(all)
}

fn adjoint_samples() -> Result<Vec<Sample>> {
    let all: [&[usize]; 3] = [&[2, 3], &[2, 1, 3], &[0, 2]];
    let mut samples = all.iter().map(|shape| Ok(sample![complex_spread(shape)?])).collect::<Result<Vec<_>>>()?;
    samples.push(sample![spread([2, 3], -2.0, 2.1)?]);
    Ok(samples)
}

fn adjoint_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a vector", "[3]"; sample![normal([3], 1)?]]])
}

fn pair_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.1);
    Ok(vec![
        sample![x(&[3, 2])?],
        sample![x(&[2])?],
        sample![x(&[0, 2])?],
        sample![x(&[3, 2, 2])?.transpose(0, 1)?],
        // Parts that are not adjacent in memory.
        sample![x(&[2, 3])?.t()?],
        // Parts that begin in the middle of a pair.
        sample![x(&[5])?.narrow(0, 1, 4)?.reshape([2, 2])?],
    ])
}

fn part_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize], low: f64| spread(shape, low, low + 2.0);
    Ok(vec![
        sample![x(&[2, 3], -1.0)?, x(&[2, 3], 0.5)?],
        sample![x(&[3], -1.0)?, x(&[2, 1], 0.5)?],
        sample![x(&[], -1.0)?, x(&[], 0.5)?],
        sample![x(&[0], -1.0)?, x(&[1], 0.5)?],
    ])
}

fn polar_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize], low: f64| spread(shape, low, low + 2.0);
    Ok(vec![sample![x(&[2, 3], 0.5)?, x(&[2, 3], -1.0)?], sample![x(&[3], 0.5)?, x(&[2, 1], -1.0)?]])
}

fn view_as_real_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["real numbers", "f64"; sample![normal([2], 1)?]]])
}

fn imag_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["real numbers", "f64"; sample![normal([2], 1)?]]])
}

fn pair_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?]],
        error!["no pairs", "[2, 3]"; sample![normal([2, 3], 1)?]],
        error!["a single number", "[]"; sample![normal([], 1)?]],
    ])
}

fn complex_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2], 1)?;
    Ok(vec![
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?, ints(&[1, 2], [2])?]],
        error!["shapes that do not broadcast", "[2]", "[3]"; sample![&x, normal([3], 1)?]],
    ])
}
