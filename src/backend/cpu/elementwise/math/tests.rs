use super::*;

/// The error of an f32 in units of its last place, given the true value.
fn error_in_ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if rounded.is_nan() || rounded.is_infinite() {
        let right = got == rounded || (got.is_nan() && rounded.is_nan());
        return if right { 0.0 } else { f64::INFINITY };
    }
    if rounded == 0.0 && got == 0.0 && got.is_sign_negative() != want.is_sign_negative() {
        return f64::INFINITY;
    }
    let exponent = (want.abs().max(f64::from(f32::MIN_POSITIVE)).to_bits() >> 52) as i32 - 1023;
    let error = (f64::from(got) - want).abs() / f64::from(exponent - 23).exp2();
    if error.is_nan() { f64::INFINITY } else { error }
}

/// Compares an f32 function with the f64 one over every 997th bit pattern of f32.
fn sweep(name: &str, bound: f64, got: impl Fn(f32) -> f32, want: impl Fn(f64) -> f64) {
    let mut worst = (0.0, 0.0);
    for bits in (0..=u32::MAX).step_by(997) {
        let x = f32::from_bits(bits);
        let error = error_in_ulps(got(x), want(f64::from(x)));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    let (error, x) = worst;
    assert!(error <= bound, "{name}({x:e}) is {:e}, {error:.3} ulp off", got(x));
    println!("{name}: at most {error:.4} ulp, at {x:e}");
}

#[cotangent_macros::unit_test]
fn exp_f32_is_accurate() {
    sweep("exp", 0.8, exp_f32, f64::exp);
}

#[cotangent_macros::unit_test]
fn exp_of_what_is_not_positive_is_accurate_down_to_its_zero() {
    let not_positive = |x: f32| if x > 0.0 { -x } else { x };
    let want = |x: f64| if x.abs() > 126.5 * std::f64::consts::LN_2 { 0.0 } else { (-x.abs()).exp() };
    let ways = [("", exp_nonpositive_f32::<false> as fn(f32) -> f32), (", fused", exp_nonpositive_f32::<true>)];
    for (how, exp) in ways {
        sweep(&format!("exp of what is not positive{how}"), 1.1, |x| exp(not_positive(x)), want);
        assert!(exp(f32::from_bits(0xffc0_0fff)).is_nan(), "whatever the bits of the NaN");
        assert_eq!([f32::NEG_INFINITY, -87.7, -0.0, 0.0].map(exp), [0.0, 0.0, 1.0, 1.0]);
    }
    for i in 0..100_000 {
        let x = -f64::from(i) * 0.007_07;
        let (got, want) = (exp_nonpositive_f64(x), x.exp());
        assert!((got - want).abs() <= 4e-16 * want, "{x}: {got} for {want}");
    }
    assert_eq!([f64::NEG_INFINITY, -708.8, -0.0].map(exp_nonpositive_f64), [0.0, 0.0, 1.0]);
    assert!(exp_nonpositive_f64(f64::NAN).is_nan());
}

#[cotangent_macros::unit_test]
fn expm1_f32_is_accurate() {
    sweep("expm1", 1.2, expm1_f32, f64::exp_m1);
}

#[cotangent_macros::unit_test]
fn ln_f32_is_accurate() {
    sweep("ln", 0.85, ln_f32, f64::ln);
}

#[cotangent_macros::unit_test]
fn log1p_f32_is_accurate() {
    sweep("log1p", 1.5, log1p_f32, f64::ln_1p);
}

#[cotangent_macros::unit_test]
fn tanh_f32_is_accurate() {
    sweep("tanh", 1.7, tanh_f32, f64::tanh);
}

#[cotangent_macros::unit_test]
fn sigmoid_f32_is_accurate() {
    sweep("sigmoid", 2.0, sigmoid_f32, |x| 1.0 / (1.0 + (-x).exp()));
}

#[cotangent_macros::unit_test]
fn erf_f32_is_accurate() {
    sweep("erf", 1.5, erf_f32, erf_f64);
}

#[cotangent_macros::unit_test]
fn sin_f32_is_accurate() {
    sweep("sin", 0.51, sin_f32, f64::sin);
}

#[cotangent_macros::unit_test]
fn cos_f32_is_accurate() {
    sweep("cos", 0.51, cos_f32, f64::cos);
}

#[cotangent_macros::unit_test]
fn f64_functions_match_the_reference_values() -> Result<(), Box<dyn std::error::Error>> {
    // Ordered so that neighbouring floats, of either sign, are neighbouring integers.
    let position = |x: f64| {
        let bits = x.to_bits() as i64;
        if bits < 0 { i64::MIN - bits } else { bits }
    };
    let mut function: (&str, fn(f64) -> f64) = ("", |x| x);
    let mut count = 0;
    for line in include_str!("reference.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        if let [name] = words[..] {
            function = match name {
                "exp" => (name, exp_f64),
                "expm1" => (name, expm1_f64),
                "ln" => (name, ln_f64),
                "log1p" => (name, log1p_f64),
                "tanh" => (name, tanh_f64),
                "sigmoid" => (name, sigmoid_f64),
                "erf" => (name, erf_f64),
                _ => return Err(format!("no function {name}").into()),
            };
            continue;
        }
        for pair in words.chunks_exact(2) {
            let number = |word| u64::from_str_radix(word, 16).map(f64::from_bits);
            let (x, want) = (number(pair[0])?, number(pair[1])?);
            let got = function.1(x);
            let distance = position(got).abs_diff(position(want));
            assert!(distance <= 2, "{}({x:e}) is {got:e}, not {want:e}", function.0);
            count += 1;
        }
    }
    assert!(count > 800, "only {count} reference values were read");
    Ok(())
}

/// Checks a function at arguments where the result is known exactly, signs of zero included. NaN must give NaN.
macro_rules! exact {
    ($($function:ident: $($x:expr => $y:expr),+;)+) => {$($(
        let x = $x;
        let [got, want] = [$function(x), $y];
        assert!(
            got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
            "{}({x:e}) is {got:e}, not {want:e}", stringify!($function)
        );
    )+)+};
}

macro_rules! special_values {
    ($test:ident, $t:ident, $exp:ident $expm1:ident $ln:ident $log1p:ident $tanh:ident $sigmoid:ident $erf:ident
     $sin:ident $cos:ident, $huge:expr, $least:expr) => {
        #[cotangent_macros::unit_test]
        fn $test() {
            const INF: $t = $t::INFINITY;
            const NAN: $t = $t::NAN;
            const MAX: $t = $t::MAX;
            // The smallest denormal.
            let least: $t = $least;
            exact! {
                $exp: 0.0 => 1.0, -0.0 => 1.0, INF => INF, -INF => 0.0, NAN => NAN, -NAN => NAN, MAX => INF,
                    -MAX => 0.0, least => 1.0, $huge => INF, -$huge - 40.0 => 0.0;
                $expm1: 0.0 => 0.0, -0.0 => -0.0, INF => INF, -INF => -1.0, NAN => NAN, -NAN => NAN, MAX => INF,
                    -MAX => -1.0, least => least, -least => -least, $huge => INF;
                $ln: 0.0 => -INF, -0.0 => -INF, 1.0 => 0.0, INF => INF, -INF => NAN, NAN => NAN, -NAN => NAN,
                    -1.0 => NAN, -least => NAN, -MAX => NAN;
                $log1p: 0.0 => 0.0, -0.0 => -0.0, -1.0 => -INF, INF => INF, -INF => NAN, NAN => NAN, -NAN => NAN,
                    -1.5 => NAN, -MAX => NAN, least => least, -least => -least;
                $tanh: 0.0 => 0.0, -0.0 => -0.0, INF => 1.0, -INF => -1.0, NAN => NAN, -NAN => NAN, MAX => 1.0,
                    -MAX => -1.0, least => least, -least => -least, 1e-10 => 1e-10;
                $sigmoid: 0.0 => 0.5, -0.0 => 0.5, INF => 1.0, -INF => 0.0, NAN => NAN, -NAN => NAN, MAX => 1.0,
                    -MAX => 0.0, least => 0.5;
                $erf: 0.0 => 0.0, -0.0 => -0.0, INF => 1.0, -INF => -1.0, NAN => NAN, -NAN => NAN, MAX => 1.0,
                    -MAX => -1.0, least => least;
                $sin: 0.0 => 0.0, -0.0 => -0.0, INF => NAN, -INF => NAN, NAN => NAN, least => least;
                $cos: 0.0 => 1.0, -0.0 => 1.0, INF => NAN, -INF => NAN, NAN => NAN, least => 1.0;
            }
        }
    };
}

special_values!(f32_special_values, f32, exp_f32 expm1_f32 ln_f32 log1p_f32 tanh_f32 sigmoid_f32 erf_f32
    sin_f32 cos_f32, 89.0, f32::from_bits(1));
special_values!(f64_special_values, f64, exp_f64 expm1_f64 ln_f64 log1p_f64 tanh_f64 sigmoid_f64 erf_f64
    sin_f64 cos_f64, 710.0, f64::from_bits(1));

#[cotangent_macros::unit_test]
fn a_polynomial_of_any_length_is_summed_in_order() {
    assert_eq!(polynomial_f64(10.0, [4.0, 3.0]), 34.0);
    assert_eq!(polynomial_f64(10.0, [4.0, 3.0, 2.0]), 234.0);
    assert_eq!(polynomial_f64(10.0, [4.0, 3.0, 2.0, 1.0]), 1_234.0);
    assert_eq!(polynomial_f32(10.0, [4.0, 3.0, 2.0, 1.0, 5.0]), 51_234.0);
}
