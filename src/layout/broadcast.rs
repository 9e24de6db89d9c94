//! NumPy's broadcasting rule, and its inverse.

use super::{Layout, Shape, Strides, check_shape};
use crate::{Result, error::bail};
use smallvec::SmallVec;

/// The shape to which all the shapes broadcast: aligned at the last dimension, sizes equal or one of them 1.
pub(crate) fn broadcast(op: &'static str, shapes: &[&Shape]) -> Result<Shape> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out: SmallVec<[usize; 5]> = SmallVec::from_elem(1, rank);
    for shape in shapes {
        for (o, &size) in out[rank - shape.len()..].iter_mut().zip(shape.iter()) {
            if *o == 1 {
                *o = size;
            } else if size != 1 && size != *o {
                let listed = shapes.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(" and ");
                bail!(Shape, op, "shapes {listed} do not broadcast: sizes {} and {size} differ", *o);
            }
        }
    }
    // Two valid shapes can broadcast to one that is too large.
    check_shape(op, &out)?;
    Ok(out.into_iter().collect())
}

/// The dimensions of `from` to sum to undo its broadcast from `to`; `None` if `to` does not broadcast to `from`.
pub(crate) fn reduced_dims(from: &Shape, to: &Shape) -> Option<SmallVec<[isize; 5]>> {
    let lead = from.len().checked_sub(to.len())?;
    let mut dims: SmallVec<[isize; 5]> = (0..lead as isize).collect();
    for (at, (&f, &t)) in from[lead..].iter().zip(to.iter()).enumerate() {
        if f != t {
            if t != 1 {
                return None;
            }
            dims.push((lead + at) as isize);
        }
    }
    Some(dims)
}

impl Layout {
    /// This layout broadcast to a shape: repeated dimensions get stride 0. The caller has checked with [`broadcast`] that the
    /// shapes are compatible.
    #[inline]
    pub fn broadcast_to(&self, shape: &Shape) -> Layout {
        if self.shape == *shape {
            return self.clone();
        }
        let lead = shape.len() - self.shape.len();
        let mut strides = Strides::from_elem(0, shape.len());
        for (at, (&size, &stride)) in self.shape.iter().zip(self.strides.iter()).enumerate() {
            if size == shape[lead + at] {
                strides[lead + at] = stride;
            }
        }
        Layout::new(shape.clone(), strides, self.offset)
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    fn pair(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
        broadcast("add", &[&a.into(), &b.into()]).ok().map(|s| s.to_vec())
    }

    #[test]
    fn shapes_broadcast_both_ways() {
        assert_eq!(pair(&[2, 3], &[1, 3]), Some(vec![2, 3]));
        assert_eq!(pair(&[1, 3], &[2, 3]), Some(vec![2, 3]));
        assert_eq!(pair(&[4, 1], &[1, 5]), Some(vec![4, 5]));
        assert_eq!(pair(&[3], &[4, 3]), Some(vec![4, 3]));
        assert_eq!(pair(&[], &[0, 2]), Some(vec![0, 2]));
        assert_eq!(pair(&[1], &[0]), Some(vec![0]));
        assert_eq!(pair(&[2], &[0]), None);
        assert_eq!(pair(&[2, 3], &[2]), None);
    }

    #[test]
    fn a_refusal_names_the_shapes() {
        let refused = broadcast("mul", &[&[2, 3].into(), &[4].into()]).map_err(|e| e.to_string());
        let want = "mul: shapes [2, 3] and [4] do not broadcast: sizes 3 and 4 differ";
        assert_eq!(refused.err().as_deref(), Some(want));
    }

    #[test]
    fn summing_back_covers_leading_and_widened_dims() {
        let dims = |f: &[usize], t: &[usize]| reduced_dims(&f.into(), &t.into()).map(|d| d.to_vec());
        assert_eq!(dims(&[2, 3], &[3]), Some(vec![0]));
        assert_eq!(dims(&[2, 3], &[2, 1]), Some(vec![1]));
        assert_eq!(dims(&[5, 2, 3], &[1, 1]), Some(vec![0, 1, 2]));
        assert_eq!(dims(&[2, 3], &[]), Some(vec![0, 1]));
        assert_eq!(dims(&[2, 3], &[2]), None);
    }
}
