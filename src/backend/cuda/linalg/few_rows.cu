// Linear layers of few rows: `x · weightᵀ` with matrices whose rows are contiguous, which are read once.
//
// Settings: E, the type of the operands; V, that of the result; M, the rows; C, the outputs of a layer that are computed
// together; UNROLL, the reads of each that are under way at the same time; WARPS, the warps of a block; S, the warps of a block
// that share these outputs, 1 or all of them; LAYERS, the number of layers, whose results are side by side; GATE, 0, or the
// activation of the first of two layers, by which the other one is multiplied: 1 for SiLU, 2 for GELU by tanh; NORM, whether
// the rows are first divided by their root mean square; K, then the length of the rows.

#define PACK (16 / sizeof(E))
// The matrix rows that a warp reads.
#define ROWS (GATE ? 2 * C : C)

struct Layer { const E* weight; u64 step; const V* bias; u64 outputs; };
struct Layers { Layer of[LAYERS]; };
struct Raw { u32 x[4]; };

// Read once: it need not stay in the L1 cache.
__device__ inline Pack<E, PACK> stream(const E* from) {
    union { Raw raw; Pack<E, PACK> pack; } x;
    // Volatile: not moved before the wait for the kernel that may have written the weight.
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(x.raw.x[0]), "=r"(x.raw.x[1]), "=r"(x.raw.x[2]), "=r"(x.raw.x[3]) : "l"(from));
    return x.pack;
}

// Adds the products of U packs of each row, whose reads are under way at the same time.
template <int U> __device__ inline void add(float (&sums)[M][ROWS], const E* x, u64 x_row, const E* const (&w)[ROWS], u64 p, u64 step) {
    Pack<E, PACK> read[U][ROWS];
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
        for (int c = 0; c < ROWS; ++c) read[u][c] = stream(w[c] + p + u * step);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
        for (int m = 0; m < M; ++m) {
            const Pack<E, PACK> y = *(const Pack<E, PACK>*)(x + m * x_row + p + u * step);
#pragma unroll
            for (int c = 0; c < ROWS; ++c)
#pragma unroll
                for (int j = 0; j < PACK; ++j)
                    sums[m][c] = __fmaf_rn(widen(read[u][c].x[j]), widen(y.x[j]), sums[m][c]);
        }
}

__device__ inline float activated(float x) {
    if (GATE == 1) return x / (1.0f + __expf(-x));
    return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

#if NORM
// The rows, divided by their root mean square and multiplied by the weight, rounded as the operation by itself would.
__device__ inline void normalize(E* to, const E* x, u64 x_row, const E* weight, double eps) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
        float squares = 0;
        for (int p = threadIdx.x * PACK; p < K; p += 32 * WARPS * PACK) {
            const Pack<E, PACK> v = *(const Pack<E, PACK>*)(x + m * x_row + p);
#pragma unroll
            for (int j = 0; j < PACK; ++j) squares = __fmaf_rn(widen(v.x[j]), widen(v.x[j]), squares);
        }
        const float scale = 1.0f / sqrtf(over_group<32 * WARPS, 32 * WARPS>(squares, 0.0f, Plus()) / K + (float)eps);
        for (int p = threadIdx.x * PACK; p < K; p += 32 * WARPS * PACK) {
            const Pack<E, PACK> v = *(const Pack<E, PACK>*)(x + m * x_row + p), g = *(const Pack<E, PACK>*)(weight + p);
            Pack<E, PACK> y;
#pragma unroll
            for (int j = 0; j < PACK; ++j) narrow(y.x[j], widen(v.x[j]) * scale * widen(g.x[j]));
            *(Pack<E, PACK>*)(to + m * K + p) = y;
        }
    }
    __syncthreads();
}
#endif

// `out` is contiguous, of `outputs` elements a row, as `residual`, if it is not null.
extern "C" __global__ void __launch_bounds__(32 * WARPS) few_rows(
    const E* x, u64 x_row, Layers layers, const E* norm, double eps, const V* residual, V* out, u64 outputs, u64 k
) {
    let_next_start();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 unit = S == 1 ? (u64)blockIdx.x * WARPS + warp : (u64)blockIdx.x, before = 0;
    Layer layer = layers.of[0];
#pragma unroll
    for (int l = 1; l < (GATE ? 1 : LAYERS); ++l) {
        const u64 units = (layer.outputs + C - 1) / C;
        if (unit < units) break;
        unit -= units, before += layer.outputs, layer = layers.of[l];
    }
    const u64 first = unit * C, step = S * 32 * PACK, n = layer.outputs;
    const u64 start = (S == 1 ? lane : threadIdx.x) * PACK;
    const E* w[ROWS];
#pragma unroll
    for (int c = 0; c < ROWS; ++c) {
        const Layer from = c < C ? layer : layers.of[LAYERS - 1];
        const u64 row = first + c % C;
        w[c] = from.weight + (row < n ? row : n - 1) * from.step;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (start + u * step < k) prefetch(w[c] + start + u * step);
    }
    await_previous();
#if NORM
    __shared__ __align__(16) E normalized[M * K];
    normalize(normalized, x, x_row, norm, eps);
    x = normalized, x_row = K;
#endif
    if (first >= n) return;
    float sums[M][ROWS] = {};
    u64 p = start;
    for (; p + (UNROLL - 1) * step < k; p += UNROLL * step) add<UNROLL>(sums, x, x_row, w, p, step);
    for (; p < k; p += step) add<1>(sums, x, x_row, w, p, step);
    __shared__ float parts[S][M][ROWS];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int c = 0; c < ROWS; ++c) {
            sums[m][c] = over_warp(sums[m][c], Plus());
            if (S > 1 && lane == 0) parts[warp][m][c] = sums[m][c];
        }
    if (S > 1) {
        __syncthreads();
        if (warp > 0) return;
    }
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int c = 0; c < C; ++c) {
            if (lane != (m * C + c) % 32 || first + c >= n) continue;
            float sum = sums[m][c], other = GATE ? sums[m][ROWS - C + c] : 0.0f;
#pragma unroll
            for (int s = 1; s < S; ++s) {
                sum += parts[s][m][c];
                if (GATE) other += parts[s][m][ROWS - C + c];
            }
            if (layer.bias) sum += widen(layer.bias[first + c]);
            if (GATE) {
                const V* bias = layers.of[LAYERS - 1].bias;
                sum = activated(sum) * (bias ? other + widen(bias[first + c]) : other);
            }
            const u64 at = m * outputs + before + first + c;
            narrow(out[at], residual ? sum + widen(residual[at]) : sum);
        }
}
