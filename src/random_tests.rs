//! Tests of the generator: published vectors, committed values, splits, and the distributions.

use super::*;

/// The known answers published with Random123.
#[cotangent_macros::unit_test]
fn philox_known_answers() {
    let zeros = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    assert_eq!(philox([0; 4], [0; 2]), zeros);
    let ones = [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd];
    assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), ones);
    let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
    let pi = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
    assert_eq!(philox(counter, [0xa409_3822, 0x299f_31d0]), pi);
}

#[cotangent_macros::unit_test]
fn a_batch_is_philox_of_each_counter() {
    for first in [0, 5, (1 << 32) - 7, u64::MAX - 3] {
        let words = philox_batch(first, [1, 2]);
        for (lane, words) in words.chunks_exact(4).enumerate() {
            let counter = first.wrapping_add(lane as u64);
            let expected = philox([counter as u32, (counter >> 32) as u32, 0, 0], [1, 2]);
            assert_eq!(words, expected);
        }
    }
}

/// These values are a promise: programs that set a seed rely on them.
#[cotangent_macros::unit_test]
fn committed_values_of_seed_42() {
    let mut uniform = [0.0_f32; 5];
    fill_uniform_bits(&mut uniform, 42, 0, 0, 24);
    assert_eq!(uniform, UNIFORM_F32);
    let mut uniform = [0.0_f64; 3];
    fill_uniform_f64(&mut uniform, 42, 0, 0);
    assert_eq!(uniform, UNIFORM_F64);
    let mut normal = [0.0_f32; 5];
    fill_normal_f32(&mut normal, 42, 0, 0);
    assert_eq!(normal, NORMAL_F32);
    let mut normal = [0.0_f64; 3];
    fill_normal_f64(&mut normal, 42, 0, 0);
    assert_eq!(normal, NORMAL_F64);
    let mut integers = [0; 8];
    fill_integers(&mut integers, 42, 0, 0, -100, 100);
    assert_eq!(integers, INTEGERS);
    let mut mask = [0_u8; 16];
    fill_bernoulli(&mut mask, 42, 0, 0, greatest_yes(0.75), [1, 0]);
    assert_eq!(mask, BERNOULLI);
}

const UNIFORM_F32: [f32; 5] = [0.61295986, 0.4685865, 0.0732317, 0.3408615, 0.98771864];
const UNIFORM_F64: [f64; 3] = [0.4685865183391049, 0.34086154938517876, 0.32706338120338474];
const NORMAL_F32: [f32; 5] = [-0.9701898, 0.19401896, -1.2356207, 1.9239267, -0.07318151];
const NORMAL_F64: [f64; 3] = [-0.6653748678073488, 1.0360238086554647, -1.4338891806537384];
const INTEGERS: [i64; 8] = [-7, -32, -35, -10, 31, 54, 34, -25];
const BERNOULLI: [u8; 16] = [1, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1];

/// Fills in two parts, cut anywhere, and compares with filling at once.
fn check_split<T: Copy + Default + PartialEq + std::fmt::Debug>(fill: impl Fn(&mut [T], u64)) {
    // More than two batches of four to a counter.
    let mut whole = [T::default(); 8 * BATCH + 7];
    fill(&mut whole, 0);
    assert!(whole[1..].iter().any(|value| *value != whole[0]), "the values differ");
    for start in 0..=whole.len() {
        for end in (start..=whole.len()).filter(|end| end - start < 9 || end % 7 == 0) {
            let mut part = vec![T::default(); end - start];
            fill(&mut part, start as u64);
            assert_eq!(part, whole[start..end], "elements {start}..{end}");
        }
    }
}

#[cotangent_macros::unit_test]
fn a_draw_can_be_filled_in_pieces() {
    // The offset makes the counter carry from its low word into its high one.
    let (seed, offset) = (0x0123_4567_89ab_cdef, (1 << 32) - 3);
    check_split(|out: &mut [f32], first| fill_uniform_bits(out, seed, offset, first, 24));
    check_split(|out: &mut [f32], first| fill_uniform_bits(out, seed, offset, first, 8));
    check_split(|out: &mut [f64], first| fill_uniform_f64(out, seed, offset, first));
    check_split(|out: &mut [f32], first| fill_normal_f32(out, seed, offset, first));
    check_split(|out: &mut [f64], first| fill_normal_f64(out, seed, offset, first));
    check_split(|out: &mut [i64], first| fill_integers(out, seed, offset, first, -5, 50));
    check_split(|out: &mut [bool], first| {
        fill_bernoulli(out, seed, offset, first, greatest_yes(0.5), [true, false]);
    });
}

#[cotangent_macros::unit_test]
fn draws_continue_one_another_and_seeds_differ() {
    let mut generator = Generator::seed(3);
    assert_eq!(generator.take(counters(10, PER_COUNTER_32)), (3, 0));
    assert_eq!(generator.take(counters(10, PER_COUNTER_64)), (3, 3));
    assert_eq!(generator.state(), (3, 8));
    let draw = |seed, offset| {
        let mut out = [0.0_f32; 8];
        fill_uniform_bits(&mut out, seed, offset, 0, 24);
        out
    };
    assert_eq!(draw(3, 0)[4..], draw(3, 1)[..4]);
    let distinct = [draw(3, 0), draw(4, 0), draw(3 + (1 << 32), 0), draw(3, 2), draw(3, 1 << 32)];
    for (i, a) in distinct.iter().enumerate() {
        for b in &distinct[i + 1..] {
            assert!(a.iter().zip(b).all(|(a, b)| a != b));
        }
    }
}

#[cotangent_macros::unit_test]
fn elementary_functions_are_accurate() {
    let mut points = [0.0; 20_000];
    fill_uniform_f64(&mut points, 1, 0, 0);
    let edges =
        [1.0, 0.5, 0.75, f64::EPSILON / 2.0, 1.0 - f64::EPSILON / 2.0, 0.125, 0.375, std::f64::consts::FRAC_1_SQRT_2];
    for &x in points.iter().chain(&edges) {
        for x in [x, x * x * x, x * inverse_power(20)] {
            if x > 0.0 {
                assert!((ln(x) - x.ln()).abs() <= 1e-15 * x.ln().abs(), "ln {x}");
            }
            // The library's argument is rounded, by as much as 4e-16 below a full turn.
            let (sin, cos) = (x * std::f64::consts::TAU).sin_cos();
            let (s, c) = sin_cos_turns(x);
            assert!((s - sin).abs() < 1e-15 && (c - cos).abs() < 1e-15, "turns {x}");
        }
    }
    assert_eq!(ln(1.0), 0.0);
    assert_eq!(sin_cos_turns(0.25), (1.0, 0.0));
}

const N: usize = 200_000;

/// Pearson's statistic of counts that should be equal.
fn chi_square(counts: &[usize]) -> f64 {
    let expected = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    counts.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum()
}

/// The greatest distance between two distribution functions, in units of the expected scatter:
/// above 1.95 once in a thousand for a true generator.
fn kolmogorov(mut sample: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let gap = |(i, &x): (usize, &f64)| {
        let p = distribution(x);
        (p - i as f64 / n).abs().max(((i + 1) as f64 / n - p).abs())
    };
    sample.iter().enumerate().map(gap).fold(0.0, f64::max) * n.sqrt()
}

fn moment(sample: &[f64], power: i32) -> f64 {
    sample.iter().map(|x| x.powi(power)).sum::<f64>() / sample.len() as f64
}

fn sample_f32(fill: fn(&mut [f32], u64, u64, u64)) -> Vec<f64> {
    let mut out = vec![0.0; N];
    fill(&mut out, 7, 0, 0);
    out.into_iter().map(f64::from).collect()
}

fn sample_f64(fill: fn(&mut [f64], u64, u64, u64)) -> Vec<f64> {
    let mut out = vec![0.0; N];
    fill(&mut out, 7, 0, 0);
    out
}

#[cotangent_macros::unit_test]
fn uniforms_are_uniform() {
    for sample in [
        sample_f32(|out, seed, offset, first| fill_uniform_bits(out, seed, offset, first, 24)),
        sample_f64(fill_uniform_f64),
    ] {
        assert!(sample.iter().all(|x| (0.0..1.0).contains(x)));
        assert!((moment(&sample, 1) - 0.5).abs() < 0.002);
        assert!((moment(&sample, 2) - 1.0 / 3.0).abs() < 0.002);
        // Neighbours are independent: all cells of a 10 by 10 grid are equally full. The statistic
        // of 99 degrees of freedom is above 149 once in a thousand.
        let mut cells = [0; 100];
        for pair in sample.chunks_exact(2) {
            cells[(pair[0] * 10.0) as usize * 10 + (pair[1] * 10.0) as usize] += 1;
        }
        assert!(chi_square(&cells) < 149.0, "{}", chi_square(&cells));
        assert!(kolmogorov(sample, |x| x) < 1.95);
    }
}

#[cotangent_macros::unit_test]
fn narrow_uniforms_stay_below_one() {
    let mut out = vec![0.0; N];
    fill_uniform_bits(&mut out, 7, 0, 0, 8);
    assert_eq!(out.iter().copied().fold(0.0, f32::max), 255.0 / 256.0);
    assert!(out.iter().all(|x| (x * 256.0).fract() == 0.0));
}

/// Abramowitz and Stegun 26.2.17, right to 7.5e-8.
fn normal_distribution(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let tail = (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt() * t * polynomial(t, series);
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cotangent_macros::unit_test]
fn normals_are_normal() {
    for sample in [sample_f32(fill_normal_f32), sample_f64(fill_normal_f64)] {
        for (power, expected, tolerance) in [(1, 0.0, 0.01), (2, 1.0, 0.015), (3, 0.0, 0.04), (4, 3.0, 0.12)] {
            let found = moment(&sample, power);
            assert!((found - expected).abs() < tolerance, "moment {power}: {found}");
        }
        let beyond = sample.iter().filter(|x| x.abs() > 3.0).count() as f64 / N as f64;
        assert!((beyond - 0.0027).abs() < 0.0005, "{beyond}");
        // The two values of a pair share their distance from the origin, and must not show it.
        let pairs = sample.chunks_exact(2);
        let (mut plain, mut squares) = (0.0, 0.0);
        for pair in pairs {
            plain += pair[0] * pair[1];
            squares += (pair[0] * pair[0] - 1.0) * (pair[1] * pair[1] - 1.0);
        }
        assert!((plain / (N / 2) as f64).abs() < 0.012);
        assert!((squares / (N / 2) as f64).abs() < 0.025);
        let distance = kolmogorov(sample, normal_distribution);
        assert!(distance < 1.95, "{distance}");
    }
}

#[cotangent_macros::unit_test]
fn integers_are_in_range_and_even() {
    let mut out = vec![0; N];
    fill_integers(&mut out, 7, 0, 0, -3, 7);
    let mut counts = [0; 10];
    for value in &out {
        counts[usize::try_from(value + 3).unwrap()] += 1;
    }
    // 27.9 is passed once in a thousand, with nine degrees of freedom.
    assert!(chi_square(&counts) < 27.9);
    fill_integers(&mut out, 7, 0, 0, i64::MIN, i64::MAX);
    let negative = out.iter().filter(|value| **value < 0).count();
    assert!(negative.abs_diff(N / 2) < 1000, "{negative}");
    fill_integers(&mut out, 7, 0, 0, 5, 6);
    assert!(out.iter().all(|value| *value == 5));
    fill_integers(&mut out, 7, 0, 0, 5, -5);
    assert!(out.iter().all(|value| *value == 5));
}

#[cotangent_macros::unit_test]
fn bernoulli_keeps_the_share_asked_for() {
    let mut out = vec![false; N];
    for (p, tolerance) in [(0.0, 0.0), (1.0, 0.0), (0.1, 0.003), (0.9, 0.003)] {
        fill_bernoulli(&mut out, 7, 0, 0, greatest_yes(p), [true, false]);
        let kept = out.iter().filter(|kept| **kept).count() as f64 / N as f64;
        assert!((kept - p).abs() <= tolerance, "{kept} for {p}");
    }
}

#[cotangent_macros::unit_test]
fn an_override_is_local_nested_and_written_back() {
    // Seeds that no other test gives to the default generator.
    let [one, two, three] = [0xfeed_0001, 0xfeed_0002, 0xfeed_0003];
    let mut outer = Generator::seed(one);
    let mut inner = Generator::seed(two);
    with_generator(&mut outer, || {
        assert_eq!(next_range(4), (one, 0));
        with_generator(&mut inner, || assert_eq!(next_range(2), (two, 0)));
        assert_eq!(next_range(1), (one, 4));
        // Another thread does not see it.
        let other = std::thread::spawn(|| next_range(1)).join().unwrap();
        assert_ne!(other.0, one);
        assert_eq!(rng_state(), (one, 5));
        set_rng_state((one, 40));
    });
    assert_eq!((outer.state(), inner.state()), ((one, 40), (two, 2)));
    let panicked = std::panic::catch_unwind(|| {
        with_generator(&mut Generator::seed(three), || std::panic::resume_unwind(Box::new(())));
    });
    assert!(panicked.is_err());
    assert_ne!(rng_state().0, three, "the override ends when its body panics");
    // Seeding inside touches the stand-in alone.
    with_generator(&mut outer, || manual_seed(three));
    assert_eq!(outer, Generator::seed(three));
    assert_ne!(rng_state().0, three);
}

#[cotangent_macros::unit_test]
fn the_default_generator_advances() {
    // Tests that run at the same time draw from it and may seed it, but not every time.
    let advances = || {
        let (first, second) = (next_range(5), next_range(1));
        first.0 == second.0 && second.1 >= first.1 + 5
    };
    assert!((0..100).any(|_| advances()));
}
