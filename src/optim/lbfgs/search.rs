//! Line search for the strong Wolfe conditions (Nocedal and Wright, chapter 3).

use crate::{Result, Tensor};

/// A point of the line.
#[derive(Clone)]
pub(super) struct Point {
    pub length: f64,
    pub value: f64,
    /// The derivative along the line.
    pub slope: f64,
    pub gradient: Tensor,
}

pub(super) struct Search {
    pub start: Point,
    /// The largest element of the direction.
    pub reach: f64,
    /// Intervals in which no parameter moves by more are not divided.
    pub tolerance: f64,
    /// The largest number of points to try.
    pub most: u64,
}

/// The part of the predicted decrease that is enough (c₁).
const DECREASE: f64 = 1e-4;
/// The part of the slope that may remain (c₂).
const SLOPE: f64 = 0.9;

impl Search {
    /// A point that satisfies the conditions, or the best one found, and the number of evaluations.
    pub fn run(&self, first: f64, at: &mut dyn FnMut(f64) -> Result<Point>) -> Result<(Point, u64)> {
        let (mut last, mut new) = (self.start.clone(), at(first)?);
        let (mut evaluated, mut rounds) = (1, 0);
        // Bracketing: further out, until a point satisfies the conditions or the minimum lies between two points.
        let mut ends = loop {
            if rounds >= self.most {
                break [self.start.clone(), new];
            }
            if self.is_above(&new) || (rounds > 1 && new.value >= last.value) {
                break [last, new];
            }
            if self.is_flat(&new) {
                return Ok((new, evaluated));
            }
            if new.slope >= 0.0 {
                break [last, new];
            }
            let bounds = (new.length + 0.01 * (new.length - last.length), new.length * 10.0);
            let length = lowest_of_cubic(&last, &new, bounds);
            last = std::mem::replace(&mut new, at(length)?);
            (evaluated, rounds) = (evaluated + 1, rounds + 1);
        };
        // Zooming: closer, between the two.
        let mut slow = false;
        let mut low = lower(&ends);
        while rounds < self.most {
            let (left, right) = (ends[0].length.min(ends[1].length), ends[0].length.max(ends[1].length));
            if (right - left) * self.reach < self.tolerance {
                break;
            }
            let mut length = lowest_of_cubic(&ends[0], &ends[1], (left, right));
            // If twice near an end, a tenth of the interval away from it.
            let margin = 0.1 * (right - left);
            if (right - length).min(length - left) < margin {
                if slow || length >= right || length <= left {
                    let near_right = (length - right).abs() < (length - left).abs();
                    length = if near_right { right - margin } else { left + margin };
                    slow = false;
                } else {
                    slow = true;
                }
            } else {
                slow = false;
            }
            let point = at(length)?;
            (evaluated, rounds) = (evaluated + 1, rounds + 1);
            let high = 1 - low;
            if self.is_above(&point) || point.value >= ends[low].value {
                ends[high] = point;
                low = lower(&ends);
                continue;
            }
            let done = self.is_flat(&point);
            if !done && point.slope * (ends[high].length - ends[low].length) >= 0.0 {
                ends[high] = ends[low].clone();
            }
            ends[low] = point;
            if done {
                break;
            }
        }
        let [a, b] = ends;
        Ok((if low == 0 { a } else { b }, evaluated))
    }

    /// Whether the value has not decreased enough.
    fn is_above(&self, point: &Point) -> bool {
        point.value > self.start.value + DECREASE * point.length * self.start.slope
    }

    /// Whether the remaining slope is small enough.
    fn is_flat(&self, point: &Point) -> bool {
        point.slope.abs() <= -SLOPE * self.start.slope
    }
}

/// Which of two points has the lower value; the first if one is NaN.
fn lower(ends: &[Point; 2]) -> usize {
    usize::from(ends[1].value < ends[0].value)
}

/// Where the cubic through two points with their slopes is lowest, within bounds.
fn lowest_of_cubic(a: &Point, b: &Point, (least, most): (f64, f64)) -> f64 {
    let mean = a.slope + b.slope - 3.0 * (a.value - b.value) / (a.length - b.length);
    let square = mean * mean - a.slope * b.slope;
    if square.is_nan() || square < 0.0 {
        return f64::midpoint(least, most);
    }
    let root = square.sqrt();
    let (near, far) = if a.length <= b.length { (a, b) } else { (b, a) };
    let part = (far.slope + root - mean) / (far.slope - near.slope + 2.0 * root);
    (far.length - (far.length - near.length) * part).max(least).min(most)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Generator;

    #[test]
    fn the_point_found_satisfies_the_strong_wolfe_conditions() -> Result<()> {
        // A parabola with waves, which has many intervals where one condition holds and the other does not.
        let drawn = Generator::seed(5).rand_with([400, 4], crate::DType::F64)?.to_vec::<f64>()?;
        let (mut searched, zero) = (0, Tensor::zeros(())?);
        for numbers in drawn.chunks_exact(4) {
            let [amplitude, frequency, phase, first] =
                [numbers[0], 1.0 + 9.0 * numbers[1], 6.3 * numbers[2], numbers[3]];
            let value = |t: f64| (t - 3.0).powi(2) + amplitude * (frequency * t + phase).sin();
            let slope = |t: f64| 2.0 * (t - 3.0) + amplitude * frequency * (frequency * t + phase).cos();
            if slope(0.0) >= 0.0 {
                continue;
            }
            let point =
                |length| Ok(Point { length, value: value(length), slope: slope(length), gradient: zero.clone() });
            let search = Search { start: point(0.0)?, reach: 1.0, tolerance: 1e-12, most: 60 };
            let mut seen = Vec::new();
            let (found, evaluated) = search.run(10f64.powf(4.0 * first - 3.0), &mut |length| {
                seen.extend(point(length));
                point(length)
            })?;
            let case = format!("{numbers:?}: {} after {evaluated}", found.length);
            assert_eq!(evaluated, seen.len() as u64, "{case}");
            assert!(!search.is_above(&found), "{case}");
            assert!(found.slope.abs() <= -SLOPE * search.start.slope, "{case}");
            // The first steps go further and further out. What lies between two of them has to be lower than both.
            let outward = seen.is_sorted_by(|a, b| a.length < b.length);
            let lower = seen.iter().all(|other| search.is_above(other) || found.value <= other.value);
            assert!(outward || lower, "{case}");
            searched += 1;
        }
        assert!(searched > 200, "{searched}");
        Ok(())
    }
}
