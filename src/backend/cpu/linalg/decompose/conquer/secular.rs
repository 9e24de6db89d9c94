//! The secular equation, by which divide and conquer joins halves: the eigenvalues of `diag(p) + rho · z · zᵀ` are the roots of
//! `1 / rho + Σ zᵢ² / (pᵢ - x)`, one after each pole. It is computed in `f64`, whatever the type of the matrix.
//!
//! A root is stored as its distance from the nearest pole, so that its distance from every pole is known to full precision. The
//! vectors are those of the `z` for which the computed roots are exact (Gu and Eisenstat): they are orthogonal, however close
//! roots and poles are.

use super::largest;
use crate::Result;
use crate::backend::cpu::linalg::decompose::columns::{padded, total};
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::memory::scratch::filled;
use crate::zip::zip;

/// The number of steps after which the best known approximation is taken. A few are usual.
const STEPS: usize = 100;

/// The number of lanes of vectors.
const LANES: usize = 16;

/// The number of poles that share a division, which takes as long as several multiplications.
const SHARED: usize = 4;

/// A pole far beyond all others, which pads vectors with a weight of 0.
const FAR: f64 = 1e18;

/// An equation whose poles are given numbers, or their squares.
pub(super) struct Secular {
    /// The poles, or their square roots: ascending, no two too close together, none negative if they are squared.
    pub d: Vec<f64>,
    /// None is too small.
    pub z: Vec<f64>,
    pub rho: f64,
    /// Whether poles and roots are squares, as eigenvalues are squared singular values.
    pub squared: bool,
}

/// A root, or its square root: `origin + shift`, where `origin` is one of `d`.
#[derive(Clone, Copy)]
struct Root {
    origin: f64,
    shift: f64,
}

/// A pole minus a root.
#[inline(always)]
fn apart<const SQUARED: bool>(d: f64, root: Root) -> f64 {
    let apart = (d - root.origin) - root.shift;
    if SQUARED { apart * ((d + root.origin) + root.shift) } else { apart }
}

/// `to = z / (p - root)`. The length is a multiple of [`SHARED`], and the largest of `d` about 1: so no product underflows.
struct Terms<'a> {
    d: &'a [f64],
    z: &'a [f64],
    root: Root,
    squared: bool,
    to: &'a mut [f64],
}

/// Parts of equal length.
#[inline(always)]
fn quarters(x: &[f64], len: usize) -> [&[f64]; SHARED] {
    each(|part| &x[part * len..][..len])
}

impl Terms<'_> {
    #[inline(always)]
    fn divide<const SQUARED: bool>(self) {
        let (len, root) = (self.to.len() / SHARED, self.root);
        let ([d0, d1, d2, d3], [z0, z1, z2, z3]) = (quarters(self.d, len), quarters(self.z, len));
        let (first, second) = self.to.split_at_mut(2 * len);
        let ((to0, to1), (to2, to3)) = (first.split_at_mut(len), second.split_at_mut(len));
        let (to2, to3) = (&mut to2[..len], &mut to3[..len]);
        for i in 0..len {
            let (a, b) = (apart::<SQUARED>(d0[i], root), apart::<SQUARED>(d1[i], root));
            let (c, d) = (apart::<SQUARED>(d2[i], root), apart::<SQUARED>(d3[i], root));
            let (ab, cd) = (a * b, c * d);
            let inverse = 1.0 / (ab * cd);
            let (ab, cd) = (cd * inverse, ab * inverse);
            to0[i] = z0[i] * (b * ab);
            to1[i] = z1[i] * (a * ab);
            to2[i] = z2[i] * (d * cd);
            to3[i] = z3[i] * (c * cd);
        }
    }
}

impl Job for Terms<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        if self.squared { self.divide::<true>() } else { self.divide::<false>() }
    }
}

/// `Σ z · term` and `Σ term²`: sums of the equation and of its derivative.
struct Sums<'a> {
    z: &'a [f64],
    terms: &'a [f64],
}

impl Job for Sums<'_> {
    type Output = (f64, f64);
    #[inline(always)]
    fn run<const FMA: bool>(self) -> (f64, f64) {
        let (mut value, mut slope) = ([0.0; LANES], [0.0; LANES]);
        let (z, last_z) = self.z.as_chunks::<LANES>();
        let (terms, last_terms) = self.terms.as_chunks::<LANES>();
        let last = (padded::<f64, LANES>(last_z, 0.0), padded::<f64, LANES>(last_terms, 0.0));
        for (z, term) in zip(z, terms) {
            for lane in 0..LANES {
                value[lane] += z[lane] * term[lane];
                slope[lane] += term[lane] * term[lane];
            }
        }
        for lane in 0..LANES {
            value[lane] += last.0[lane] * last.1[lane];
            slope[lane] += last.1[lane] * last.1[lane];
        }
        (total(value), total(slope))
    }
}

/// The products of [`Secular::weights`] for pole `i`.
struct Weight<'a> {
    d: &'a [f64],
    origins: &'a [f64],
    shifts: &'a [f64],
    i: usize,
    squared: bool,
}

impl Weight<'_> {
    #[inline(always)]
    fn multiply<const SQUARED: bool>(self) -> f64 {
        let Weight { d, origins, shifts, i, .. } = self;
        let own = d[i];
        // Two ratios share a division.
        let mut products = [1.0; LANES / 2];
        let mut multiply = |d: &[f64; LANES], origins: &[f64; LANES], shifts: &[f64; LANES]| {
            for (lane, product) in products.iter_mut().enumerate() {
                let other = lane + LANES / 2;
                let from_root = |at: usize| apart::<SQUARED>(own, Root { origin: origins[at], shift: shifts[at] });
                let from_pole = |at: usize| apart::<SQUARED>(own, Root { origin: d[at], shift: 0.0 });
                *product *= (from_root(lane) * from_root(other)) / (from_pole(lane) * from_pole(other));
            }
        };
        for range in [0..i, i + 1..d.len()] {
            let (d, last_d) = d[range.clone()].as_chunks::<LANES>();
            let (origins, last_origins) = origins[range.clone()].as_chunks::<LANES>();
            let (shifts, last_shifts) = shifts[range].as_chunks::<LANES>();
            for ((d, origins), shifts) in zip(zip(d, origins), shifts) {
                multiply(d, origins, shifts);
            }
            // Missing elements have a ratio of 1.
            let other = own + 1.0;
            multiply(&padded(last_d, other), &padded(last_origins, other), &padded(last_shifts, 0.0));
        }
        let own = apart::<SQUARED>(own, Root { origin: origins[i], shift: shifts[i] });
        products.iter().fold(own, |all, x| all * x).abs().sqrt()
    }
}

impl Job for Weight<'_> {
    type Output = f64;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        if self.squared { self.multiply::<true>() } else { self.multiply::<false>() }
    }
}

/// The root of `c · x² - a · x + b` that lies between the poles of the fractions it comes from.
fn between(a: f64, b: f64, c: f64) -> f64 {
    let root = (a * a - 4.0 * b * c).abs().sqrt();
    if a <= 0.0 { (a - root) / (2.0 * c) } else { 2.0 * b / (a + root) }
}

/// The other root, which lies beyond both poles.
fn behind(a: f64, b: f64, c: f64) -> f64 {
    let root = (a * a - 4.0 * b * c).abs().sqrt();
    if a >= 0.0 { (a + root) / (2.0 * c) } else { 2.0 * b / (a - root) }
}

/// A [`Secular`] equation in units of its largest number, padded to whole vectors.
struct Equation {
    d: Vec<f64>,
    z: Vec<f64>,
    rho: f64,
    squared: bool,
    /// The number of poles.
    n: usize,
    unit: f64,
}

impl Equation {
    fn new(op: &'static str, from: &Secular) -> Result<Equation> {
        let &Secular { ref d, ref z, rho, squared } = from;
        let (n, most) = (d.len(), largest(d.iter().copied()));
        let most = if squared { most.max(largest(z.iter().copied())) } else { most.max(rho) };
        // A power of two, so that scaling is exact.
        let power = f64::from_bits(most.to_bits() & f64::INFINITY.to_bits());
        let unit = if power.is_normal() { power } else { 1.0 };
        let of_z = if squared { unit } else { 1.0 };
        let room = n.next_multiple_of(SHARED * 8);
        let (mut all_d, mut all_z) = (filled(op, FAR, room)?, filled(op, 0.0, room)?);
        zip(&mut all_d[..], d).for_each(|(to, x)| *to = x / unit);
        zip(&mut all_z[..], z).for_each(|(to, x)| *to = x / of_z);
        let rho = if squared { rho } else { rho / unit };
        Ok(Equation { d: all_d, z: all_z, rho, squared, n, unit })
    }

    fn pole_apart(&self, i: usize, j: usize) -> f64 {
        let (a, b) = (self.d[i], self.d[j]);
        if self.squared { (a - b) * (a + b) } else { a - b }
    }

    /// The root at distance `x` after the pole of `d[origin]`.
    fn root_at(&self, origin: usize, x: f64) -> Root {
        let origin = self.d[origin];
        let shift = match self.squared && x != 0.0 {
            true => x / (origin + (origin * origin + x).max(0.0).sqrt()),
            false => x,
        };
        Root { origin, shift }
    }

    /// The sums of the terms up to pole `split`, and of those after it.
    fn sums(&self, root: Root, split: usize, terms: &mut [f64]) -> [(f64, f64); 2] {
        dispatch(Terms { d: &self.d, z: &self.z, root, squared: self.squared, to: &mut *terms });
        [0..split + 1, split + 1..self.n]
            .map(|range| dispatch(Sums { z: &self.z[range.clone()], terms: &terms[range] }))
    }

    /// The root after pole `j`, by the "middle way": the sums of the terms before and after it are each replaced by one fraction
    /// and a constant, with the same value and slope.
    fn root(&self, j: usize, terms: &mut [f64]) -> Root {
        let (n, constant) = (self.n, 1.0 / self.rho);
        let squares = |i: usize| self.z[i] * self.z[i];
        if n == 1 {
            return self.root_at(0, self.rho * squares(0));
        }
        let last = j + 1 == n;
        // The poles of the fractions.
        let split = if last { n - 2 } else { j };
        let gap = self.pole_apart(split + 1, split);
        let (below, above) = (squares(split), squares(split + 1));
        // The first guess takes the values of all other terms in the middle.
        let middle = if last { 0.5 * self.rho * self.z.iter().map(|z| z * z).sum::<f64>() } else { 0.5 * gap };
        let [before, after] = self.sums(self.root_at(j, middle), split, terms);
        let value = constant + before.0 + after.0;
        let near =
            if last { below / (-gap - middle) + above / -middle } else { below / -middle + above / (gap - middle) };
        let others = value - near;
        let sum = below + above;
        let (origin, mut bounds, mut x) = if last {
            (j, (0.0, 2.0 * middle), behind(sum - others * gap, -above * gap, others))
        } else if value >= 0.0 {
            (j, (0.0, middle), between(others * gap + sum, below * gap, others))
        } else {
            // Relative to the other pole, with the sides exchanged.
            (j + 1, (-middle, 0.0), -between(sum - others * gap, above * gap, -others))
        };
        let poles = [split, split + 1].map(|i| self.pole_apart(i, origin));
        let inside = |x: f64, bounds: (f64, f64)| x > bounds.0 && x < bounds.1;
        if !inside(x, bounds) {
            x = 0.5 * (bounds.0 + bounds.1);
        }
        for _ in 0..STEPS {
            let root = self.root_at(origin, x);
            let [before, after] = self.sums(root, split, terms);
            let (value, slope) = (constant + before.0 + after.0, before.1 + after.1);
            let rounding = 8.0 * (before.0.abs() + after.0.abs()) + constant + x.abs() * slope;
            if value.abs() <= 0.5 * f64::EPSILON * rounding {
                break;
            }
            if value < 0.0 {
                bounds.0 = x;
            } else {
                bounds.1 = x;
            }
            let (first, second) = (poles[0] - x, poles[1] - x);
            let c = value - first * before.1 - second * after.1;
            let a = (first + second) * value - first * second * slope;
            let b = first * second * value;
            let step = if last { behind(a, b, c) } else { between(a, b, c) };
            let mut next = x + step;
            if !inside(next, bounds) {
                next = 0.5 * (bounds.0 + bounds.1);
            }
            // There is no number in between.
            if next == x || !inside(next, bounds) {
                break;
            }
            x = next;
        }
        self.root_at(origin, x)
    }
}

impl Secular {
    /// Solves the equation.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn solve(self, op: &'static str) -> Result<Solved> {
        let n = self.d.len();
        let (mut origins, mut shifts) = (filled(op, 0.0, n)?, filled(op, 0.0, n)?);
        let mut equation = Equation::new(op, &self)?;
        let mut weights = filled(op, 0.0, equation.z.len())?;
        let grain = (GRAIN / (8 * n.max(1))).max(1);
        let (first_origin, first_shift) = (Ptr::new(origins.as_mut_ptr()), Ptr::new(shifts.as_mut_ptr()));
        parallel(n, grain, |range| {
            let mut terms = vec![0.0; equation.d.len()];
            for j in range {
                let root = equation.root(j, &mut terms);
                // SAFETY: there are `n` of both, and each is one thread's.
                unsafe {
                    first_origin.get().add(j).write(root.origin);
                    first_shift.get().add(j).write(root.shift);
                }
            }
        });
        let first_weight = Ptr::new(weights.as_mut_ptr());
        let (known_origins, known_shifts) = (&origins, &shifts);
        parallel(n, grain, |range| {
            for i in range {
                let of = Weight {
                    d: &equation.d[..n],
                    origins: known_origins,
                    shifts: known_shifts,
                    i,
                    squared: self.squared,
                };
                // SAFETY: as above.
                unsafe { first_weight.get().add(i).write(dispatch(of).copysign(self.z[i])) };
            }
        });
        equation.z = weights;
        Ok(Solved { equation, origins, shifts })
    }
}

/// The roots of an equation, with the `z` for which they are exact.
pub(super) struct Solved {
    equation: Equation,
    origins: Vec<f64>,
    shifts: Vec<f64>,
}

impl Solved {
    /// The roots, or their square roots, in ascending order.
    pub fn roots(&self) -> impl Iterator<Item = f64> {
        zip(&self.origins[..], &self.shifts).map(|(origin, shift)| (origin + shift) * self.equation.unit)
    }

    /// Calls `f` on the threads with the number of every root, the poles or their square roots, and the vector `z / (p - root)`,
    /// which is not normalized, both in the order of `positions`.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn vectors(
        &self,
        op: &'static str,
        positions: &[usize],
        f: impl Fn(usize, &[f64], &[f64]) + Sync,
    ) -> Result<()> {
        let &Equation { ref d, ref z, squared, n, .. } = &self.equation;
        let (mut ordered_d, mut ordered_z) = (filled(op, FAR, d.len())?, filled(op, 0.0, d.len())?);
        zip(&mut ordered_d[..], positions).for_each(|(to, &at)| *to = d[at]);
        zip(&mut ordered_z[..], positions).for_each(|(to, &at)| *to = z[at]);
        let (d, z) = (&ordered_d[..], &ordered_z[..]);
        parallel(n, (GRAIN / (2 * n.max(1))).max(1), |range| {
            let mut to = vec![0.0; d.len()];
            for j in range {
                let root = Root { origin: self.origins[j], shift: self.shifts[j] };
                dispatch(Terms { d, z, root, squared, to: &mut to });
                f(j, &d[..n], &to[..n]);
            }
        });
        Ok(())
    }
}
