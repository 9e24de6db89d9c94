//! Every kernel that this CPU has, against sums in `f64`.

use super::*;
use crate::butterfly::Constant;
use crate::kernels::Kernels;
use crate::panel::twiddle;

trait Number: Part + Constant + Into<f64> + PartialEq {}
impl Number for f32 {}
impl Number for f64 {}

/// `n` numbers, the same every time.
fn numbers<T: Number>(n: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::of((state >> 33) as f64 / f64::from(1 << 30) - 1.0)
    };
    (0..n).map(|_| next()).collect()
}

fn exact<T: Number>(x: &[T]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

/// One number of a transform, by the definition. Halves are summed separately, so that errors stay small.
fn sum(x: &[f64], turns: &[(f64, f64)], k: usize, first: usize) -> [f64; 2] {
    let n = turns.len();
    if x.len() > 64 {
        let (a, b) = x.split_at(x.len() / 4 * 2);
        let (a, b) = (sum(a, turns, k, first), sum(b, turns, k, (first + a.len() / 2 * k) % n));
        return [a[0] + b[0], a[1] + b[1]];
    }
    let mut at = first;
    x.chunks(2).fold([0.0, 0.0], |[re, im], x| {
        let (c, s) = turns[at];
        at += k;
        at -= if at >= n { n } else { 0 };
        [re + x[0] * c - x[1] * s, im + x[0] * s + x[1] * c]
    })
}

fn turns(n: usize, inverse: bool) -> Vec<(f64, f64)> {
    (0..n).map(|k| twiddle(k, n)).map(|(c, s)| (c, if inverse { -s } else { s })).collect()
}

/// The transform: from those of the residue classes modulo the least prime factor, or by the definition for a prime.
fn reference(x: &[f64], inverse: bool) -> Vec<f64> {
    let n = x.len() / 2;
    let turns = turns(n, inverse);
    let prime = (2..).take_while(|p| p * p <= n).find(|&p| n.is_multiple_of(p)).unwrap_or(n);
    if prime == n {
        return (0..n).flat_map(|k| sum(x, &turns, k, 0)).collect();
    }
    let parts: Vec<_> = (0..prime)
        .map(|r| reference(&x.chunks(2).skip(r).step_by(prime).flatten().copied().collect::<Vec<_>>(), inverse))
        .collect();
    let number = |k: usize| {
        parts.iter().enumerate().fold([0.0, 0.0], |[re, im], (r, part)| {
            let ((c, s), at) = (turns[r * k % n], 2 * (k % (n / prime)));
            [re + part[at] * c - part[at + 1] * s, im + part[at] * s + part[at + 1] * c]
        })
    };
    (0..n).flat_map(number).collect()
}

/// The error relative to the norm of the vector, in units of the last place of `T` for each pass of radix 2.
fn units<T: Number>(y: &[T], right: &[f64]) -> f64 {
    assert_eq!(y.len(), right.len());
    let eps = if size_of::<T>() == 4 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let (error, length) = y.iter().zip(right).fold((0.0, 0.0), |(error, length), (&y, &right)| {
        let y: f64 = y.into();
        (error + (y - right).powi(2), length + right * right)
    });
    let n = (right.len() / 2) as f64;
    (error / length).sqrt() / eps / n.log2().max(1.0)
}

fn check<T: Number>(what: &str, y: &[T], right: &[f64]) {
    let units = units(y, right);
    assert!(units < 1.0, "{what}: {units} units");
}

/// Memory full of NaN, so that a read before a write shows.
fn room<T: Number>(numbers: usize) -> Vec<T> {
    vec![T::of(f64::NAN); numbers]
}

fn run<T: Number>(plan: &Plan<T>, x: &[T], inverse: bool) -> Vec<T> {
    let (read, written) = plan.lengths(inverse);
    let count = x.len() / read;
    let mut y = room(count * written);
    // SAFETY: both have `count` rows, and there is room.
    unsafe { plan.run(x.as_ptr(), y.as_mut_ptr(), count, inverse, room(plan.room()).as_mut_ptr()) };
    y
}

/// One row, in blocks, in reverse order.
fn pieces<T: Number>(plan: &Plan<T>, x: &[T], inverse: bool) -> Vec<T> {
    let (mut shared, mut y) = (room(plan.shared_room()), room(plan.lengths(inverse).1));
    for (stage, blocks) in plan.stages(inverse).enumerate() {
        for block in (0..blocks).rev() {
            let (mut room, block) = (room(plan.own_room()), block..block + 1);
            let (from, to) = (x.as_ptr(), y.as_mut_ptr());
            // SAFETY: there is a row, and room; the blocks are blocks of this stage.
            unsafe { plan.stage(stage, block, from, to, inverse, shared.as_mut_ptr(), room.as_mut_ptr()) };
        }
    }
    y
}

/// The first half of the transform of real numbers.
fn real_reference(x: &[f64]) -> Vec<f64> {
    let mut y = reference(&x.iter().flat_map(|&x| [x, 0.0]).collect::<Vec<_>>(), false);
    y.truncate(2 * (x.len() / 2 + 1));
    y
}

/// The `n` real numbers of such a first half.
fn real_inverse_reference(x: &[f64], n: usize) -> Vec<f64> {
    let number = |k: usize| match k {
        0 => [x[0], 0.0],
        _ if 2 * k == n => [x[n], 0.0],
        _ if 2 * k < n => [x[2 * k], x[2 * k + 1]],
        _ => [x[2 * (n - k)], -x[2 * (n - k) + 1]],
    };
    reference(&(0..n).flat_map(number).collect::<Vec<_>>(), true).into_iter().step_by(2).collect()
}

fn all<T: Number>(mut f: impl FnMut(&'static Kernels<T>)) {
    T::all_kernels().into_iter().for_each(&mut f);
}

/// Rows of `n` complex or real numbers, in both directions, by all kernels; `counts` gives the numbers of rows for a lane count.
fn check_rows<T: Number>(n: usize, real: bool, counts: impl Fn(usize) -> Vec<usize>) {
    for inverse in [false, true] {
        let (mut given, mut right) = (Vec::new(), Vec::new());
        all::<T>(|kernels| {
            for (few, count) in
                [false, true].into_iter().flat_map(|few| counts(kernels.lanes).into_iter().map(move |c| (few, c)))
            {
                let plan = Plan::with(n, real, few, kernels);
                let (read, written) = plan.lengths(inverse);
                while given.len() < read * count {
                    given.extend(numbers::<T>(read, (n + given.len()) as u64));
                    let x = exact(&given[given.len() - read..]);
                    right.push(match (real, inverse) {
                        (false, _) => reference(&x, inverse),
                        (true, false) => real_reference(&x),
                        (true, true) => real_inverse_reference(&x, n),
                    });
                }
                let x = &given[..read * count];
                let y = run(&plan, x, inverse);
                let what = format!("{count} rows of {n}, {} lanes, real {real}, inverse {inverse}", kernels.lanes);
                for (y, right) in y.chunks(written).zip(&right) {
                    check(&what, y, right);
                    // The sum, and the alternating sum.
                    if real && !inverse {
                        assert!(y[1] == T::of(0.0) && (n % 2 == 1 || y[n + 1] == T::of(0.0)), "{what}");
                    }
                }
                if count == 1 {
                    assert_eq!(exact(&y), exact(&pieces(&plan, x, inverse)), "{n} numbers in pieces");
                }
            }
        });
    }
}

fn short_rows_are_right<T: Number>() {
    for n in 1..=200 {
        for real in [false, true] {
            let many = n % 8 < 2;
            check_rows::<T>(n, real, |lanes| if many { vec![1, lanes + 2] } else { vec![1] });
        }
    }
}

#[test]
fn short_rows_of_all_lengths_are_right() {
    short_rows_are_right::<f32>();
    short_rows_are_right::<f64>();
}

/// One, two and three rows of one panel or half a panel, to results that are aligned to a cache line, which serve as panels, and
/// to others. Some have a last block that overlaps.
fn woven_rows_are_right<T: Number>() {
    all::<T>(|kernels| {
        for n in [32, 56, 64, 120, 128, 240, 256, 1000, 1008, 1024, 1500] {
            let plan = Plan::with(n, false, false, kernels);
            for (count, inverse) in [(1, false), (2, true), (3, false), (3, true)] {
                let x = numbers::<T>(2 * n * count, n as u64);
                let mut room = room(plan.room());
                let results = [0, 1].map(|offset| {
                    let mut y = vec![T::of(7.0); 2 * n * count + 65];
                    let first = y.as_ptr().align_offset(64) + offset;
                    // SAFETY: there are `count` rows from there on, and room.
                    unsafe { plan.run(x.as_ptr(), y[first..].as_mut_ptr(), count, inverse, room.as_mut_ptr()) };
                    let (before, y) = y.split_at(first);
                    let (y, after) = y.split_at(2 * n * count);
                    assert!(before.iter().chain(after).all(|&y| y == T::of(7.0)), "next to {count} rows of {n}");
                    y.to_vec()
                });
                assert_eq!(exact(&results[0]), exact(&results[1]), "{count} rows of {n}");
                for (x, y) in x.chunks(2 * n).zip(results[0].chunks(2 * n)) {
                    let what = format!("{count} rows of {n}, {} lanes, inverse {inverse}", kernels.lanes);
                    check(&what, y, &reference(&exact(x), inverse));
                }
            }
        }
    });
}

#[test]
fn rows_of_one_panel_are_right_wherever_they_lie() {
    woven_rows_are_right::<f32>();
    woven_rows_are_right::<f64>();
}

fn long_rows_are_right<T: Number>() {
    for n in [256, 243, 320, 361, 686, 1000, 1009, 1024, 2018, 3000, 3001, 4096, 6561, 6002, 10_007, 17_150] {
        for real in [false, true] {
            check_rows::<T>(n, real, |_| if n < 2000 { vec![1, 2] } else { vec![1] });
        }
    }
    for n in [98_304, 1 << 17] {
        check_rows::<T>(n, n % 3 == 0, |_| vec![1]);
    }
}

#[test]
fn long_rows_are_right_in_one_piece_and_in_many() {
    long_rows_are_right::<f32>();
    long_rows_are_right::<f64>();
}

/// Compares some of the numbers with sums, and the norm of all of them.
fn is_as_right_as_few<T: Number>(n: usize) {
    let x = numbers::<T>(2 * n, 1);
    let y = run(&Plan::complex(n, false), &x, false);
    let (x, turns) = (exact(&x), turns(n, false));
    let places = [0, 1, 2, n / 3, n / 2, n - 2, n - 1];
    let right: Vec<_> = places.into_iter().flat_map(|k| sum(&x, &turns, k, 0)).collect();
    let found: Vec<_> = places.into_iter().flat_map(|k| [y[2 * k], y[2 * k + 1]]).collect();
    // In units of the last place for each pass of all numbers.
    let units = units(&found, &right) * (places.len() as f64).log2() / (n as f64).log2();
    assert!(units < 0.8, "{n}: {units} units");
    let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    let (before, after) = (length(&x) * n as f64, length(&exact(&y)));
    assert!((after / before - 1.0).abs() < 1e-6, "{n}: {before} {after}");
}

#[test]
fn a_million_numbers_are_as_right_as_few() {
    is_as_right_as_few::<f32>(1 << 20);
    is_as_right_as_few::<f32>(1_000_003);
    is_as_right_as_few::<f64>(1_000_003);
}

/// The numbers of a column.
fn column<T: Number>(x: &[T], width: usize, at: usize) -> Vec<T> {
    x.chunks(2 * width).flat_map(|row| [row[2 * at], row[2 * at + 1]]).collect()
}

const LENGTHS: [usize; 44] = [
    2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 25, 27, 30, 32, 36, 40, 45, 48, 49, 60, 64, 75, 80, 81, 96,
    100, 112, 125, 128, 160, 192, 224, 240, 243, 250, 256, 320, 343,
];

fn columns_are_right<T: Number>() {
    all::<T>(|kernels| {
        for n in LENGTHS {
            let plan = Columns::with(n, kernels).expect("a length of small factors");
            for (count, inverse) in [(1, true), (kernels.lanes.div_ceil(2), false), (kernels.lanes, true)] {
                // Other columns are not changed.
                let width = count + 3;
                let x = numbers::<T>(2 * n * width, n as u64);
                let mut room = room(plan.room());
                let (mut y, mut same) = (vec![T::of(7.0); x.len()], x.clone());
                // SAFETY: both are such matrices, and there is room.
                unsafe {
                    plan.run(x[2..].as_ptr(), y[2..].as_mut_ptr(), width, count, inverse, room.as_mut_ptr());
                    let place = same[2..].as_mut_ptr();
                    plan.run(place, place, width, count, inverse, room.as_mut_ptr());
                }
                for at in 0..width {
                    let (x, y, same) = (column(&x, width, at), column(&y, width, at), column(&same, width, at));
                    if (1..=count).contains(&at) {
                        let what = format!("{count} columns of {n}, {} lanes", kernels.lanes);
                        check(&what, &y, &reference(&exact(&x), inverse));
                        assert_eq!(exact(&y), exact(&same), "columns of {n} in place");
                    } else {
                        assert!(y.iter().all(|&y| y == T::of(7.0)) && exact(&x) == exact(&same));
                    }
                }
            }
        }
    });
}

#[test]
fn columns_of_many_lengths_are_right() {
    columns_are_right::<f32>();
    columns_are_right::<f64>();
}

#[test]
fn columns_of_other_lengths_have_no_kernels() {
    for n in [0, 1, 11, 22, 77, 1009, 1 << 14, 1 << 20 | 1] {
        assert!(f32::columns(n).is_none() && f64::columns(n).is_none(), "{n}");
    }
}

#[test]
fn no_numbers_have_a_plan() {
    for plan in [Plan::<f32>::complex(0, false), Plan::real(0, true)] {
        assert_eq!(plan.stages(false).count() + plan.stages(true).count(), 0);
    }
}

/// An impulse: every number of its transform is known exactly.
#[test]
fn the_transform_of_an_impulse_is_the_twiddles() {
    for n in [12, 97, 1024, 3003] {
        for at in [0, 1, n - 1] {
            let mut x = vec![0.0_f64; 2 * n];
            x[2 * at] = 1.0;
            let right: Vec<_> = (0..n).map(|k| twiddle(k * at, n)).flat_map(|(re, im)| [re, im]).collect();
            check(&format!("{at} of {n}"), &run(&Plan::complex(n, true), &x, false), &right);
        }
    }
}

#[test]
fn twiddles_are_as_right_as_f64_can_be() {
    for n in [1, 2, 3, 7, 8, 12, 1000, 1 << 20] {
        for k in (0..3 * n).step_by(n / 64 + 1) {
            let (cos, minus_sin) = twiddle(k, n);
            let angle = std::f64::consts::TAU * (k % n) as f64 / n as f64;
            assert!((cos - angle.cos()).abs() < 1e-15 && (minus_sin + angle.sin()).abs() < 1e-15, "{k} of {n}");
        }
    }
    // Simple ones are exact.
    assert_eq!(
        [twiddle(0, 12), twiddle(3, 12), twiddle(6, 12), twiddle(9, 12)],
        [(1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)]
    );
}

#[test]
fn plans_that_are_kept_are_bounded() {
    static KEPT: Kept<usize> = Kept(Mutex::new(None));
    for n in 0..1000 {
        assert_eq!(KEPT.get(n, n % 2 == 0, |n, _| n), n);
    }
    assert!(
        KEPT.0.lock().expect("no thread has panicked").as_ref().is_some_and(|plans| plans.len() <= Kept::<usize>::MOST)
    );
}

#[test]
fn plans_are_kept_by_the_number_of_rows() {
    assert!(Arc::ptr_eq(&f32::complex(60, 100), &f32::complex(60, 1000)));
    assert!(Arc::ptr_eq(&f64::real(60, 100), &f64::real(60, 1000)));
}
