// The counter-based random numbers of `random.rs`, bit for bit. DRAW: 0 uniform in 32 bits, 1 in 64 bits; 2 normal in 32 bits,
// 3 in 64 bits; 4 integers; 5 booleans. A thread computes PER elements from one counter.

struct Words { u32 w[4]; };

__device__ inline Words philox(u64 counter, u64 seed) {
    u32 c[4] = {(u32)counter, (u32)(counter >> 32), 0, 0}, k[2] = {(u32)seed, (u32)(seed >> 32)};
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 p0 = (u64)c[0] * 0xD2511F53u, p1 = (u64)c[2] * 0xCD9E8D57u;
        const u32 next[4] = {(u32)(p1 >> 32) ^ c[1] ^ k[0], (u32)p1, (u32)(p0 >> 32) ^ c[3] ^ k[1], (u32)p0};
        for (int j = 0; j < 4; ++j) c[j] = next[j];
        k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
    }
    return Words{{c[0], c[1], c[2], c[3]}};
}

__device__ inline u64 two(const Words& words, int which) { return (u64)words.w[2 * which + 1] << 32 | words.w[2 * which]; }

template <int N> __device__ inline double polynomial(double z, const double (&c)[N]) {
    double sum = 0;
#pragma unroll
    for (int n = N - 1; n >= 0; --n) sum = sum * z + c[n];
    return sum;
}

// The same steps as the CPU's, in plain products and sums, so that the bits are the same.
__device__ inline double logarithm(double x) {
    const u64 bits = (u64)__double_as_longlong(x);
    const i32 least = 0x3fe6a09e, k = ((i32)(bits >> 32) - least) >> 20;
    const double m = __longlong_as_double((i64)(bits - ((u64)(u32)k << 52))), s = (m - 1.0) / (m + 1.0);
    const double series[11] = {2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
    return (double)k * 0.693147180559945309417 + s * polynomial(s * s, series);
}

__device__ inline void turn(double v, double& sin, double& cos) {
    const double round = 6755399441055744.0, quarters = 4.0 * v, shifted = quarters + round;
    const double angle = (quarters - (shifted - round)) * 1.57079632679489661923, square = angle * angle;
    const double odd[8] = {1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0,
        -1.0 / 1307674368000.0};
    const double even[9] = {1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600.0,
        -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
    const double s = angle * polynomial(square, odd), c = polynomial(square, even);
    const u64 quadrant = (u64)__double_as_longlong(shifted);
    const double first = quadrant & 1 ? c : s, second = quadrant & 1 ? s : c;
    sin = __longlong_as_double((i64)((u64)__double_as_longlong(first) ^ (quadrant & 2) << 62));
    cos = __longlong_as_double((i64)((u64)__double_as_longlong(second) ^ (quadrant + 1 & 2) << 62));
}

__device__ inline void normals(double a, double b, double step, double& x, double& y) {
    const double radius = sqrt(-2.0 * logarithm((a + 1.0) * step));
    double sin, cos;
    turn(b * step, sin, cos);
    x = radius * cos, y = radius * sin;
}

// `low` and `high` are the bounds of integers. For uniform numbers `low` is their number of bits; for booleans `low` is the
// largest word that gives true, and `high` is 0 if none does.
extern "C" __global__ void __launch_bounds__(256) draw(E* y, u64 n, u64 seed, u64 offset, i64 low, i64 high) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 c = (u64)blockIdx.x * 256 + threadIdx.x; c * PER < n; c += all) {
        const Words words = philox(offset + c, seed);
        E made[PER];
#if DRAW == 0
        const float step = __int_as_float((127 - (int)low) << 23);
        for (int j = 0; j < PER; ++j) narrow(made[j], (float)(i32)(words.w[j] >> (32 - low)) * step);
#elif DRAW == 1
        for (int j = 0; j < PER; ++j) narrow(made[j], (double)(two(words, j) >> 11) * 0x1p-53);
#elif DRAW == 2
        for (int j = 0; j < PER; j += 2) {
            double a, b;
            normals(words.w[j], words.w[j + 1], 0x1p-32, a, b);
            narrow(made[j], (float)a), narrow(made[j + 1], (float)b);
        }
#elif DRAW == 3
        double a, b;
        normals(two(words, 0) >> 11, two(words, 1) >> 11, 0x1p-53, a, b);
        narrow(made[0], a), narrow(made[1], b);
#elif DRAW == 4
        for (int j = 0; j < PER; ++j) made[j] = low + (i64)__umul64hi(two(words, j), (u64)(high - low));
#else
        for (int j = 0; j < PER; ++j) made[j].bits = high != 0 && words.w[j] <= (u32)low;
#endif
        for (int j = 0; j < PER; ++j) if (c * PER + j < n) y[c * PER + j] = made[j];
    }
}
