//! The secular equation, which divide and conquer joins halves by: the eigenvalues of `diag(p) + rho · z · zᵀ` are the roots of
//! `1 / rho + Σ zᵢ² / (pᵢ - x)`, one behind each pole. Computed in `f64`, whatever the type of the matrix.
//!
//! A root is kept as its distance from the nearest pole, so that its distance from every pole is known to full precision. The
//! vectors are those of the `z` that has exactly the roots that were found (Gu and Eisenstat): they are orthogonal, however
//! close roots and poles are.

use crate::Result;
use crate::backend::cpu::runtime::scratch::{filled, with_room};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};

/// Steps after which the best known approximation is taken. A few are usual.
const STEPS: usize = 100;

/// Numbers side by side in vectors.
const LANES: usize = 16;

/// An equation whose poles are some numbers, or their squares.
pub(super) struct Secular {
    /// What the poles are made of: ascending, no two too close together, none negative if they are squared.
    pub d: Vec<f64>,
    /// None of them too small.
    pub z: Vec<f64>,
    pub rho: f64,
    /// The poles are squares, and so are the roots: eigenvalues are squared singular values.
    pub squared: bool,
}

/// A root, or what it is the square of: `origin + shift`, where `origin` is one of `d`.
#[derive(Clone, Copy)]
struct Root {
    origin: f64,
    shift: f64,
}

/// Sums of terms of the equation and of its derivative, at a root.
#[derive(Clone, Copy)]
struct Sums<'a> {
    d: &'a [f64],
    z: &'a [f64],
    root: Root,
    squared: bool,
}

/// A pole less a root.
#[inline(always)]
fn apart<const SQUARED: bool>(d: f64, root: Root) -> f64 {
    let apart = (d - root.origin) - root.shift;
    if SQUARED { apart * ((d + root.origin) + root.shift) } else { apart }
}

impl Sums<'_> {
    #[inline(always)]
    fn add<const SQUARED: bool>(self) -> (f64, f64) {
        let (mut value, mut slope) = ([0.0; LANES], [0.0; LANES]);
        let (d, last_d) = self.d.as_chunks::<LANES>();
        let (z, last_z) = self.z.as_chunks::<LANES>();
        for (d, z) in d.iter().zip(z) {
            for lane in 0..LANES {
                let term = z[lane] / apart::<SQUARED>(d[lane], self.root);
                value[lane] += z[lane] * term;
                slope[lane] += term * term;
            }
        }
        for (lane, (&d, &z)) in last_d.iter().zip(last_z).enumerate() {
            let term = z / apart::<SQUARED>(d, self.root);
            value[lane] += z * term;
            slope[lane] += term * term;
        }
        (value.iter().sum(), slope.iter().sum())
    }
}

impl Job for Sums<'_> {
    type Output = (f64, f64);
    #[inline(always)]
    fn run<const FMA: bool>(self) -> (f64, f64) {
        if self.squared { self.add::<true>() } else { self.add::<false>() }
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
        let ratio = |d: f64, origin: f64, shift: f64| {
            apart::<SQUARED>(own, Root { origin, shift }) / apart::<SQUARED>(own, Root { origin: d, shift: 0.0 })
        };
        let mut products = [1.0; LANES];
        for range in [0..i, i + 1..d.len()] {
            let (origins, shifts) = (&origins[range.clone()], &shifts[range.clone()]);
            let whole = range.len() / LANES * LANES;
            let d = &d[range];
            for at in (0..whole).step_by(LANES) {
                let (d, origins, shifts) = (&d[at..][..LANES], &origins[at..][..LANES], &shifts[at..][..LANES]);
                for lane in 0..LANES {
                    products[lane] *= ratio(d[lane], origins[lane], shifts[lane]);
                }
            }
            for at in whole..d.len() {
                products[at - whole] *= ratio(d[at], origins[at], shifts[at]);
            }
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

/// `to = z / (p - root)`.
struct Vector<'a> {
    d: &'a [f64],
    z: &'a [f64],
    root: Root,
    squared: bool,
    to: &'a mut [f64],
}

impl Vector<'_> {
    #[inline(always)]
    fn divide<const SQUARED: bool>(self) {
        for ((to, &d), &z) in self.to.iter_mut().zip(self.d).zip(self.z) {
            *to = z / apart::<SQUARED>(d, self.root);
        }
    }
}

impl Job for Vector<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        if self.squared { self.divide::<true>() } else { self.divide::<false>() }
    }
}

/// The root of `c · x² - a · x + b` that lies between the poles of the fractions it comes from.
fn between(a: f64, b: f64, c: f64) -> f64 {
    let root = (a * a - 4.0 * b * c).abs().sqrt();
    if a <= 0.0 { (a - root) / (2.0 * c) } else { 2.0 * b / (a + root) }
}

/// The other root, which lies behind both poles.
fn behind(a: f64, b: f64, c: f64) -> f64 {
    let root = (a * a - 4.0 * b * c).abs().sqrt();
    if a >= 0.0 { (a + root) / (2.0 * c) } else { 2.0 * b / (a - root) }
}

impl Secular {
    fn pole_apart(&self, i: usize, j: usize) -> f64 {
        let (a, b) = (self.d[i], self.d[j]);
        if self.squared { (a - b) * (a + b) } else { a - b }
    }

    /// What is `x` behind the pole of `d[origin]`.
    fn root_at(&self, origin: usize, x: f64) -> Root {
        let origin = self.d[origin];
        let shift = match self.squared && x != 0.0 {
            true => x / (origin + (origin * origin + x).max(0.0).sqrt()),
            false => x,
        };
        Root { origin, shift }
    }

    /// The sums of the terms up to pole `split`, and of those after it.
    fn sums(&self, root: Root, split: usize) -> [(f64, f64); 2] {
        [0..split + 1, split + 1..self.d.len()]
            .map(|range| dispatch(Sums { d: &self.d[range.clone()], z: &self.z[range], root, squared: self.squared }))
    }

    /// The root behind pole `j`, by the "middle way": sums of the terms before and after it are each replaced with one fraction
    /// and a constant, which have the same value and slope.
    fn root(&self, j: usize) -> Root {
        let (n, constant) = (self.d.len(), 1.0 / self.rho);
        let squares = |i: usize| self.z[i] * self.z[i];
        if n == 1 {
            return self.root_at(0, self.rho * squares(0));
        }
        let last = j + 1 == n;
        // The poles of the fractions.
        let split = if last { n - 2 } else { j };
        let gap = self.pole_apart(split + 1, split);
        let (below, above) = (squares(split), squares(split + 1));
        // First as if all other terms were those in the middle.
        let middle = if last { 0.5 * self.rho * self.z.iter().map(|z| z * z).sum::<f64>() } else { 0.5 * gap };
        let [before, after] = self.sums(self.root_at(j, middle), split);
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
            // From the other pole on, where the sides are exchanged.
            (j + 1, (-middle, 0.0), -between(sum - others * gap, above * gap, -others))
        };
        let poles = [split, split + 1].map(|i| self.pole_apart(i, origin));
        let inside = |x: f64, bounds: (f64, f64)| x > bounds.0 && x < bounds.1;
        if !inside(x, bounds) {
            x = 0.5 * (bounds.0 + bounds.1);
        }
        for _ in 0..STEPS {
            let root = self.root_at(origin, x);
            let [before, after] = self.sums(root, split);
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
            // No number is in between.
            if next == x || !inside(next, bounds) {
                break;
            }
            x = next;
        }
        self.root_at(origin, x)
    }

    /// Solves the equation.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn solve(self, op: &'static str) -> Result<Solved> {
        let n = self.d.len();
        let (mut origins, mut shifts) = (filled(op, 0.0, n)?, filled(op, 0.0, n)?);
        let mut weights = filled(op, 0.0, n)?;
        let grain = (GRAIN / (8 * n.max(1))).max(1);
        let (first_origin, first_shift) = (Ptr::new(origins.as_mut_ptr()), Ptr::new(shifts.as_mut_ptr()));
        parallel(n, grain, |range| {
            for j in range {
                let root = self.root(j);
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
                let of = Weight { d: &self.d, origins: known_origins, shifts: known_shifts, i, squared: self.squared };
                // SAFETY: as above.
                unsafe { first_weight.get().add(i).write(dispatch(of).copysign(self.z[i])) };
            }
        });
        Ok(Solved { equation: Secular { z: weights, ..self }, origins, shifts })
    }
}

/// The roots of an equation, with the `z` that has exactly these.
pub(super) struct Solved {
    equation: Secular,
    origins: Vec<f64>,
    shifts: Vec<f64>,
}

impl Solved {
    /// The roots, or what they are the squares of, in ascending order.
    pub fn roots(&self) -> impl Iterator<Item = f64> {
        self.origins.iter().zip(&self.shifts).map(|(origin, shift)| origin + shift)
    }

    /// Calls `f` on the threads with the number of every root, and with what the poles are made of and the vector `z / (p - root)`,
    /// which has any length, both in the order that `places` gives.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn vectors(&self, op: &'static str, places: &[usize], f: impl Fn(usize, &[f64], &[f64]) + Sync) -> Result<()> {
        let Secular { d, z, squared, .. } = &self.equation;
        let n = d.len();
        let (mut ordered_d, mut ordered_z) = (with_room(op, n)?, with_room(op, n)?);
        ordered_d.extend(places.iter().map(|&at| d[at]));
        ordered_z.extend(places.iter().map(|&at| z[at]));
        let (d, z) = (&ordered_d[..], &ordered_z[..]);
        parallel(n, (GRAIN / (2 * n.max(1))).max(1), |range| {
            let mut to = vec![0.0; n];
            for j in range {
                let root = Root { origin: self.origins[j], shift: self.shifts[j] };
                dispatch(Vector { d, z, root, squared: *squared, to: &mut to });
                f(j, d, &to);
            }
        });
        Ok(())
    }
}
