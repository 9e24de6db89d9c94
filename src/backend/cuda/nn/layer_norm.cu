// Layer norm of contiguous rows of W elements of type E. GROUP threads process a row: a warp, or the block for long
// rows. PACK elements are read at a time and a thread holds PACKS packs, so that a row is read once. The weight and the
// bias are of type V.

#define ROWS (256 / GROUP)

template <class X> __device__ inline void load_row(const X* row, T (&x)[PACKS][PACK], int lane) {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int at = (p * GROUP + lane) * PACK;
        Pack<X, PACK> pack;
        if (at < W) pack = *(const Pack<X, PACK>*)(row + at);
#pragma unroll
        for (int j = 0; j < PACK; ++j) x[p][j] = at < W ? (T)widen(pack.x[j]) : T(0);
    }
}

extern "C" __global__ void __launch_bounds__(256) layer_norm(
    u64 rows, const E* x, const V* weight, const V* bias, double eps, E* y, T* stats
) {
    const int lane = threadIdx.x % GROUP;
    for (u64 row = (u64)blockIdx.x * ROWS + threadIdx.x / GROUP; row < rows; row += (u64)gridDim.x * ROWS) {
        T v[PACKS][PACK];
        load_row(x + row * W, v, lane);
        T sum = 0;
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
#pragma unroll
            for (int j = 0; j < PACK; ++j) sum += v[p][j];
        const T mean = over_group<GROUP, 256>(sum, T(0), Plus()) / T(W);
        T squares = 0;
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const T d = v[p][j] - mean;
                if ((p * GROUP + lane) * PACK < W) squares += d * d;
            }
        const T variance = over_group<GROUP, 256>(squares, T(0), Plus()) / T(W);
        const T inverse = T(1) / sqrt(variance + T(eps));
        if (lane == 0) stats[2 * row] = mean, stats[2 * row + 1] = inverse;
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const int at = (p * GROUP + lane) * PACK;
            if (at >= W) continue;
            Pack<V, PACK> w, b;
            Pack<E, PACK> out;
            if (weight) w = *(const Pack<V, PACK>*)(weight + at);
            if (bias) b = *(const Pack<V, PACK>*)(bias + at);
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                T n = (v[p][j] - mean) * inverse;
                if (weight) n *= (T)widen(w.x[j]);
                if (bias) n += (T)widen(b.x[j]);
                narrow(out.x[j], n);
            }
            *(Pack<E, PACK>*)(y + row * W + at) = out;
        }
    }
}

// The gradient of x, and for each block the sums over its rows of g times the normalised x, and of g: `partial` is
// (blocks, 2, W).
extern "C" __global__ void __launch_bounds__(256) layer_norm_backward(
    u64 rows, const E* x, const E* g, const T* stats, const V* weight, E* to_x, T* partial
) {
    const int lane = threadIdx.x % GROUP, own = threadIdx.x / GROUP;
    T to_weight[PACKS][PACK] = {}, to_bias[PACKS][PACK] = {}, w[PACKS][PACK];
    if (weight) load_row(weight, w, lane);
    for (u64 row = (u64)blockIdx.x * ROWS + own; row < rows; row += (u64)gridDim.x * ROWS) {
        T n[PACKS][PACK], c[PACKS][PACK];
        load_row(x + row * W, n, lane);
        load_row(g + row * W, c, lane);
        const T mean = stats[2 * row], inverse = stats[2 * row + 1];
        T along = 0, flat = 0;
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                n[p][j] = (n[p][j] - mean) * inverse;
                to_weight[p][j] += c[p][j] * n[p][j];
                to_bias[p][j] += c[p][j];
                if (weight) c[p][j] *= w[p][j];
                along += c[p][j] * n[p][j];
                flat += c[p][j];
            }
        along = over_group<GROUP, 256>(along, T(0), Plus()) / T(W);
        flat = over_group<GROUP, 256>(flat, T(0), Plus()) / T(W);
        if (!to_x) continue;
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const int at = (p * GROUP + lane) * PACK;
            if (at >= W) continue;
            Pack<E, PACK> out;
#pragma unroll
            for (int j = 0; j < PACK; ++j) narrow(out.x[j], (c[p][j] - flat - n[p][j] * along) * inverse);
            *(Pack<E, PACK>*)(to_x + row * W + at) = out;
        }
    }
    if (!partial) return;
    T* sums = partial + (u64)blockIdx.x * 2 * W;
#if GROUP == 256
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            const int at = (p * GROUP + lane) * PACK + j;
            if (at < W) sums[at] = to_weight[p][j], sums[W + at] = to_bias[p][j];
        }
#else
    // The block's warps add their sums in order.
    __shared__ T shared[2][PACKS * PACK * 32];
    for (int turn = 0; turn < ROWS; ++turn) {
        if (own == turn)
#pragma unroll
            for (int p = 0; p < PACKS; ++p)
#pragma unroll
                for (int j = 0; j < PACK; ++j) {
                    const int at = (p * 32 + lane) * PACK + j;
                    shared[0][at] = (turn ? shared[0][at] : T(0)) + to_weight[p][j];
                    shared[1][at] = (turn ? shared[1][at] : T(0)) + to_bias[p][j];
                }
        __syncthreads();
    }
    for (int at = threadIdx.x; at < W; at += 256) sums[at] = shared[0][at], sums[W + at] = shared[1][at];
#endif
}
