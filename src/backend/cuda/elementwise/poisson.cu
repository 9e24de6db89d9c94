// Poisson random numbers, with the same steps and bits as the CPU's `poisson.rs`.

struct Stream {
    u64 key;
    u32 counter;
    bool has_second;
    double second;
    __device__ double next() {
        if (has_second) {
            has_second = false;
            return second;
        }
        const Words words = philox(counter++, key);
        has_second = true;
        second = ((double)(two(words, 1) >> 11) + 1.0) / 9007199254740992.0;
        return ((double)(two(words, 0) >> 11) + 1.0) / 9007199254740992.0;
    }
};

__device__ inline double log_probability(double k, double rate) {
    if (k < 16.0) {
        double factorial = 1.0;
        for (int factor = 2; factor <= (int)k; ++factor) factorial *= (double)factor;
        return k * logarithm(rate) - rate - logarithm(factorial);
    }
    const double difference = k - rate, sum = k + rate;
    double from_mean;
    if (fabs(difference) < 0.1 * sum) {
        const double ratio = difference / sum, square = ratio * ratio;
        double power = 2.0 * k * ratio;
        from_mean = difference * ratio;
        for (int term = 1; term < 12; ++term) {
            power *= square;
            from_mean += power / (double)(2 * term + 1);
        }
    } else from_mean = k * logarithm(k / rate) - difference;
    const double inverse = 1.0 / k;
    const double series = inverse * (1.0 / 12.0 - inverse * inverse * (1.0 / 360.0 - inverse * inverse / 1260.0));
    return -from_mean - 0.5 * logarithm(6.283185307179586477 * k) - series;
}

__device__ inline double events(double rate, Stream& stream) {
    if (rate == 0.0) return 0.0;
    if (rate < 10.0) {
        double time = -logarithm(stream.next()), count = 0.0;
        while (time <= rate) {
            time -= logarithm(stream.next());
            count += 1.0;
        }
        return count;
    }
    const double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), at_once = 0.9277 - 3.6224 / (b - 2.0);
    for (;;) {
        const double u = stream.next() - 0.5, v = stream.next(), us = 0.5 - fabs(u);
        const double k = floor((2.0 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= at_once) return k;
        if (!(k >= 0.0 && k < 1e17) || (us < 0.013 && v > us)) continue;
        if (logarithm(v) + logarithm(inverse_alpha) - logarithm(a / (us * us) + b) <= log_probability(k, rate)) return k;
    }
}

extern "C" __global__ void __launch_bounds__(256) poisson(const double* rates, const i64* seeds, double* y, u64 n) {
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += (u64)gridDim.x * 256) {
        Stream stream = {(u64)seeds[i], 0, false, 0.0};
        y[i] = events(rates[i], stream);
    }
}
