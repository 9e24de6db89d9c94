// Products of few rows with a matrix whose columns are contiguous, such as the weight of a linear layer: the matrix is read once.
//
// Settings: E, the type of the operands; V, that of the result; M, the rows; C, the columns that are computed together; UNROLL,
// the reads of each that are under way at the same time; S, the warps of a block that share these columns, 1 or all 4.

#define PACK (16 / sizeof(E))

struct Raw { u32 x[4]; };

// Read once: it need not stay in the L1 cache.
__device__ inline Pack<E, PACK> stream(const E* from) {
    union { Raw raw; Pack<E, PACK> pack; } x;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(x.raw.x[0]), "=r"(x.raw.x[1]), "=r"(x.raw.x[2]), "=r"(x.raw.x[3]) : "l"(from));
    return x.pack;
}

// Adds the products of U packs of each row and column, whose reads are under way at the same time.
template <int U> __device__ inline void add(
    float (&sums)[M][C], const E* a, u64 a_row, const E* b, u64 b_column, u64 first, u64 n, u64 step
) {
    Pack<E, PACK> x[U][C];
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
        for (int c = 0; c < C; ++c)
            x[u][c] = stream(b + (first + c < n ? first + c : first) * b_column + u * step);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
        for (int m = 0; m < M; ++m) {
            const Pack<E, PACK> y = *(const Pack<E, PACK>*)(a + m * a_row + u * step);
#pragma unroll
            for (int c = 0; c < C; ++c)
#pragma unroll
                for (int j = 0; j < PACK; ++j) sums[m][c] = __fmaf_rn(widen(x[u][c].x[j]), widen(y.x[j]), sums[m][c]);
        }
}

extern "C" __global__ void __launch_bounds__(128) few_rows(
    const E* a, u64 a_row, const E* b, u64 b_column, const V* start, V* out, u64 n, u64 k
) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 first = (S == 1 ? (u64)blockIdx.x * 4 + warp : (u64)blockIdx.x) * C, step = S * 32 * PACK;
    if (first >= n) return;
    float sums[M][C] = {};
    u64 p = (S == 1 ? lane : threadIdx.x) * PACK;
    for (; p + (UNROLL - 1) * step < k; p += UNROLL * step)
        add<UNROLL>(sums, a + p, a_row, b + p, b_column, first, n, step);
    for (; p < k; p += step) add<1>(sums, a + p, a_row, b + p, b_column, first, n, step);
    __shared__ float parts[S][M][C];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int c = 0; c < C; ++c) {
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
            if (lane > 0 || first + c >= n) continue;
            float sum = sums[m][c];
            for (int s = 1; s < S; ++s) sum += parts[s][m][c];
            if (start) sum += widen(start[first + c]);
            narrow(out[m * n + first + c], sum);
        }
}
