use crate::Result;
use crate::backend::cpu::linalg::decompose::conquer::{bidiagonal, tridiagonal};
use crate::backend::cpu::linalg::decompose::scalar::Real;
use crate::backend::with_num_threads;

/// Numbers between -1 and 1.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// Difficult diagonals and off-diagonals.
fn hard(n: usize) -> Vec<(&'static str, Vec<f64>, Vec<f64>)> {
    let mut random = noise(n as u64);
    let make = |f: &mut dyn FnMut(usize) -> f64| (0..n).map(f).collect::<Vec<f64>>();
    let ones = vec![1.0; n];
    let wilkinson = |size: usize| make(&mut |i| (i % size).abs_diff(size / 2) as f64);
    let graded = make(&mut |i| 0.5_f64.powi((i * 90 / n) as i32));
    let scales = make(&mut |i| if i < n / 2 { 1.0 } else { 1e-80 });
    let mut numbers = || make(&mut |_| random());
    vec![
        ("random", numbers(), numbers()),
        ("zero", vec![0.0; n], vec![0.0; n]),
        ("all equal", vec![3.0; n], vec![0.0; n]),
        ("zero diagonal", vec![0.0; n], numbers()),
        ("nothing off the diagonal", numbers(), vec![0.0; n]),
        ("second difference", vec![2.0; n], vec![-1.0; n]),
        ("Wilkinson", wilkinson(n), ones.clone()),
        ("glued Wilkinson", wilkinson(21), make(&mut |i| if i % 21 == 20 { 1e-9 } else { 1.0 })),
        ("weakly glued", wilkinson(7), make(&mut |i| if i % 7 == 6 { 1e-16 } else { 1.0 })),
        ("clusters", make(&mut |i| (i % 3) as f64), numbers().iter().map(|x| 1e-7 * x).collect()),
        ("close together", make(&mut |i| 1.0 + i as f64 * 1e-15), vec![1e-15; n]),
        ("graded", graded.clone(), graded.iter().map(|x| 0.3 * x).collect()),
        ("graded upwards", graded.iter().rev().copied().collect(), graded.iter().rev().copied().collect()),
        ("two scales", numbers().into_iter().zip(&scales).map(|(x, scale)| x * scale).collect(), scales.clone()),
        ("some zeros", numbers(), make(&mut |i| if i % 5 == 0 { 0.0 } else { 1.0 })),
        ("one large", make(&mut |i| if i == n / 2 { 1e8 } else { 1.0 }), ones),
        ("large", vec![3e18; n], numbers().iter().map(|x| 1e18 * x).collect()),
        ("small", numbers().iter().map(|x| 1e-18 * x).collect(), vec![1e-18; n]),
    ]
}

/// The largest element of `qᵀ · q - 1`.
fn not_orthogonal<T: Real>(q: &[T], n: usize) -> f64 {
    let columns: Vec<Vec<f64>> = q.chunks_exact(n).map(|c| c.iter().map(|x| x.to_f64()).collect()).collect();
    let mut most: f64 = 0.0;
    for (i, a) in columns.iter().enumerate() {
        for (j, b) in columns[..=i].iter().enumerate() {
            let product: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            most = most.max((product - f64::from(u8::from(i == j))).abs());
        }
    }
    most
}

fn check_tridiagonal<T: Real>(name: &str, d: &[f64], e: &[f64]) -> Result<()> {
    let n = d.len();
    let [d, e] = [d, e].map(|x| x.iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>());
    let mut values = d.clone();
    let q = tridiagonal("test", &mut values, &e)?;
    let most = d.iter().chain(&e).fold(0.0, |most: f64, x| most.max(x.to_f64().abs()));
    let allowed = T::EPSILON.to_f64() * 4.0 * (n as f64).sqrt().max(4.0);
    let apart = not_orthogonal(&q, n);
    assert!(apart <= allowed, "{name} of {n}: vectors not orthogonal by {apart:e} > {allowed:e}");
    for (j, (value, x)) in values.iter().zip(q.chunks_exact(n)).enumerate() {
        let at = |i: usize| x[i].to_f64();
        for i in 0..n {
            let before = if i > 0 { e[i - 1].to_f64() * at(i - 1) } else { 0.0 };
            let after = if i + 1 < n { e[i].to_f64() * at(i + 1) } else { 0.0 };
            let rest = before + after + (d[i].to_f64() - value.to_f64()) * at(i);
            assert!(rest.abs() <= allowed * most, "{name} of {n}: row {i}, vector {j}: {rest:e}, of {most:e}");
        }
    }
    Ok(())
}

fn check_bidiagonal<T: Real>(name: &str, d: &[f64], e: &[f64]) -> Result<()> {
    let n = d.len();
    let [d, e] = [d, e].map(|x| x.iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>());
    let mut values = d.clone();
    let (u, v) = bidiagonal("test", &mut values, &e)?;
    let most = d.iter().chain(&e).fold(0.0, |most: f64, x| most.max(x.to_f64().abs()));
    let allowed = T::EPSILON.to_f64() * 4.0 * (n as f64).sqrt().max(4.0);
    for (which, q) in [("left", &u), ("right", &v)] {
        let apart = not_orthogonal(q, n);
        assert!(apart <= allowed, "{name} of {n}: {which} vectors not orthogonal by {apart:e} > {allowed:e}");
    }
    for (j, value) in values.iter().enumerate() {
        assert!(*value >= T::ZERO, "{name} of {n}: {value:?}");
        let (u, v) = (&u[j * n..(j + 1) * n], &v[j * n..(j + 1) * n]);
        for i in 0..n {
            let after = if i + 1 < n { e[i].to_f64() * v[i + 1].to_f64() } else { 0.0 };
            let rest = d[i].to_f64() * v[i].to_f64() + after - value.to_f64() * u[i].to_f64();
            assert!(rest.abs() <= allowed * most, "{name} of {n}: row {i}, vector {j}: {rest:e}, of {most:e}");
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn tridiagonal_matrices() -> Result<()> {
    for n in [1, 2, 31, 33, 48, 65, 130, 200] {
        for (name, d, e) in hard(n) {
            check_tridiagonal::<f64>(name, &d, &e)?;
            check_tridiagonal::<f32>(name, &d, &e)?;
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn bidiagonal_matrices() -> Result<()> {
    for n in [1, 2, 31, 33, 48, 65, 67, 130, 200] {
        for (name, d, e) in hard(n) {
            check_bidiagonal::<f64>(name, &d, &e)?;
            check_bidiagonal::<f32>(name, &d, &e)?;
        }
    }
    Ok(())
}

#[cotangent_macros::unit_test]
fn the_number_of_threads_does_not_change_a_bit() -> Result<()> {
    let mut random = noise(7);
    let [d, e]: [Vec<f64>; 2] = [(); 2].map(|()| (0..150).map(|_| random()).collect());
    let run = |threads: usize| {
        with_num_threads(threads, || -> Result<_> {
            let (mut values, mut singular) = (d.clone(), d.clone());
            let q = tridiagonal("test", &mut values, &e)?;
            Ok((values, q, bidiagonal("test", &mut singular, &e)?, singular))
        })?
    };
    let one = run(1)?;
    for threads in [2, 5] {
        assert!(run(threads)? == one, "{threads} threads");
    }
    Ok(())
}
