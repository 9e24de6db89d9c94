// Factorizations of small matrices, one block each. The matrices are contiguous, n by n and column-major. Panels of NB columns are
// factored in registers, and the rest is updated with them in tiles.

// More columns would be slightly faster, but take many seconds to compile.
#define NB 16
#define SIDE 64

// The strips of a tile: column k of the left one has SIDE rows, row k of the right one SIDE columns.
struct Strips { T left[NB][SIDE + 1], right[NB][SIDE + 1]; };

// a -= left * right for rows from `row` on and columns from `column` on. With `turned`, the right strip is the transpose of the
// rows of the left matrix from `column` on.
__device__ inline void update(T* a, u32 n, u32 panel, u32 row, u32 column, bool turned, Strips& strips) {
    const u32 low = threadIdx.x % 16, high = threadIdx.x / 16;
    __syncthreads();
    for (u32 at = threadIdx.x; at < NB * SIDE; at += 256) {
        const u32 side = at % SIDE, k = at / SIDE;
        strips.left[k][side] = row + side < n ? a[row + side + (u64)(panel + k) * n] : T(0);
        if (turned) strips.right[k][side] = column + side < n ? a[column + side + (u64)(panel + k) * n] : T(0);
    }
    // Without it, neighbours in memory lie along k.
    if (!turned) {
        for (u32 at = threadIdx.x; at < NB * SIDE; at += 256) {
            const u32 k = at % NB, side = at / NB;
            strips.right[k][side] = column + side < n ? a[panel + k + (u64)(column + side) * n] : T(0);
        }
    }
    __syncthreads();
    T sum[4][4] = {};
#pragma unroll 4
    for (int k = 0; k < NB; ++k) {
        T x[4], y[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = strips.left[k][low + 16 * j], y[j] = strips.right[k][high + 16 * j];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[i][j] += x[i] * y[j];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 r = row + low + 16 * i, c = column + high + 16 * j;
            if (r < n && c < n) a[r + (u64)c * n] -= sum[i][j];
        }
}

#if CHOLESKY
// The lower triangle of A becomes L with A = L * L^T. `info` becomes 0, or the order of the first leading minor that is not
// positive.
extern "C" __global__ void __launch_bounds__(256) cholesky(T* all, u64 size, int* info) {
    __shared__ T top[NB][NB + 1];
    __shared__ Strips strips;
    __shared__ int failed;
    const u32 n = (u32)size;
    T* const a = all + (u64)blockIdx.x * n * n;
    if (threadIdx.x == 0) failed = 0;
    for (u32 panel = 0; panel < n; panel += NB) {
        __syncthreads();
        // Beyond the end it is the identity.
        for (u32 at = threadIdx.x; at < NB * NB; at += 256) {
            const u32 r = panel + at % NB, c = panel + at / NB;
            top[at % NB][at / NB] = r < n && c < n && r >= c ? a[r + (u64)c * n] : T(r == c);
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            const u32 r = threadIdx.x;
            T row[NB];
#pragma unroll
            for (int c = 0; c < NB; ++c) row[c] = r < NB ? top[r][c] : T(0);
#pragma unroll
            for (int c = 0; c < NB; ++c) {
                const T pivot = __shfl_sync(0xffffffffu, row[c], c);
                if (!(pivot > T(0)) && r == 0 && failed == 0) failed = (int)(panel + c + 1);
                const T root = sqrt(pivot);
                const T own = r == c ? root : row[c] / root;
                row[c] = own;
#pragma unroll
                for (int k = c + 1; k < NB; ++k) row[k] -= own * __shfl_sync(0xffffffffu, own, k);
            }
#pragma unroll
            for (int c = 0; c < NB; ++c) {
                if (r < NB) top[r][c] = row[c];
                if (r < NB && c <= r && panel + r < n) a[panel + r + (u64)(panel + c) * n] = row[c];
            }
        }
        __syncthreads();
        if (failed) break;
        // The rows below.
        for (u32 r = panel + NB + threadIdx.x; r < n; r += 256) {
            T x[NB];
#pragma unroll
            for (int c = 0; c < NB; ++c) x[c] = a[r + (u64)(panel + c) * n];
#pragma unroll
            for (int c = 0; c < NB; ++c) {
                x[c] /= top[c][c];
#pragma unroll
                for (int k = c + 1; k < NB; ++k) x[k] -= x[c] * top[k][c];
            }
#pragma unroll
            for (int c = 0; c < NB; ++c) a[r + (u64)(panel + c) * n] = x[c];
        }
        for (u32 column = panel + NB; column < n; column += SIDE)
            for (u32 row = column; row < n; row += SIDE) update(a, n, panel, row, column, true, strips);
    }
    __syncthreads();
    if (threadIdx.x == 0) info[blockIdx.x] = failed;
}

#else
// A becomes U and, below the diagonal, the unit lower triangular L, with rows exchanged by `pivots` unless that is null. At most
// 256 rows: one per thread. `info` becomes 0, or the number of the first pivot that is 0.
extern "C" __global__ void __launch_bounds__(256) lu(T* all, u64 size, int* pivots, int* info) {
    __shared__ T top[NB][NB + 1], rows[2][2][NB];
    __shared__ Strips strips;
    __shared__ T best[2][8];
    __shared__ u32 where[2][8], chosen[NB], source[256];
    __shared__ int failed;
    const u32 n = (u32)size, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    T* const a = all + (u64)blockIdx.x * n * n;
    if (threadIdx.x == 0) failed = 0;
    for (u32 panel = 0; panel < n; panel += NB) {
        const u32 own = panel + threadIdx.x;
        T x[NB];
        __syncthreads();
        source[threadIdx.x] = threadIdx.x;
#pragma unroll
        for (int c = 0; c < NB; ++c) x[c] = own < n && panel + c < n ? a[own + (u64)(panel + c) * n] : T(0);
#pragma unroll
        for (int c = 0; c < NB; ++c) {
            // The same for all threads.
            if (panel + c < n) {
                u32 p = c;
                if (pivots) {
                    // The largest, the first of equal ones. A NaN counts as the largest.
                    T most = threadIdx.x >= c && own < n ? (x[c] != x[c] ? T(1) / T(0) : absolute(x[c])) : T(-1);
                    p = threadIdx.x;
                    for (int step = 16; step > 0; step >>= 1) {
                        const T other = __shfl_xor_sync(0xffffffffu, most, step);
                        const u32 there = __shfl_xor_sync(0xffffffffu, p, step);
                        if (other > most || (other == most && there < p)) most = other, p = there;
                    }
                    if (lane == 0) best[c & 1][warp] = most, where[c & 1][warp] = p;
                    __syncthreads();
                    most = best[c & 1][0], p = where[c & 1][0];
                    for (int each = 1; each < 8; ++each)
                        if (best[c & 1][each] > most) most = best[c & 1][each], p = where[c & 1][each];
                }
                if (threadIdx.x == p) {
#pragma unroll
                    for (int k = 0; k < NB; ++k) rows[c & 1][0][k] = x[k];
                }
                if (threadIdx.x == c) {
#pragma unroll
                    for (int k = 0; k < NB; ++k) rows[c & 1][1][k] = x[k];
                    chosen[c] = p;
                    if (pivots) pivots[(u64)blockIdx.x * n + panel + c] = (int)(panel + p + 1);
                }
                __syncthreads();
                if (threadIdx.x == p && p != c) {
#pragma unroll
                    for (int k = 0; k < NB; ++k) x[k] = rows[c & 1][1][k];
                }
                if (threadIdx.x == c) {
#pragma unroll
                    for (int k = 0; k < NB; ++k) x[k] = rows[c & 1][0][k];
                    const u32 moved = source[c];
                    source[c] = source[p], source[p] = moved;
                }
                const T pivot = rows[c & 1][0][c];
                if (pivot == T(0)) {
                    if (threadIdx.x == 0 && failed == 0) failed = (int)(panel + c + 1);
                } else if (threadIdx.x > c) {
                    x[c] /= pivot;
#pragma unroll
                    for (int k = c + 1; k < NB; ++k) x[k] -= x[c] * rows[c & 1][0][k];
                }
            }
        }
        __syncthreads();
        const u32 width = n - panel < NB ? n - panel : NB;
#pragma unroll
        for (int c = 0; c < NB; ++c) {
            if (own < n && panel + c < n) a[own + (u64)(panel + c) * n] = x[c];
            if (threadIdx.x < NB) top[threadIdx.x][c] = x[c];
        }
        __syncthreads();
        // The exchanges in all other columns; a warp processes four at a time.
        const bool here = lane < width;
        const u32 to = panel + lane, far = here ? chosen[lane] : 0;
        const bool there = here && far >= width;
        const u32 from = panel + source[lane], from_far = panel + source[far];
        for (u32 first = warp * 4; first < n && pivots; first += 32) {
            T near_value[4], far_value[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const u32 column = first + j;
                if (column >= n || (column >= panel && column < panel + width)) continue;
                if (here) near_value[j] = a[from + (u64)column * n];
                if (there) far_value[j] = a[from_far + (u64)column * n];
            }
            __syncwarp();
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const u32 column = first + j;
                if (column >= n || (column >= panel && column < panel + width)) continue;
                if (here) a[to + (u64)column * n] = near_value[j];
                if (there) a[panel + far + (u64)column * n] = far_value[j];
            }
        }
        __syncthreads();
        // The rows of the panel to the right, which exist if the panel is a whole one.
        for (u32 column = panel + NB + threadIdx.x; column < n; column += 256) {
            T y[NB];
#pragma unroll
            for (int r = 0; r < NB; ++r) y[r] = a[panel + r + (u64)column * n];
#pragma unroll
            for (int c = 0; c < NB; ++c)
#pragma unroll
                for (int r = c + 1; r < NB; ++r) y[r] -= y[c] * top[r][c];
#pragma unroll
            for (int r = 0; r < NB; ++r) a[panel + r + (u64)column * n] = y[r];
        }
        for (u32 column = panel + NB; column < n; column += SIDE)
            for (u32 row = panel + NB; row < n; row += SIDE) update(a, n, panel, row, column, false, strips);
    }
    __syncthreads();
    if (threadIdx.x == 0) info[blockIdx.x] = failed;
}
#endif
