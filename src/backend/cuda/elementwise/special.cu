// Special functions, in f64 for both compute dtypes. The CPU implementation documents the methods. Included only in kernels
// that call one of them, because they take long to compile.
__device__ __noinline__ double digamma64(double x) {
    double sum = 0;
    if (x == 0) return copysign(1.0 / 0.0, -x);
    if (x < 0) {
        if (x == floor(x)) return 0.0 / 0.0;
        const double pi = 3.14159265358979323846;
        sum = -pi / tan(pi * (x - round(x)));
        x = 1 - x;
    }
    for (; x < 12; x += 1) sum -= 1 / x;
    const double s = 1 / (x * x);
    const double series = s * (1.0 / 12 + s * (-1.0 / 120 + s * (1.0 / 252 + s * (-1.0 / 240 + s * (1.0 / 132
        + s * (-691.0 / 32760 + s * (1.0 / 12 + s * (-3617.0 / 8160))))))));
    return sum + log(x) - 0.5 / x - series;
}
__device__ __noinline__ double positive_zeta(double s, double q) {
    double w = q, sum = 0;
    for (; w < 12; w += 1) {
        const double term = pow(w, -s);
        sum += term;
        if (term < 1e-17 * sum) return sum;
    }
    const double terms[9] = {1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000.0,
        1.0 / 74724249600.0, -3617.0 / 10670622842880000.0, 43867.0 / 5109094217170944000.0};
    const double power = pow(w, -s);
    sum += pow(w, 1 - s) / (s - 1) + 0.5 * power;
    if (power == 0) return sum;
    double rising = s, over = power / w;
    for (int k = 0; k < 9; ++k) {
        sum += terms[k] * rising * over;
        rising *= (s + 2 * k + 1) * (s + 2 * k + 2);
        over /= w * w;
    }
    return sum;
}
__device__ __noinline__ double zeta64(double s, double q) {
    if (s == 1) return 1.0 / 0.0;
    if (!(s >= 1) || q != q) return 0.0 / 0.0;
    if (q > 0) return positive_zeta(s, q);
    if (q == floor(q)) return 1.0 / 0.0;
    if (s != floor(s)) return 0.0 / 0.0;
    const double fraction = -q - floor(-q);
    const double below = positive_zeta(s, fraction) - positive_zeta(s, 1 - q);
    return positive_zeta(s, 1 - fraction) + (fmod(s, 2.0) == 0 ? below : -below);
}
__device__ __noinline__ double2 incomplete_gamma(double a, double x) {
    const double inf = 1.0 / 0.0;
    if (!(a >= 0) || !(x >= 0) || (a == 0 && x == 0) || (a == inf && x == inf)) return make_double2(0.0 / 0.0, 0.0 / 0.0);
    if (a == 0 || x == inf) return make_double2(1, 0);
    if (x == 0 || a == inf) return make_double2(0, 1);
    if (a > 2e5) {
        const double mu = (x - a) / a, half_square = mu - log1p(mu), eta = copysign(sqrt(2 * half_square), mu);
        const double first = fabs(eta) < 1e-3 ? -1.0 / 3 + eta / 12 : 1 / mu - 1 / eta;
        const double rest = exp(-a * half_square) / sqrt(6.28318530717958647692 * a) * (first - 1 / (540 * a));
        const double z = eta * sqrt(0.5 * a);
        return make_double2(0.5 * erfc(-z) - rest, 0.5 * erfc(z) + rest);
    }
    double front;
    if (a < 12) {
        front = exp(a * log(x) - x - lgamma(a));
    } else {
        const double mu = (x - a) / a, s = 1 / (a * a);
        const double correction = (1.0 / 12 - s * (1.0 / 360 - s * (1.0 / 1260 - s / 1680))) / a;
        front = sqrt(a / 6.28318530717958647692) * exp(-a * (mu - log1p(mu)) - correction);
    }
    if (x < a + 1) {
        double term = 1 / a, sum = term, n = a;
        for (int k = 0; k < 100000 && term >= 1e-17 * sum; ++k) { n += 1; term *= x / n; sum += term; }
        return make_double2(front * sum, 1 - front * sum);
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, value = d;
    for (int k = 1; k < 100000; ++k) {
        const double factor = -(double)k * (k - a);
        b += 2; d = 1 / (factor * d + b); c = b + factor / c;
        value *= c * d;
        if (fabs(c * d - 1) < 1e-16) break;
    }
    return make_double2(1 - front * value, front * value);
}
__device__ __noinline__ double scaled_bessel(double x, double order) {
    x = fabs(x);
    if (x == 1.0 / 0.0) return 0;
    if (x <= 20) {
        const double quarter = 0.25 * x * x;
        double term = order == 0 ? 1 : 0.5 * x, sum = term;
        for (double k = 1; term > 1e-17 * sum; k += 1) { term *= quarter / (k * (k + order)); sum += term; }
        return sum * exp(-x);
    }
    double term = 1, sum = 1;
    for (int k = 1; k < 40; ++k) {
        const double odd = 2 * k - 1, next = -term * (4 * order - odd * odd) / (8 * x * k);
        if (!(fabs(next) <= fabs(term))) break;
        term = next; sum += term;
    }
    return sum / sqrt(6.28318530717958647692 * x);
}
template <class X> __device__ inline X digamma(X x) { return (X)digamma64(x); }
template <class X> __device__ inline X zeta(X s, X q) { return (X)zeta64(s, q); }
template <class X> __device__ inline X igamma(X a, X x) { return (X)incomplete_gamma(a, x).x; }
template <class X> __device__ inline X igammac(X a, X x) { return (X)incomplete_gamma(a, x).y; }
template <class X> __device__ inline X i0e(X x) { return x != x ? x : (X)scaled_bessel(x, 0); }
template <class X> __device__ inline X i1e(X x) { return x != x ? x : (X)copysign(scaled_bessel(x, 1), (double)x); }
