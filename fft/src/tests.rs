//! Every kernel that this CPU has, against sums in `f64` and against `rustfft`.

use super::*;
use crate::butterfly::Constant;
use crate::panel::twiddle;
use crate::pass::Kernels;

trait Number: Part + Constant + Into<f64> {}
impl Number for f32 {}
impl Number for f64 {}

/// `n` complex numbers, the same every time.
fn numbers<T: Number>(n: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::of((state >> 33) as f64 / f64::from(1 << 30) - 1.0)
    };
    (0..2 * n).map(|_| next()).collect()
}

fn exact<T: Number>(x: &[T]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

/// The definition.
fn sums(x: &[f64], inverse: bool) -> Vec<f64> {
    let n = x.len() / 2;
    let turns: Vec<_> = (0..n).map(|k| twiddle(k, n)).map(|(c, s)| (c, if inverse { -s } else { s })).collect();
    let sum = |k: usize| {
        x.chunks(2).enumerate().fold([0.0, 0.0], |[re, im], (j, x)| {
            let (c, s) = turns[j * k % n];
            [re + x[0] * c - x[1] * s, im + x[0] * s + x[1] * c]
        })
    };
    (0..n).flat_map(sum).collect()
}

/// `rustfft`'s, in `f64`.
fn reference(x: &[f64], inverse: bool) -> Vec<f64> {
    let mut x: Vec<_> = x.chunks(2).map(|x| Complex::new(x[0], x[1])).collect();
    f64::complex(x.len(), !inverse).process(&mut x);
    x.iter().flat_map(|x| [x.re, x.im]).collect()
}

/// The error, as a part of the length of the whole vector, in units of the last place of `T` for each pass of two.
fn check<T: Number>(what: &str, y: &[T], right: &[f64]) {
    let eps = if size_of::<T>() == 4 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let (error, length) = y.iter().zip(right).fold((0.0, 0.0), |(error, length), (&y, &right)| {
        let y: f64 = y.into();
        (error + (y - right).powi(2), length + right * right)
    });
    let n = (right.len() / 2) as f64;
    let relative = (error / length).sqrt() / eps / n.log2().max(1.0);
    assert!(relative < 0.8, "{what}: {relative} units");
}

/// Memory that is full of NaN, so that what is read before it is written shows.
fn room<T: Number>(numbers: usize) -> Vec<T> {
    vec![T::of(f64::NAN); numbers]
}

fn rows<T: Number>(plan: &Rows<T>, x: &[T], count: usize, inverse: bool) -> Vec<T> {
    let mut y = room(x.len());
    // SAFETY: both have so many rows, and there is room.
    unsafe { plan.run(x.as_ptr(), y.as_mut_ptr(), count, inverse, room(plan.room()).as_mut_ptr()) };
    y
}

/// The numbers of a column.
fn column<T: Number>(x: &[T], width: usize, at: usize) -> Vec<T> {
    x.chunks(2 * width).flat_map(|row| [row[2 * at], row[2 * at + 1]]).collect()
}

fn all<T: Number>(mut f: impl FnMut(&'static Kernels<T>)) {
    T::kernels().into_iter().for_each(&mut f);
}

const LENGTHS: [usize; 38] = [
    2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 25, 27, 30, 32, 36, 40, 45, 48, 60, 64, 75, 80, 81, 96, 100, 125,
    128, 160, 192, 240, 243, 250, 256, 320,
];

fn rows_are_right<T: Number>() {
    all::<T>(|kernels| {
        for n in LENGTHS {
            let plan = Rows::with(n, kernels).expect("a length of small factors");
            for (count, inverse) in
                [(1, false), (kernels.lanes - 1, true), (kernels.lanes, false), (kernels.lanes + 2, true)]
            {
                let x = numbers::<T>(n * count, n as u64);
                let y = rows(&plan, &x, count, inverse);
                for (x, y) in x.chunks(2 * n).zip(y.chunks(2 * n)) {
                    check(&format!("{count} rows of {n}, {} lanes", kernels.lanes), y, &sums(&exact(x), inverse));
                }
            }
        }
    });
}

#[test]
fn rows_of_many_lengths_are_right() {
    rows_are_right::<f32>();
    rows_are_right::<f64>();
}

fn columns_are_right<T: Number>() {
    all::<T>(|kernels| {
        for n in LENGTHS {
            let plan = Columns::with(n, kernels).expect("a length of small factors");
            for (count, inverse) in [(1, true), (kernels.lanes - 1, false), (kernels.lanes, true)] {
                // Columns beside them are left alone.
                let width = count + 3;
                let x = numbers::<T>(n * width, n as u64);
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
                        check(
                            &format!("{count} columns of {n}, {} lanes", kernels.lanes),
                            &y,
                            &sums(&exact(&x), inverse),
                        );
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

fn long_rows_are_right<T: Number>() {
    all::<T>(|kernels| {
        for (n, inverse) in
            [(1000, false), (1024, true), (3000, true), (4096, false), (6561, true), (1 << 17, true), (98_304, false)]
        {
            let plan = Rows::with(n, kernels).expect("a length of small factors");
            let x = numbers::<T>(2 * n, 3);
            let y = rows(&plan, &x, 2, inverse);
            for (x, y) in x.chunks(2 * n).zip(y.chunks(2 * n)) {
                check(&format!("{n} numbers, {} lanes", kernels.lanes), y, &reference(&exact(x), inverse));
            }
            // In pieces, the last first: the same bits.
            let halves = plan.halves().expect("a long row has halves");
            let (mut middle, mut z) = (room(halves.middle), room(2 * n));
            for block in (0..halves.first).rev() {
                let mut room = room(halves.room);
                // SAFETY: there is a row, and room; the blocks are blocks of this half.
                unsafe { plan.first(block..block + 1, x.as_ptr(), middle.as_mut_ptr(), inverse, room.as_mut_ptr()) };
            }
            for block in (0..halves.second).rev() {
                let mut room = room(halves.room);
                // SAFETY: as above.
                unsafe {
                    plan.second(block..block + 1, middle.as_mut_ptr(), z.as_mut_ptr(), inverse, room.as_mut_ptr());
                };
            }
            assert_eq!(exact(&y[..2 * n]), exact(&z), "{n} numbers in pieces");
        }
    });
}

#[test]
fn long_rows_are_right_in_one_piece_and_in_many() {
    long_rows_are_right::<f32>();
    long_rows_are_right::<f64>();
}

#[test]
fn a_million_numbers_are_as_right_as_few() {
    let n = 1 << 20;
    let plan = f32::rows(n).expect("a power of two");
    let x = numbers::<f32>(n, 1);
    check("a million numbers", &rows(&plan, &x, 1, false), &reference(&exact(&x), false));
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
    // Where they are simple they are exact.
    assert_eq!(
        [twiddle(0, 12), twiddle(3, 12), twiddle(6, 12), twiddle(9, 12)],
        [(1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)]
    );
}

#[test]
fn lengths_with_other_factors_have_no_kernels() {
    for n in [0, 1, 7, 14, 77, 1009, 1 << 20 | 1] {
        assert!(f32::rows(n).is_none() && f64::columns(n).is_none(), "{n}");
    }
    assert!(f32::columns(1 << 14).is_none());
}

#[test]
fn plans_that_are_kept_are_bounded() {
    static KEPT: Kept<usize> = Kept(Mutex::new(None));
    for n in 0..1000 {
        assert_eq!(KEPT.get(n, Some).as_deref(), Some(&n));
    }
    assert!(
        KEPT.0.lock().expect("nobody has panicked").as_ref().is_some_and(|plans| plans.len() <= Kept::<usize>::MOST)
    );
}

#[test]
fn there_and_back() {
    let mut x: Vec<Complex<f64>> = (0..30).map(|i| Complex::new(f64::from(i % 7), f64::from(i % 4))).collect();
    let before = x.clone();
    f64::complex(30, true).process(&mut x);
    f64::complex(30, false).process(&mut x);
    assert!(x.iter().zip(&before).all(|(x, y)| (x / 30.0 - y).norm() < 1e-12));
}
