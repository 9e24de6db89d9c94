// For sm_80 and later: products of warps
//
// Tiles in shared memory are rows of D elements plus 16 bytes: the eight rows that one instruction reads are then in
// different banks. A warp has M * 16 rows of a product; c[m][n] is a fragment of 16 rows and 8 columns.

// The stride of a row in bytes.
constexpr int STEP = D * 2 + 16;

// Loads four 8x8 matrices; each thread gives the address of a row.
__device__ inline void matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline void matrices_transposed(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF "." HALF ".f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies ROWS rows from row `first` on to a tile; those from `end` on are zeros.
template <int ROWS, int THREADS>
__device__ inline void fetch_rows(u32 to, const Half* from, i64 step, int first, int end) {
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int i = 0; i < (ROWS * CHUNKS + THREADS - 1) / THREADS; ++i) {
        const int at = i * THREADS + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
        if (ROWS * CHUNKS % THREADS && at >= ROWS * CHUNKS) break;
        const bool there = first + row < end;
        fetch(to + row * STEP + chunk * 16, from + (there ? (first + row) * step + chunk * 8 : 0), there);
    }
}

// 16 rows and 16 columns, from column 16 s on, as the left operand of a product.
__device__ inline void left_side(u32 (&a)[4], u32 tile, int row, int s) {
    const int lane = threadIdx.x & 31;
    matrices(a, tile + (row + (lane & 15)) * STEP + (s * 2 + (lane >> 4)) * 16);
}

// c = left * right^T, with the rows of `left` from `row` on and the N rows of `right` from `other` on.
template <int M, int N>
__device__ inline void each_with_each(float (&c)[M][N / 8][4], u32 left, int row, u32 right, int other) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int n = 0; n < N / 8; ++n) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0;
#pragma unroll
    for (int s = 0; s < D / 16; ++s) {
        u32 a[M][4];
#pragma unroll
        for (int m = 0; m < M; ++m) left_side(a[m], left, row + m * 16, s);
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            u32 b[4];
            matrices(b, right + (other + (n + (lane >> 4)) * 8 + (lane & 7)) * STEP + (s * 2 + ((lane >> 3) & 1)) * 16);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply(c[m][n], a[m], b[0], b[1]);
                multiply(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// c += weights * tile, with M * 16 rows and K columns of weights, and the K rows of `tile` from `row` on.
template <int M, int K>
__device__ inline void weigh(float (&c)[M][D / 8][4], const float (&weights)[M][K / 8][4], u32 tile, int row) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int s = 0; s < K / 16; ++s) {
        u32 a[M][4];
#pragma unroll
        for (int m = 0; m < M; ++m) {
            a[m][0] = two(weights[m][2 * s][0], weights[m][2 * s][1]);
            a[m][1] = two(weights[m][2 * s][2], weights[m][2 * s][3]);
            a[m][2] = two(weights[m][2 * s + 1][0], weights[m][2 * s + 1][1]);
            a[m][3] = two(weights[m][2 * s + 1][2], weights[m][2 * s + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            u32 b[4];
            matrices_transposed(b, tile + (row + s * 16 + (lane & 15)) * STEP + (n + (lane >> 4)) * 16);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply(c[m][n], a[m], b[0], b[1]);
                multiply(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// Writes 16 rows, times a factor, except for those from `end` on.
__device__ inline void put_rows(Half* to, i64 step, const float (&c)[D / 8][4], float factor, int first, int end) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = first + (lane >> 2) + h * 8;
        if (row >= end) continue;
#pragma unroll
        for (int n = 0; n < D / 8; ++n)
            *(u32*)(to + row * step + n * 8 + (lane & 3) * 2) = two(c[n][2 * h] * factor, c[n][2 * h + 1] * factor);
    }
}
