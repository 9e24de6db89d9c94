// Forward passes in one kernel, for results that need no derivatives. E is the type of the input and of the result, V that of the
// weight or the angles.

#ifdef R
// Rotates pairs of elements `half` apart, each of `pairs` pairs of a row by its own angle.
extern "C" __global__ void __launch_bounds__(256) rope(
    const E* x, const V* cos, const V* sin, E* out, Steps<R> from, Steps<R> by_cos, Steps<R> by_sin, i64 half, u64 pairs, u64 n
) {
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += (u64)gridDim.x * 256) {
        const E* at = x + position((I)i, from);
        const T a = (T)widen(at[0]), b = (T)widen(at[half]);
        const T c = (T)widen(cos[position((I)i, by_cos)]), s = (T)widen(sin[position((I)i, by_sin)]);
        E* to = out + i / pairs * 2 * pairs + i % pairs;
        narrow(to[0], a * c - b * s);
        narrow(to[pairs], b * c + a * s);
    }
}
#else
// x / sqrt(mean(x²) + eps) · weight, of contiguous rows. A block takes a row.
extern "C" __global__ void __launch_bounds__(256) rms_norm(const E* x, const V* weight, double eps, u64 length, E* out) {
    x += (u64)blockIdx.x * length, out += (u64)blockIdx.x * length;
    const u64 packs = length / PACK;
    const Pack<E, PACK>* from = (const Pack<E, PACK>*)x;
    T squares = 0;
    for (u64 p = threadIdx.x; p < packs; p += 256) {
        const Pack<E, PACK> v = from[p];
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            const T value = (T)widen(v.x[j]);
            squares += value * value;
        }
    }
    const T scale = T(1) / sqrt(over_group<256, 256>(squares, T(0), Plus()) / T(length) + T(eps));
    for (u64 p = threadIdx.x; p < packs; p += 256) {
        const Pack<E, PACK> v = from[p];
        Pack<E, PACK> y;
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            const T value = (T)widen(v.x[j]) * scale;
            narrow(y.x[j], weight ? value * (T)widen(weight[p * PACK + j]) : value);
        }
        ((Pack<E, PACK>*)out)[p] = y;
    }
}
#endif
