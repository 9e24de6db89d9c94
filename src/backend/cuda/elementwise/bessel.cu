// Bessel and Airy functions, and orthogonal polynomials, in f64 for both compute dtypes. The CPU implementation documents the
// methods. Included only in kernels that call one of them.
__device__ __noinline__ double2 small_k(double x) {
    const double quarter = 0.25 * x * x, log_half = log(0.5 * x) + 0.5772156649015329;
    double c = 1, d = 1, harmonic = 0, k = 0, zero = 0, one = 0;
    while (c > 1e-17) {
        zero += c * (harmonic - log_half);
        one += d * (log_half - harmonic - 0.5 / (k + 1));
        k += 1; harmonic += 1 / k;
        c *= quarter / (k * k); d *= quarter / (k * (k + 1));
    }
    return make_double2(zero, 1 / x + 0.5 * x * one);
}
__device__ __noinline__ double far_k(double x, double mu) {
    double term = 1, sum = 1;
    for (int k = 1; k < 8; ++k) { term *= (mu - (2.0 * k - 1) * (2.0 * k - 1)) / (8.0 * k * x); sum += term; }
    return sqrt(1.57079632679489661923 / x) * sum;
}
__device__ __noinline__ double2 large_k(double x, double m) {
    if (x > 1000) return make_double2(far_k(x, 4 * m * m), far_k(x, 4 * (m + 1) * (m + 1)));
    const double first = 0.25 - m * m;
    double b = 2 * (1 + x), q_before = 0, q_now = 1, a = -first, c = first, d = 1 / b, h = d, step = d, q = first;
    double s = 1 + q * step;
    for (int i = 2; i < 500; ++i) {
        a -= 2 * (i - 1);
        c = -a * c / i;
        const double q_next = (q_before - b * q_now) / a;
        q_before = q_now; q_now = q_next;
        q += c * q_next;
        b += 2; d = 1 / (b + a * d);
        step *= b * d - 1;
        h += step; s += q * step;
        if (fabs(q * step) < 1e-17 * fabs(s)) break;
    }
    const double low = sqrt(1.57079632679489661923 / x) / s;
    return make_double2(low, low * (m + x + 0.5 - first * h) / x);
}
__device__ __noinline__ double2 both_k(double x, bool scaled) {
    const double inf = 1.0 / 0.0;
    if (!(x >= 0)) return make_double2(0.0 / 0.0, 0.0 / 0.0);
    if (x == 0) return make_double2(inf, inf);
    if (x == inf) return make_double2(0, 0);
    const double2 found = x <= 2 ? small_k(x) : large_k(x, 0);
    const double factor = x <= 2 ? (scaled ? exp(x) : 1) : (scaled ? 1 : exp(-x));
    return make_double2(found.x * factor, found.y * factor);
}
__device__ __noinline__ double2 airy64(double x) {
    const double values[13] = {-0.022133721547341404, -0.0527050503563862, 0.18428083525050564, -0.3291451736298231, 0.3507610090241143,
        -0.07026553294928952, -0.3788142936776581, 0.2274074282016856, 0.5355608832923521, 0.3550280538878172, 0.1352924163128814,
        0.03492413042327438, 0.006591139357460719};
    const double slopes[13] = {-0.9756639809263316, 0.9355609381983066, -0.7710081684101265, 0.3459354872813429, 0.3271928185544431,
        -0.7906285753685814, 0.3145837692165988, 0.618259020741691, -0.01016056711664521, -0.2588194037928068, -0.1591474412967932,
        -0.05309038443365363, -0.011912976705951318};
    const double pi = 3.14159265358979323846;
    if (x != x) return make_double2(x, x);
    const double size = fabs(x), phase = 2.0 / 3.0 * size * sqrt(size);
    if (x > 3.5) {
        if (phase > 750) return make_double2(0, 0);
        const double2 k = large_k(phase, -1.0 / 3.0);
        const double factor = exp(-phase) / pi;
        return make_double2(sqrt(x / 3) * k.x * factor, -x / sqrt(3.0) * k.y * factor);
    }
    if (x < -9.5) {
        if (size == 1.0 / 0.0) return make_double2(0, 0.0 / 0.0);
        double even = 1, odd = 0, even_slope = 1, odd_slope = 0, u = 1;
        for (int k = 1; k < 30; ++k) {
            const double next = u * (6.0 * k - 5) * (6.0 * k - 3) * (6.0 * k - 1) / (216.0 * k * (2.0 * k - 1) * phase);
            if (fabs(next) > fabs(u)) break;
            u = next;
            const double v = -u * (6.0 * k + 1) / (6.0 * k - 1), sign = k / 2 % 2 == 0 ? 1 : -1;
            if (k % 2 == 0) { even += sign * u; even_slope += sign * v; } else { odd += sign * u; odd_slope += sign * v; }
            if (u < 1e-17) break;
        }
        const double angle = phase + 0.25 * pi, root = sqrt(sqrt(size)), scale = 1 / sqrt(pi);
        return make_double2((sin(angle) * even - cos(angle) * odd) * scale / root,
            -(cos(angle) * even_slope + sin(angle) * odd_slope) * scale * root);
    }
    const double at = fmin(fmax(round(x), -9.0), 3.0), h = x - at;
    const int position = (int)(at + 9);
    double a = values[position], b = slopes[position], c = 0.5 * at * a, y = a + b * h, dy = b, power = h;
    for (int n = 2; n < 60; ++n) {
        dy += n * c * power;
        power *= h;
        y += c * power;
        const double next = (at * b + a) / ((n + 1.0) * n);
        a = b; b = c; c = next;
        if ((fabs(a) + fabs(b) + fabs(c)) * fabs(power) < 1e-18) break;
    }
    return make_double2(y, dy);
}
// The polynomial with number `which`.
__device__ __noinline__ double polynomial(int which, double x, double n) {
    n = trunc(n);
    if (n > 32 && which == 0 && fabs(x) < 1) return cos(n * acos(x));
    if (n > 32 && which == 1 && fabs(x) < 0.999) return sin((n + 1) * acos(x)) / sin(acos(x));
    if (!(n <= 100000)) return 0.0 / 0.0;
    if (n < 0) return 0;
    if (n == 0) return 1;
    double before = 1, now = which == 1 || which == 2 ? 2 * x : which == 4 ? 1 - x : x;
    for (double k = 1; k < n; k += 1) {
        double next;
        if (which <= 1) next = 2 * x * now - before;
        else if (which == 2) next = 2 * (x * now - k * before);
        else if (which == 3) next = x * now - k * before;
        else if (which == 4) next = ((2 * k + 1 - x) * now - k * before) / (k + 1);
        else next = ((2 * k + 1) * x * now - k * before) / (k + 1);
        before = now; now = next;
    }
    return now;
}
template <class X> __device__ inline X bessel_k0(X x) { return (X)both_k(x, false).x; }
template <class X> __device__ inline X bessel_k1(X x) { return (X)both_k(x, false).y; }
template <class X> __device__ inline X bessel_k0e(X x) { return (X)both_k(x, true).x; }
template <class X> __device__ inline X bessel_k1e(X x) { return (X)both_k(x, true).y; }
template <class X> __device__ inline X airy_ai(X x) { return (X)airy64(x).x; }
template <class X> __device__ inline X airy_ai_prime(X x) { return (X)airy64(x).y; }
template <class X> __device__ inline X chebyshev_t(X x, X n) { return (X)polynomial(0, x, n); }
template <class X> __device__ inline X chebyshev_u(X x, X n) { return (X)polynomial(1, x, n); }
template <class X> __device__ inline X hermite_h(X x, X n) { return (X)polynomial(2, x, n); }
template <class X> __device__ inline X hermite_he(X x, X n) { return (X)polynomial(3, x, n); }
template <class X> __device__ inline X laguerre_l(X x, X n) { return (X)polynomial(4, x, n); }
template <class X> __device__ inline X legendre_p(X x, X n) { return (X)polynomial(5, x, n); }
