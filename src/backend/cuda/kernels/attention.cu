// Attention in half precision on tensor cores, forward and backward, in tiles that never leave the chip.
//
// Macros given before this source:
//   BF16    1: bf16 elements, 0: f16
//   D       the size of a head: 16, 32, 64, 96 or 128
//   CAUSAL  1: query i sees keys 0..=i
//   MASK    0: none; 1: f32 numbers added to the scaled scores; 2: one byte a pair, and only pairs whose byte is not 0 are seen
//   HOPPER  1: sm_90a, D is 64 or 128: warpgroup products; 0: sm_80 and later, every D
//
// Every number is a function of the inputs alone: no floating atomics race, so two runs give the same bits.

// ---------------------------------------------------------------------------------------------------------------------
// Helpers

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

#if BF16
#define HALF "bf16"
#else
#define HALF "f16"
#endif
#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define NOTHING __int_as_float(0xff800000)
#define EVERYTHING __int_as_float(0x7f800000)

typedef u16 Half;
// Steps, in elements, from one batch, head and row to the next; the elements of a row lie side by side.
struct Heads { i64 batch, head, row; };
// The same of a mask; a step of 0 repeats what is there.
struct MaskSteps { i64 batch, head, row, column; };

__device__ inline u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ inline u32 two(float low, float high) {
    u32 y;
    asm("cvt.rn." HALF "x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
__device__ inline float widen(u16 x) {
#if BF16
    return __uint_as_float((u32)x << 16);
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
#endif
}
__device__ inline float power_of_two(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

__device__ inline void fetch(u32 to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ inline void commit_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ inline void await_fetches() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// What a pair of a query and a key adds to its exponent of base 2.
struct Mask {
    const void* at;
    i64 row, column;
    __device__ Mask(const void* mask, const MaskSteps& steps, int batch, int head) : row(steps.row), column(steps.column) {
        at = (const u8*)mask + (batch * steps.batch + head * steps.head) * (MASK == 1 ? 4 : 1);
    }
    __device__ float operator()(int query, int key) const {
        const i64 i = query * row + key * column;
        if (MASK == 2) return ((const u8*)at)[i] ? 0.0f : NOTHING;
        const float x = ((const float*)at)[i];
        // Lowest numbers stay finite, so that a row of nothing else is still an average.
        return x == NOTHING ? x : fmaxf(x * LOG2E, -3e38f);
    }
};

// Whether a pair is seen at all, by where it lies.
__device__ inline bool in_sight(int query, int key, int queries, int keys) {
    return key < keys && (!CAUSAL || key <= query) && (!MASK || query < queries);
}

// A row's weights are 2^(score * factor - offset). With a mask, scores are made exponents first and the factor is 1.
__device__ inline float masked(float score, float factor, int query, int key, int queries, int keys, const Mask& mask) {
    if (!in_sight(query, key, queries, keys)) return NOTHING;
    return MASK ? __fmaf_rn(score, factor, mask(query, key)) : score;
}

// ---------------------------------------------------------------------------------------------------------------------
// Both ways: what the backward pass needs of every query

// For every query the sum of gradient times result, and the logarithm of base 2 of the sum of its exponentials; `padded` is
// the queries of a head rounded up to a multiple of 128, and those beyond the last get weights of 0. Also sets the `turns`
// that the order of sums goes by to 0. One row by LANES threads.
extern "C" __global__ void __launch_bounds__(256) attention_backward_prepare(
    int heads, int queries, int padded, const Half* gradient, Heads sg, const Half* out, Heads so, const float* sums,
    float* logarithms, float* deltas, int* turns, int all_turns
) {
    constexpr int CHUNKS = D / 8, LANES = CHUNKS > 8 ? 16 : CHUNKS, ROWS = 256 / LANES;
    const i64 thread = (i64)blockIdx.x * 256 + threadIdx.x;
    if (thread < all_turns) turns[thread] = 0;
    const int blocks = padded / ROWS, pair = blockIdx.x / blocks, row = (blockIdx.x % blocks) * ROWS + threadIdx.x / LANES;
    const int chunk = threadIdx.x % LANES;
    float sum = 0;
    if (row < queries && chunk < CHUNKS) {
        const int batch = pair / heads, head = pair % heads;
        union { uint4 all; u16 x[8]; } a, b;
        a.all = *(const uint4*)(gradient + batch * sg.batch + head * sg.head + row * sg.row + chunk * 8);
        b.all = *(const uint4*)(out + batch * so.batch + head * so.head + row * so.row + chunk * 8);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = __fmaf_rn(widen(a.x[i]), widen(b.x[i]), sum);
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (chunk == 0) {
        const float logarithm = row < queries ? sums[(i64)pair * queries + row] : NOTHING;
        deltas[(i64)pair * padded + row] = sum;
        // Rows that see nothing get weights of 0 too.
        logarithms[(i64)pair * padded + row] = logarithm == NOTHING ? EVERYTHING : logarithm * LOG2E;
    }
}

#if !HOPPER
// ---------------------------------------------------------------------------------------------------------------------
// Products of warps
//
// Tiles in shared memory are rows of D elements and 16 bytes more: the eight rows that one instruction reads then lie in
// different banks. A warp has M times 16 rows of a product; c[m][n] is a fragment of 16 rows and 8 columns.

constexpr int STEP = D * 2 + 16;

__device__ inline void matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline void matrices_turned(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF "." HALF ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int ROWS, int THREADS> __device__ inline void fetch_rows(u32 to, const Half* from, i64 step, int first, int end) {
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int i = 0; i < (ROWS * CHUNKS + THREADS - 1) / THREADS; ++i) {
        const int at = i * THREADS + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
        if (ROWS * CHUNKS % THREADS && at >= ROWS * CHUNKS) break;
        const bool there = first + row < end;
        fetch(to + row * STEP + chunk * 16, from + (there ? (first + row) * step + chunk * 8 : 0), there);
    }
}

// 16 rows and 16 columns, from column 16 s, as the left side of a product.
__device__ inline void left_side(u32 (&a)[4], u32 tile, int row, int s) {
    const int lane = threadIdx.x & 31;
    matrices(a, tile + (row + (lane & 15)) * STEP + (s * 2 + (lane >> 4)) * 16);
}

// c = the rows of `left` from `row`, times the N rows of `right` from `other`, each with each.
template <int M, int N> __device__ inline void each_with_each(float (&c)[M][N / 8][4], u32 left, int row, u32 right, int other) {
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

// c += weights (M times 16 rows, K columns) times the K rows of `tile` from `row`.
template <int M, int K> __device__ inline void weigh(float (&c)[M][D / 8][4], const float (&weights)[M][K / 8][4], u32 tile, int row) {
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
            matrices_turned(b, tile + (row + s * 16 + (lane & 15)) * STEP + (n + (lane >> 4)) * 16);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply(c[m][n], a[m], b[0], b[1]);
                multiply(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// Writes 16 rows, times a number, where they are below `end`.
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

// ---------------------------------------------------------------------------------------------------------------------
// Forward

namespace forward {
constexpr int M = D <= 64 && !MASK ? 2 : 1, WARPS = 8 / M, THREADS = WARPS * 32, BM = M * 16 * WARPS, BN = D <= 96 ? 64 : 32;
}

// A block has 128 queries; keys and values come by in tiles of BN, two of them in shared memory at a time.
extern "C" __global__ void __launch_bounds__(forward::THREADS) attention_forward(
    int heads, int queries, int keys, float scale, const Half* q, Heads sq, const Half* k, Heads sk, const Half* v, Heads sv,
    Half* out, Heads so, float* sums, const void* mask_at, MaskSteps sm
) {
    using namespace forward;
    extern __shared__ __align__(128) u8 space[];
    const u32 query_tile = shared_address(space), key_tiles = query_tile + BM * STEP, value_tiles = key_tiles + 2 * BN * STEP;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    // The longest rows first, so that the last blocks to finish are short.
    const int blocks = (queries + BM - 1) / BM, pair = blockIdx.x / blocks, first_query = (blocks - 1 - blockIdx.x % blocks) * BM;
    const int batch = pair / heads, head = pair % heads, first_row = first_query + warp * M * 16;
    q += batch * sq.batch + head * sq.head;
    k += batch * sk.batch + head * sk.head;
    v += batch * sv.batch + head * sv.head;
    out += batch * so.batch + head * so.head;
    const Mask mask(mask_at, sm, batch, head);
    const int seen = CAUSAL ? min(keys, first_query + BM) : keys, tiles = (seen + BN - 1) / BN;

    fetch_rows<BM, THREADS>(query_tile, q, sq.row, first_query, queries);
    fetch_rows<BN, THREADS>(key_tiles, k, sk.row, 0, keys);
    commit_fetches();
    fetch_rows<BN, THREADS>(value_tiles, v, sv.row, 0, keys);
    commit_fetches();

    float result[M][D / 8][4] = {}, most[M][2], total[M][2] = {};
#pragma unroll
    for (int m = 0; m < M; ++m) most[m][0] = most[m][1] = NOTHING;
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;

    for (int tile = 0; tile < tiles; ++tile) {
        const u32 key_tile = key_tiles + (tile & 1) * BN * STEP, value_tile = value_tiles + (tile & 1) * BN * STEP;
        await_fetches<1>();
        __syncthreads();
        if (tile + 1 < tiles) fetch_rows<BN, THREADS>(key_tiles + ((tile + 1) & 1) * BN * STEP, k, sk.row, (tile + 1) * BN, keys);
        commit_fetches();

        float score[M][BN / 8][4];
        each_with_each<M, BN>(score, query_tile, warp * M * 16, key_tile, 0);
        if (MASK || (tile + 1) * BN > keys || (CAUSAL && (tile + 1) * BN > first_row)) {
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int n = 0; n < BN / 8; ++n)
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int key = tile * BN + n * 8 + (lane & 3) * 2 + (c & 1), row = first_row + m * 16 + (lane >> 2) + (c >> 1) * 8;
                        score[m][n][c] = masked(score[m][n][c], log_scale, row, key, queries, keys, mask);
                    }
        }
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float largest = most[m][h];
#pragma unroll
                for (int n = 0; n < BN / 8; ++n) largest = fmaxf(largest, fmaxf(score[m][n][2 * h], score[m][n][2 * h + 1]));
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
                const float offset = (MASK && largest == NOTHING ? 0.0f : largest) * factor;
                const float shrink = power_of_two(__fmaf_rn(most[m][h], factor, -offset));
                most[m][h] = largest;
                float sum = 0;
#pragma unroll
                for (int n = 0; n < BN / 8; ++n)
#pragma unroll
                    for (int c = 2 * h; c < 2 * h + 2; ++c) {
                        score[m][n][c] = power_of_two(__fmaf_rn(score[m][n][c], factor, -offset));
                        sum += score[m][n][c];
                    }
                total[m][h] = __fmaf_rn(total[m][h], shrink, sum);
#pragma unroll
                for (int n = 0; n < D / 8; ++n) result[m][n][2 * h] *= shrink, result[m][n][2 * h + 1] *= shrink;
            }
        await_fetches<1>();
        __syncthreads();
        if (tile + 1 < tiles) fetch_rows<BN, THREADS>(value_tiles + ((tile + 1) & 1) * BN * STEP, v, sv.row, (tile + 1) * BN, keys);
        commit_fetches();
        weigh<M, BN>(result, score, value_tile, 0);
    }
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float sum = total[m][h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const int row = first_row + m * 16 + (lane >> 2) + h * 8;
            // A query that sees no key gives zeros.
            const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
            if ((lane & 3) == 0 && row < queries)
                sums[(i64)pair * queries + row] = sum == 0 ? NOTHING : __fmaf_rn(most[m][h] * factor, LN2, logf(sum));
#pragma unroll
            for (int n = 0; n < D / 8; ++n) result[m][n][2 * h] *= inverse, result[m][n][2 * h + 1] *= inverse;
        }
        put_rows(out, so.row, result[m], 1.0f, first_row + m * 16, queries);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Backward, in two kernels: each block has rows of its own, 16 a warp, and the rows of the other side come by

namespace backward {
constexpr int WARPS = D <= 64 ? 8 : 4, THREADS = WARPS * 32, OWN = WARPS * 16, OTHER = D <= 64 ? 64 : 32, PART = 32;
}

// Gradients of keys and values: a block has OWN keys.
extern "C" __global__ void __launch_bounds__(backward::THREADS) attention_backward_keys(
    int heads, int queries, int keys, int padded, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, const Half* gradient, Heads sg, const float* logarithms, const float* deltas,
    Half* dk, Heads sdk, Half* dv, Heads sdv, const void* mask_at, MaskSteps sm
) {
    using namespace backward;
    extern __shared__ __align__(128) u8 space[];
    const u32 key_tile = shared_address(space), value_tile = key_tile + OWN * STEP, query_tiles = value_tile + OWN * STEP;
    const u32 gradient_tiles = query_tiles + 2 * OTHER * STEP;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int blocks = (keys + OWN - 1) / OWN, pair = blockIdx.x / blocks, first_key = (blockIdx.x % blocks) * OWN;
    const int batch = pair / heads, head = pair % heads, first_row = first_key + warp * 16;
    q += batch * sq.batch + head * sq.head;
    k += batch * sk.batch + head * sk.head;
    v += batch * sv.batch + head * sv.head;
    gradient += batch * sg.batch + head * sg.head;
    logarithms += (i64)pair * padded;
    deltas += (i64)pair * padded;
    const Mask mask(mask_at, sm, batch, head);
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;

    const int tiles = (queries + OTHER - 1) / OTHER, first_tile = CAUSAL ? first_key / OTHER : 0;
    fetch_rows<OWN, THREADS>(key_tile, k, sk.row, first_key, keys);
    fetch_rows<OWN, THREADS>(value_tile, v, sv.row, first_key, keys);
    auto fetch_tile = [&](int tile) {
        fetch_rows<OTHER, THREADS>(query_tiles + (tile & 1) * OTHER * STEP, q, sq.row, tile * OTHER, queries);
        fetch_rows<OTHER, THREADS>(gradient_tiles + (tile & 1) * OTHER * STEP, gradient, sg.row, tile * OTHER, queries);
    };
    if (first_tile < tiles) fetch_tile(first_tile);
    commit_fetches();

    float key_result[1][D / 8][4] = {}, value_result[1][D / 8][4] = {};
    for (int tile = first_tile; tile < tiles; ++tile) {
        if (tile + 1 < tiles) fetch_tile(tile + 1);
        commit_fetches();
        await_fetches<1>();
        __syncthreads();
        const u32 query_tile = query_tiles + (tile & 1) * OTHER * STEP, gradient_tile = gradient_tiles + (tile & 1) * OTHER * STEP;
#pragma unroll 1
        for (int part = 0; part < OTHER; part += PART) {
            const int first = tile * OTHER + part;
            // Keys are rows here and queries columns: weights come out as the next products take them.
            float weight[1][PART / 8][4], slope[1][PART / 8][4];
            each_with_each<1, PART>(weight, key_tile, warp * 16, query_tile, part);
            if (MASK || first_row + 16 > keys || (CAUSAL && first_row + 15 > first)) {
#pragma unroll
                for (int n = 0; n < PART / 8; ++n)
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int query = first + n * 8 + (lane & 3) * 2 + (c & 1), key = first_row + (lane >> 2) + (c >> 1) * 8;
                        weight[0][n][c] = masked(weight[0][n][c], log_scale, query, key, queries, keys, mask);
                    }
            }
#pragma unroll
            for (int n = 0; n < PART / 8; ++n) {
                const float2 offset = *(const float2*)(logarithms + first + n * 8 + (lane & 3) * 2);
#pragma unroll
                for (int c = 0; c < 4; ++c) weight[0][n][c] = power_of_two(__fmaf_rn(weight[0][n][c], factor, c & 1 ? -offset.y : -offset.x));
            }
            weigh<1, PART>(value_result, weight, gradient_tile, part);
            each_with_each<1, PART>(slope, value_tile, warp * 16, gradient_tile, part);
#pragma unroll
            for (int n = 0; n < PART / 8; ++n) {
                const float2 delta = *(const float2*)(deltas + first + n * 8 + (lane & 3) * 2);
#pragma unroll
                for (int c = 0; c < 4; ++c) slope[0][n][c] = weight[0][n][c] * (slope[0][n][c] - (c & 1 ? delta.y : delta.x));
            }
            weigh<1, PART>(key_result, slope, query_tile, part);
        }
        __syncthreads();
    }
    put_rows(dk + batch * sdk.batch + head * sdk.head, sdk.row, key_result[0], scale, first_row, keys);
    put_rows(dv + batch * sdv.batch + head * sdv.head, sdv.row, value_result[0], 1.0f, first_row, keys);
}

// Gradients of queries: a block has OWN queries.
extern "C" __global__ void __launch_bounds__(backward::THREADS) attention_backward_queries(
    int heads, int queries, int keys, int padded, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, const Half* gradient, Heads sg, const float* logarithms, const float* deltas,
    Half* dq, Heads sdq, const void* mask_at, MaskSteps sm
) {
    using namespace backward;
    extern __shared__ __align__(128) u8 space[];
    const u32 query_tile = shared_address(space), gradient_tile = query_tile + OWN * STEP, key_tiles = gradient_tile + OWN * STEP;
    const u32 value_tiles = key_tiles + 2 * OTHER * STEP;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int blocks = (queries + OWN - 1) / OWN, pair = blockIdx.x / blocks, first_query = (blocks - 1 - blockIdx.x % blocks) * OWN;
    const int batch = pair / heads, head = pair % heads, first_row = first_query + warp * 16;
    q += batch * sq.batch + head * sq.head;
    k += batch * sk.batch + head * sk.head;
    v += batch * sv.batch + head * sv.head;
    gradient += batch * sg.batch + head * sg.head;
    const Mask mask(mask_at, sm, batch, head);
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;
    float offset[2], delta[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const i64 row = (i64)pair * padded + first_row + (lane >> 2) + h * 8;
        offset[h] = logarithms[row];
        delta[h] = deltas[row];
    }

    const int seen = CAUSAL ? min(keys, first_query + OWN) : keys, tiles = (seen + OTHER - 1) / OTHER;
    fetch_rows<OWN, THREADS>(query_tile, q, sq.row, first_query, queries);
    fetch_rows<OWN, THREADS>(gradient_tile, gradient, sg.row, first_query, queries);
    auto fetch_tile = [&](int tile) {
        fetch_rows<OTHER, THREADS>(key_tiles + (tile & 1) * OTHER * STEP, k, sk.row, tile * OTHER, keys);
        fetch_rows<OTHER, THREADS>(value_tiles + (tile & 1) * OTHER * STEP, v, sv.row, tile * OTHER, keys);
    };
    fetch_tile(0);
    commit_fetches();

    float result[1][D / 8][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) fetch_tile(tile + 1);
        commit_fetches();
        await_fetches<1>();
        __syncthreads();
        const u32 key_tile = key_tiles + (tile & 1) * OTHER * STEP, value_tile = value_tiles + (tile & 1) * OTHER * STEP;
#pragma unroll 1
        for (int part = 0; part < OTHER; part += PART) {
            const int first = tile * OTHER + part;
            float weight[1][PART / 8][4], slope[1][PART / 8][4];
            each_with_each<1, PART>(weight, query_tile, warp * 16, key_tile, part);
            each_with_each<1, PART>(slope, gradient_tile, warp * 16, value_tile, part);
            if (MASK || first + PART > keys || (CAUSAL && first + PART - 1 > first_row)) {
#pragma unroll
                for (int n = 0; n < PART / 8; ++n)
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int key = first + n * 8 + (lane & 3) * 2 + (c & 1), query = first_row + (lane >> 2) + (c >> 1) * 8;
                        weight[0][n][c] = masked(weight[0][n][c], log_scale, query, key, queries, keys, mask);
                    }
            }
#pragma unroll
            for (int n = 0; n < PART / 8; ++n)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    slope[0][n][c] = (slope[0][n][c] - delta[c >> 1]) * power_of_two(__fmaf_rn(weight[0][n][c], factor, -offset[c >> 1]));
            weigh<1, PART>(result, slope, key_tile, part);
        }
        __syncthreads();
    }
    put_rows(dq + batch * sdq.batch + head * sdq.head, sdq.row, result[0], scale, first_row, queries);
}
#else
// ---------------------------------------------------------------------------------------------------------------------
// Products of warpgroups (128 threads, 64 rows), with tiles in shared memory
//
// A tile is D / 64 panels of rows of 128 bytes; chunk c of 16 bytes of row r lies at place c ^ (r & 7), as the tensor
// cores read it. c[n] is a fragment of 8 columns: a thread has two neighbours of a row and two of the row 8 below.

__device__ inline u32 chunk_at(u32 panel, int row, int chunk) { return panel + row * 128 + ((chunk ^ (row & 7)) << 4); }
// Where a side of a product lies: eight rows take 1024 bytes; `across` is the step from one panel to the next, where a product
// needs more than one. The offset is apart so that neighbours differ by a constant.
__device__ inline u64 descriptor(u32 address, u32 offset, u32 across) {
    const u32 low = (address >> 4) + (offset >> 4) + (across >> 4 << 16), high = 1024 >> 4 | 1u << 30;
    return (u64)high << 32 | low;
}
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ inline void await_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
// Nothing that reads or writes these is moved across this.
template <int N> __device__ inline void hold(float (&c)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; ++n) asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}

#define TEXT_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TEXT_64 TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUM_4(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define SUM_32(n) SUM_4(n), SUM_4(n + 1), SUM_4(n + 2), SUM_4(n + 3), SUM_4(n + 4), SUM_4(n + 5), SUM_4(n + 6), SUM_4(n + 7)
#define SUM_64(n) SUM_32(n), SUM_32(n + 8)

// c (+)= a b, 16 of the inner dimension; `add` false: c is overwritten. TURNED: the inner dimension of that side goes down
// the rows of its tile instead of along them.
template <int TURNED_A, int TURNED_B> __device__ inline void multiply(float (&c)[8][4], u64 a, u64 b, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." HALF "." HALF
                 " {" TEXT_32 "}, %32, %33, p, 1, 1, %35, %36; }"
                 : SUM_32(0) : "l"(a), "l"(b), "r"(add), "n"(TURNED_A), "n"(TURNED_B));
}
template <int TURNED_A, int TURNED_B> __device__ inline void multiply(float (&c)[16][4], u64 a, u64 b, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." HALF "." HALF
                 " {" TEXT_64 "}, %64, %65, p, 1, 1, %67, %68; }"
                 : SUM_64(0) : "l"(a), "l"(b), "r"(add), "n"(TURNED_A), "n"(TURNED_B));
}
// The left side in registers, the right one turned.
__device__ inline void multiply(float (&c)[8][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." HALF "." HALF " {" TEXT_32 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : SUM_32(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ inline void multiply(float (&c)[16][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." HALF "." HALF " {" TEXT_64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : SUM_64(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// c = 64 rows of a tile, times the N rows of another, each with each. `left` and `right` say how many rows the tiles have.
template <int N> __device__ inline void each_with_each(float (&c)[N][4], u32 left_at, int left, u32 right_at, int right) {
#pragma unroll
    for (int s = 0; s < D / 16; ++s)
        multiply<0, 0>(c, descriptor(left_at, (s >> 2) * left * 128 + (s & 3) * 32, 16), descriptor(right_at, (s >> 2) * right * 128 + (s & 3) * 32, 16), s > 0);
}
// c += weights (64 rows, 16 K columns) times the 16 K rows of a tile.
template <int K> __device__ inline void weigh(float (&c)[D / 8][4], const u32 (&weights)[K][4], u32 tile) {
#pragma unroll
    for (int s = 0; s < K; ++s) multiply(c, weights[s], descriptor(tile, s * 16 * 128, K * 16 * 128));
}
// Numbers of a product as the left side of the next one.
template <int N> __device__ inline void pack(u32 (&to)[N / 2][4], const float (&c)[N][4]) {
#pragma unroll
    for (int s = 0; s < N / 2; ++s) {
        to[s][0] = two(c[2 * s][0], c[2 * s][1]);
        to[s][1] = two(c[2 * s][2], c[2 * s][3]);
        to[s][2] = two(c[2 * s + 1][0], c[2 * s + 1][1]);
        to[s][3] = two(c[2 * s + 1][2], c[2 * s + 1][3]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Hand-over between those who fill tiles and those who use them

__device__ inline void barrier_make(u32 barrier, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
__device__ inline void barrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
__device__ inline bool barrier_passed(u32 barrier, u32 phase) {
    u32 passed;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(passed) : "r"(barrier), "r"(phase) : "memory");
    return passed;
}
__device__ inline void barrier_await(u32 barrier, u32 phase) { while (!barrier_passed(barrier, phase)) {} }
// One arrival a warp, when all of its threads are done.
__device__ inline void warp_arrive(u32 barrier) {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) barrier_arrive(barrier);
}
// What ordinary instructions wrote into shared memory is seen by tensor cores and bulk copies. (Without `.shared::cta` this
// would wait for everything on its way to device memory too.)
__device__ inline void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// The same of device memory.
__device__ inline void publish_far() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
__device__ inline void meet(int which, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory"); }
__device__ inline void pass(int which, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(which), "r"(threads) : "memory"); }
template <int N> __device__ inline void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ inline void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// The copying side: each thread tells that its part of a tile is there once it is, which it looks for when it would
// otherwise wait, or after it has asked for the next tile.
struct Copies {
    u32 pending = 0;
    __device__ void before(u32 empty, u32 phase) {
        if (barrier_passed(empty, phase)) return;
        finish();
        barrier_await(empty, phase);
    }
    __device__ void after(u32 full) {
        commit_fetches();
        if (pending) {
            await_fetches<1>();
            publish();
            barrier_arrive(pending);
        }
        pending = full;
    }
    __device__ void finish() {
        if (!pending) return;
        await_fetches<0>();
        publish();
        barrier_arrive(pending);
        pending = 0;
    }
};
// Rows that go into tiles one after the other, by THREADS threads, eight of which take a row of a panel; rows from `end` on
// are zeros.
template <int THREADS> struct Rows {
    static constexpr int DOWN = THREADS / 8;
    const Half* at;
    i64 down;
    int left;
    u32 place;
    __device__ Rows(const Half* from, i64 step, int first, int end, int thread) {
        const int row = thread >> 3, chunk = thread & 7;
        at = from + (first + row) * step + chunk * 8;
        down = DOWN * step;
        left = end - first - row;
        place = chunk_at(0, row, chunk);
    }
    // The next COUNT rows, into a tile of ALL rows.
    template <int COUNT, int ALL> __device__ void fetch_into(u32 tile) {
#pragma unroll
        for (int i = 0; i < COUNT / DOWN; ++i) {
#pragma unroll
            for (int panel = 0; panel < D / 64; ++panel) fetch(tile + place + panel * ALL * 128 + i * DOWN * 128, at + panel * 64, i * DOWN < left);
            at += down;
            // One sum after the other: the compiler would keep every multiple of `down` in registers, of which there are few.
            asm volatile("" : "+l"(at));
        }
        left -= COUNT;
    }
};

// Writes the 64 rows of a warpgroup, times a number, through its own part of a tile of `rows` rows, which nobody uses any
// more: 16 bytes a thread, neighbours side by side.
__device__ inline void put_rows(Half* to, i64 step, const float (&c)[D / 8][4], float factor, u32 tile, int rows, int first, int end) {
    const int lane = threadIdx.x & 31, warp_row = (threadIdx.x >> 5 & 3) * 16;
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        const u32 at = chunk_at(tile + (n >> 3) * rows * 128, warp_row + (lane & 15), (n & 7) + (lane >> 4));
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                     "r"(two(c[n][0] * factor, c[n][1] * factor)), "r"(two(c[n][2] * factor, c[n][3] * factor)),
                     "r"(two(c[n + 1][0] * factor, c[n + 1][1] * factor)), "r"(two(c[n + 1][2] * factor, c[n + 1][3] * factor)) : "memory");
    }
    __syncwarp();
    constexpr int CHUNKS = D / 8, ROWS = 32 / CHUNKS;
#pragma unroll
    for (int i = 0; i < 16 / ROWS; ++i) {
        const int row = warp_row + i * ROWS + lane / CHUNKS, chunk = lane % CHUNKS;
        uint4 x;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(chunk_at(tile + (chunk >> 3) * rows * 128, row, chunk & 7)) : "memory");
        if (first + row < end) *(uint4*)(to + (first + row) * step + chunk * 8) = x;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Forward

namespace forward {
constexpr int GROUPS = D == 64 && !MASK ? 3 : 2, THREADS = (GROUPS + 1) * 128, BM = GROUPS * 64, BN = 128, STAGES = D == 64 ? 3 : 2;
constexpr int TILE = BN * D * 2, OWN = 64 * D * 2;
// Keys and values that stay in the cache between a multiprocessor and device memory.
constexpr int CACHED = 32 << 20;
}

// The pieces of work, BM queries each, in the order in which they are taken: of as many heads as the cache holds the keys of,
// those with the most keys first, so that what is done last is short. Blocks take them to and fro: a block that had the
// longest of a round has the shortest of the next one.
struct Work {
    int pair, first_query, tiles;
    __device__ bool find(int round, int pairs, int queries, int keys) {
        using namespace forward;
        const int at = round * gridDim.x + (round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        const int blocks = (queries + BM - 1) / BM;
        if (at >= blocks * pairs) return false;
        const int together = max(1, min(pairs, (int)(CACHED / ((i64)keys * D * 4)))), first = at / (together * blocks) * together;
        const int rest = at - first * blocks, width = min(together, pairs - first);
        pair = first + rest % width;
        first_query = (blocks - 1 - rest / width) * BM;
        const int seen = CAUSAL ? min(keys, first_query + BM) : keys;
        tiles = (seen + BN - 1) / BN;
        return true;
    }
};

// One block a multiprocessor, which takes up pieces of work: three or two warpgroups have 64 queries each, and one more copies
// keys and values, those of the next piece too while the others finish with one.
extern "C" __global__ void __launch_bounds__(forward::THREADS, 1) attention_forward(
    int heads, int queries, int keys, float scale, const Half* q, Heads sq, const Half* k, Heads sk, const Half* v, Heads sv,
    Half* out, Heads so, float* sums, const void* mask_at, MaskSteps sm, int pairs
) {
    using namespace forward;
    extern __shared__ u8 space[];
    const u32 query_tiles = (shared_address(space) + 1023) & ~1023u, out_tiles = query_tiles + GROUPS * OWN;
    const u32 key_tiles = out_tiles + GROUPS * OWN, value_tiles = key_tiles + STAGES * TILE;
    const u32 keys_full = value_tiles + STAGES * TILE, keys_empty = keys_full + STAGES * 8, values_full = keys_empty + STAGES * 8, values_empty = values_full + STAGES * 8;
    const int group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0), lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, thread = threadIdx.x & 127;
    const int rounds = ((queries + BM - 1) / BM * pairs + gridDim.x - 1) / gridDim.x;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_make(keys_full + s * 8, 128);
            barrier_make(keys_empty + s * 8, GROUPS * 4);
            barrier_make(values_full + s * 8, 128);
            barrier_make(values_empty + s * 8, GROUPS * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    // Tiles are counted over all pieces of work.
    int done = 0;
    if (group == GROUPS) {
        fewer_registers<GROUPS == 3 ? 32 : 40>();
        Copies copies;
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) {
            Work work;
            if (!work.find(round, pairs, queries, keys)) break;
            const int batch = work.pair / heads, head = work.pair % heads;
            Rows<128> key_rows(k + batch * sk.batch + head * sk.head, sk.row, 0, keys, thread), value_rows(v + batch * sv.batch + head * sv.head, sv.row, 0, keys, thread);
            // The keys of a tile come before the values of the one before it, as they are needed.
#pragma unroll 1
            for (int tile = 0; tile <= work.tiles; ++tile) {
                if (tile < work.tiles) {
                    const int count = done + tile, stage = count % STAGES;
                    copies.before(keys_empty + stage * 8, (count / STAGES & 1) ^ 1);
                    key_rows.fetch_into<BN, BN>(key_tiles + stage * TILE);
                    copies.after(keys_full + stage * 8);
                }
                if (tile > 0) {
                    const int count = done + tile - 1, stage = count % STAGES;
                    copies.before(values_empty + stage * 8, (count / STAGES & 1) ^ 1);
                    value_rows.fetch_into<BN, BN>(value_tiles + stage * TILE);
                    copies.after(values_full + stage * 8);
                }
            }
            done += work.tiles;
        }
        copies.finish();
    } else {
        more_registers<GROUPS == 3 ? 160 : 232>();
        const u32 own_queries = query_tiles + group * OWN, own_out = out_tiles + group * OWN;
        const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;
        // A warpgroup copies its own queries.
        auto fetch_queries = [&](const Work& work) {
            const int batch = work.pair / heads, head = work.pair % heads;
            Rows<128>(q + batch * sq.batch + head * sq.head, sq.row, work.first_query + group * 64, queries, thread).fetch_into<64, 64>(own_queries);
            commit_fetches();
        };
        // Warpgroups take turns at starting products, so that while some compute weights, others keep the tensor cores busy.
        auto take_turn = [&]() { meet(8 + group, 256); };
        auto pass_turn = [&]() { pass(8 + (group + 1) % GROUPS, 256); };
        if (group == GROUPS - 1) pass_turn();

        Work work;
        if (work.find(0, pairs, queries, keys)) fetch_queries(work);
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) {
            if (!work.find(round, pairs, queries, keys)) break;
            const int batch = work.pair / heads, head = work.pair % heads, tiles = work.tiles;
            const int first_row = work.first_query + group * 64, row0 = first_row + warp * 16 + (lane >> 2);
            // This warpgroup's rows end before the block's do.
            const int own_tiles = first_row >= queries ? 0 : CAUSAL ? min(tiles, (first_row + 64 + BN - 1) / BN) : tiles;
            const Mask mask(mask_at, sm, batch, head);
            float result[D / 8][4] = {}, score[BN / 8][4], most[2] = {NOTHING, NOTHING}, total[2] = {}, shrink[2];
            u32 weight[BN / 16][4];
            await_fetches<0>();
            publish();
            meet(1 + group, 128);

            // From scores to weights; what came before shrinks by as much as the largest score grew.
            auto soften = [&](int tile) {
                if (MASK || (tile + 1) * BN > keys || (CAUSAL && (tile + 1) * BN > first_row)) {
#pragma unroll
                    for (int n = 0; n < BN / 8; ++n)
#pragma unroll
                        for (int c = 0; c < 4; ++c)
                            score[n][c] = masked(score[n][c], log_scale, row0 + (c >> 1) * 8, tile * BN + n * 8 + (lane & 3) * 2 + (c & 1), queries, keys, mask);
                }
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float largest = most[h];
#pragma unroll
                    for (int n = 0; n < BN / 8; ++n) largest = fmaxf(largest, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
                    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
                    const float offset = (MASK && largest == NOTHING ? 0.0f : largest) * factor;
                    shrink[h] = power_of_two(__fmaf_rn(most[h], factor, -offset));
                    most[h] = largest;
                    float sum = 0;
#pragma unroll
                    for (int n = 0; n < BN / 8; ++n)
#pragma unroll
                        for (int c = 2 * h; c < 2 * h + 2; ++c) {
                            score[n][c] = power_of_two(__fmaf_rn(score[n][c], factor, -offset));
                            sum += score[n][c];
                        }
                    total[h] = __fmaf_rn(total[h], shrink[h], sum);
                }
            };

            if (own_tiles > 0) {
                const int first_stage = done % STAGES;
                barrier_await(keys_full + first_stage * 8, done / STAGES & 1);
                begin_products();
                each_with_each(score, own_queries, 64, key_tiles + first_stage * TILE, BN);
                commit_products();
                await_products<0>();
                hold(score);
                warp_arrive(keys_empty + first_stage * 8);
                soften(0);
                pack(weight, score);
                // The next scores are computed while these weights are at work.
#pragma unroll 1
                for (int tile = 1; tile < own_tiles; ++tile) {
                    const int count = done + tile, stage = count % STAGES, before = (count - 1) % STAGES;
                    barrier_await(keys_full + stage * 8, count / STAGES & 1);
                    take_turn();
                    hold(score);
                    begin_products();
                    each_with_each(score, own_queries, 64, key_tiles + stage * TILE, BN);
                    commit_products();
                    barrier_await(values_full + before * 8, (count - 1) / STAGES & 1);
                    hold(result);
                    begin_products();
                    weigh(result, weight, value_tiles + before * TILE);
                    commit_products();
                    pass_turn();
                    await_products<1>();
                    hold(score);
                    warp_arrive(keys_empty + stage * 8);
                    soften(tile);
                    await_products<0>();
                    hold(result);
                    warp_arrive(values_empty + before * 8);
#pragma unroll
                    for (int n = 0; n < D / 8; ++n)
#pragma unroll
                        for (int c = 0; c < 4; ++c) result[n][c] *= shrink[c >> 1];
                    pack(weight, score);
                }
                const int last = done + own_tiles - 1, last_stage = last % STAGES;
                barrier_await(values_full + last_stage * 8, last / STAGES & 1);
                hold(result);
                begin_products();
                weigh(result, weight, value_tiles + last_stage * TILE);
                commit_products();
                await_products<0>();
                hold(result);
                warp_arrive(values_empty + last_stage * 8);
            }
            // All warps of the group are done with its queries.
            meet(1 + group, 128);
            if (Work next; next.find(round + 1, pairs, queries, keys)) fetch_queries(next);
            // Tiles that only other warpgroups look at.
#pragma unroll 1
            for (int tile = own_tiles; tile < tiles; ++tile) {
                const int count = done + tile, stage = count % STAGES;
                if (tile > 0) take_turn(), pass_turn();
                barrier_await(keys_full + stage * 8, count / STAGES & 1);
                warp_arrive(keys_empty + stage * 8);
                barrier_await(values_full + stage * 8, count / STAGES & 1);
                warp_arrive(values_empty + stage * 8);
            }
            done += tiles;
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float sum = total[h];
                sum += __shfl_xor_sync(0xffffffffu, sum, 1);
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                const int row = row0 + h * 8;
                // A query that sees no key gives zeros.
                const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
                if ((lane & 3) == 0 && row < queries)
                    sums[(i64)work.pair * queries + row] = sum == 0 ? NOTHING : __fmaf_rn(most[h] * factor, LN2, logf(sum));
#pragma unroll
                for (int n = 0; n < D / 8; ++n) result[n][2 * h] *= inverse, result[n][2 * h + 1] *= inverse;
            }
            // Every warp has a part of its own of that tile.
            __syncwarp();
            put_rows(out + batch * so.batch + head * so.head, so.row, result, 1.0f, own_out, 64, first_row, queries);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Backward
//
// A block has 128 keys, 64 a warpgroup, and goes over the tiles of queries that see them. It sums the gradients of its keys
// and values in registers. Its part of the gradients of the queries goes to a workspace, where the blocks of a head add
// theirs one after the other: those of later keys first, so that, with CAUSAL, blocks that begin together never wait for
// each other: each is at its own tile of queries.
//
// There is one block of threads a multiprocessor, and it takes such blocks of keys, the next that nobody has taken, until none
// is left. A block of keys waits only for ones taken earlier, so somebody always gets on.

namespace backward {
constexpr int GROUPS = 2, THREADS = 384, BN = 128, BM = D == 64 ? 128 : 64, STAGES = 2;
constexpr int OWN = BN * D * 2, TILE = BM * D * 2, SLOPES = BN * BM * 2, SHARE = BM * D * 4;
// Threads that copy tiles, and the one that sends the gradients of queries.
constexpr int COPYING = 64, SENDER = 64;
}

extern "C" __global__ void __launch_bounds__(backward::THREADS, 1) attention_backward(
    int heads, int queries, int keys, int padded, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, const Half* gradient, Heads sg, const float* logarithms, const float* deltas,
    Half* dk, Heads sdk, Half* dv, Heads sdv, float* shares, int* turns, const void* mask_at, MaskSteps sm, int pairs
) {
    using namespace backward;
    extern __shared__ u8 space[];
    const u32 key_tile = (shared_address(space) + 1023) & ~1023u, value_tile = key_tile + OWN;
    const u32 query_tiles = value_tile + OWN, gradient_tiles = query_tiles + STAGES * TILE, slopes = gradient_tiles + STAGES * TILE;
    const u32 share = slopes + 2 * SLOPES, rows_at = share + SHARE;
    const u32 full = rows_at + STAGES * BM * 8, empty = full + STAGES * 8, slopes_full = empty + STAGES * 8, slopes_empty = slopes_full + 16, share_full = slopes_empty + 16, share_empty = share_full + 8;
    const int group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0), lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    const u32 taken_full = share_empty + 8, taken_empty = taken_full + 16, taken_at = taken_empty + 16;
    const int blocks = (keys + BN - 1) / BN, tiles = (queries + BM - 1) / BM, all = blocks * pairs;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_make(full + s * 8, COPYING);
            barrier_make(empty + s * 8, GROUPS * 4);
        }
        for (int s = 0; s < 4; ++s) barrier_make(slopes_full + s * 8, GROUPS * 4);
        barrier_make(share_full, GROUPS * 4);
        barrier_make(share_empty, 1);
        for (int s = 0; s < 2; ++s) {
            barrier_make(taken_full + s * 8, 1);
            // All warps that work, and the sender.
            barrier_make(taken_empty + s * 8, GROUPS * 4 + COPYING / 32 + 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    // The block of keys that comes `count`th here. Everybody looks it up once.
    auto look_up = [&](int count) {
        barrier_await(taken_full + (count & 1) * 8, count >> 1 & 1);
        int item;
        asm volatile("ld.shared.s32 %0, [%1];" : "=r"(item) : "r"(taken_at + (count & 1) * 4) : "memory");
        return item;
    };
    // Of a head, the later keys come first.
    auto block_of = [&](int item) { return blocks - 1 - item % blocks; };
    auto first_tile_of = [&](int block) { return CAUSAL ? min(tiles, block * BN / BM) : 0; };

    if (group == GROUPS) {
        fewer_registers<24>();
        const int thread = threadIdx.x & 127;
        if (thread < COPYING) {
            Copies copies;
            int turn = 0;
#pragma unroll 1
            for (int count = 0;; ++count) {
                if (thread == 0) {
                    barrier_await(taken_empty + (count & 1) * 8, (count >> 1 & 1) ^ 1);
                    asm volatile("st.shared.s32 [%0], %1;" ::"r"(taken_at + (count & 1) * 4), "r"(atomicAdd(turns + (i64)pairs * tiles, 1)) : "memory");
                    barrier_arrive(taken_full + (count & 1) * 8);
                }
                __syncwarp();
                const int item = look_up(count);
                warp_arrive(taken_empty + (count & 1) * 8);
                if (item >= all) break;
                const int pair = item / blocks, batch = pair / heads, head = pair % heads, first_tile = first_tile_of(block_of(item));
                Rows<COPYING> query_rows(q + batch * sq.batch + head * sq.head, sq.row, first_tile * BM, queries, thread);
                Rows<COPYING> gradient_rows(gradient + batch * sg.batch + head * sg.head, sg.row, first_tile * BM, queries, thread);
                // Each thread copies four queries' numbers of one kind, where a tile has that many.
                const float* numbers = (thread < BM / 4 ? logarithms + thread * 4 : deltas + (thread - BM / 4) * 4) + (i64)pair * padded + first_tile * BM;
#pragma unroll 1
                for (int tile = first_tile; tile < tiles; ++tile, ++turn, numbers += BM) {
                    const int stage = turn % STAGES;
                    copies.before(empty + stage * 8, (turn / STAGES & 1) ^ 1);
                    query_rows.fetch_into<BM, BM>(query_tiles + stage * TILE);
                    gradient_rows.fetch_into<BM, BM>(gradient_tiles + stage * TILE);
                    if (thread < BM / 2) fetch(rows_at + stage * BM * 8 + thread * 16, numbers, true);
                    copies.after(full + stage * 8);
                }
                copies.finish();
            }
        } else if (thread == SENDER) {
            int phase = 0;
#pragma unroll 1
            for (int count = 0;; ++count) {
                const int item = look_up(count);
                barrier_arrive(taken_empty + (count & 1) * 8);
                if (item >= all) break;
                const int pair = item / blocks, block = block_of(item);
#pragma unroll 1
                for (int tile = first_tile_of(block); tile < tiles; ++tile, phase ^= 1) {
                    // How many blocks come before this one.
                    const int before = (CAUSAL ? min(blocks - 1, (tile * BM + BM - 1) / BN) : blocks - 1) - block;
                    int* turn = turns + (i64)pair * tiles + tile;
                    float* to = shares + ((i64)pair * tiles + tile) * (BM * D);
                    barrier_await(share_full, phase);
                    if (before == 0) {
                        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(share), "n"(SHARE) : "memory");
                    } else {
                        int now;
                        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory"); while (now != before);
                        publish_far();
                        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(share), "n"(SHARE) : "memory");
                    }
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                    barrier_arrive(share_empty);
                    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
                    publish_far();
                    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(before + 1) : "memory");
                }
            }
        }
    } else {
        more_registers<240>();
        const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;
        // Keys and values these copy themselves.
        auto fetch_own = [&](int item) {
            if (item >= all) return;
            const int pair = item / blocks, batch = pair / heads, head = pair % heads, first_key = block_of(item) * BN;
            Rows<GROUPS * 128>(k + batch * sk.batch + head * sk.head, sk.row, first_key, keys, threadIdx.x).fetch_into<BN, BN>(key_tile);
            Rows<GROUPS * 128>(v + batch * sv.batch + head * sv.head, sv.row, first_key, keys, threadIdx.x).fetch_into<BN, BN>(value_tile);
            commit_fetches();
        };

        // The gradients of a tile's queries need the slopes of all 128 keys, so each warpgroup leaves its own in shared memory,
        // and the product is begun a tile later: warpgroups need not be at the same place, and the tensor cores work for one
        // while the other computes weights. Each has half of the product: 64 queries, or 64 columns.
        auto begin_share = [&](float (&query_share)[8][4], int turn, bool wanted) {
            const u32 slope_tile = slopes + (turn & 1) * SLOPES;
            const u32 left = slope_tile + (BM == 128 ? group * BN * 128 : 0), right = key_tile + (BM == 128 ? 0 : group * BN * 128);
            if (wanted) barrier_await(slopes_full + (turn & 1) * 8, turn >> 1 & 1);
            begin_products();
#pragma unroll
            for (int s = 0; s < BN / 16; ++s)
                multiply<1, 1>(query_share, descriptor(left, s * 2048, BN * 128), descriptor(right, s * 2048, BN * 128), s > 0);
            commit_products();
        };
        auto send_share = [&](float (&query_share)[8][4], int turn) {
            barrier_await(share_empty, (turn & 1) ^ 1);
#pragma unroll
            for (int n = 0; n < 8; ++n)
                asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(share + group * (SHARE / 2) + (n * 128 + (threadIdx.x & 127)) * 16),
                             "f"(query_share[n][0]), "f"(query_share[n][1]), "f"(query_share[n][2]), "f"(query_share[n][3]) : "memory");
            publish();
            warp_arrive(share_full);
        };

        int turn = 0, item = look_up(0);
        warp_arrive(taken_empty);
        fetch_own(item);
#pragma unroll 1
        for (int count = 1;; ++count) {
            await_fetches<0>();
            publish();
            meet(1, GROUPS * 128);
            if (item >= all) break;
            const int pair = item / blocks, batch = pair / heads, head = pair % heads, block = block_of(item), first_tile = first_tile_of(block);
            const int own_key = block * BN + group * 64, key0 = own_key + warp * 16 + (lane >> 2);
            const Mask mask(mask_at, sm, batch, head);
            float key_result[D / 8][4] = {}, value_result[D / 8][4] = {};
#pragma unroll 1
            for (int tile = first_tile; tile < tiles; ++tile, ++turn) {
                const int stage = turn % STAGES;
                const u32 query_tile = query_tiles + stage * TILE, gradient_tile = gradient_tiles + stage * TILE, slope_tile = slopes + (turn & 1) * SLOPES;
                const u32 numbers = rows_at + stage * BM * 8 + (lane & 3) * 8;
                // Keys are rows here and queries columns: weights come out as the next products take them.
                float weight[BM / 8][4], slope[BM / 8][4];
                barrier_await(full + stage * 8, turn / STAGES & 1);
                begin_products();
                each_with_each(weight, key_tile + group * 64 * 128, BN, query_tile, BM);
                commit_products();
                each_with_each(slope, value_tile + group * 64 * 128, BN, gradient_tile, BM);
                commit_products();
                await_products<1>();
                hold(weight);
                if (MASK || own_key + 64 > keys || (CAUSAL && own_key + 63 > tile * BM)) {
#pragma unroll
                    for (int n = 0; n < BM / 8; ++n)
#pragma unroll
                        for (int c = 0; c < 4; ++c)
                            weight[n][c] = masked(weight[n][c], log_scale, tile * BM + n * 8 + (lane & 3) * 2 + (c & 1), key0 + (c >> 1) * 8, queries, keys, mask);
                }
#pragma unroll
                for (int n = 0; n < BM / 8; ++n) {
                    float2 offset;
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(offset.x), "=f"(offset.y) : "r"(numbers + n * 32) : "memory");
#pragma unroll
                    for (int c = 0; c < 4; ++c) weight[n][c] = power_of_two(__fmaf_rn(weight[n][c], factor, c & 1 ? -offset.y : -offset.x));
                }
                await_products<0>();
                hold(slope);
#pragma unroll
                for (int n = 0; n < BM / 8; ++n) {
                    float2 delta;
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(delta.x), "=f"(delta.y) : "r"(numbers + BM * 4 + n * 32) : "memory");
#pragma unroll
                    for (int c = 0; c < 4; ++c) slope[n][c] = weight[n][c] * (slope[n][c] - (c & 1 ? delta.y : delta.x));
                }
                u32 weights[BM / 16][4], slope_pairs[BM / 16][4];
                pack(weights, weight);
                pack(slope_pairs, slope);
                hold(value_result);
                begin_products();
                weigh(value_result, weights, gradient_tile);
                commit_products();
                // Keys down and queries across. There are two such tiles: the one before may still be read.
                barrier_await(slopes_empty + (turn & 1) * 8, (turn >> 1 & 1) ^ 1);
#pragma unroll
                for (int s = 0; s < BM / 16; ++s) {
                    const int row = group * 64 + warp * 16 + (lane & 15), chunk = s * 2 + (lane >> 4);
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(chunk_at(slope_tile + (chunk >> 3) * BN * 128, row, chunk & 7)),
                                 "r"(slope_pairs[s][0]), "r"(slope_pairs[s][1]), "r"(slope_pairs[s][2]), "r"(slope_pairs[s][3]) : "memory");
                }
                publish();
                warp_arrive(slopes_full + (turn & 1) * 8);
                hold(key_result);
                begin_products();
                weigh(key_result, slope_pairs, query_tile);
                commit_products();
                float query_share[8][4];
                // Before the first tile this is a product of nothing in particular, and goes nowhere.
                begin_share(query_share, turn - 1, tile > first_tile);
                await_products<1>();
                hold(value_result);
                hold(key_result);
                warp_arrive(empty + stage * 8);
                await_products<0>();
                hold(query_share);
                if (tile > first_tile) {
                    warp_arrive(slopes_empty + ((turn - 1) & 1) * 8);
                    send_share(query_share, turn - 1);
                }
            }
            if (first_tile < tiles) {
                float query_share[8][4];
                begin_share(query_share, turn - 1, true);
                await_products<0>();
                hold(query_share);
                warp_arrive(slopes_empty + ((turn - 1) & 1) * 8);
                send_share(query_share, turn - 1);
            }
            // Nobody reads keys, values and slopes any more: the next keys and values can come, and the results go through where
            // the slopes were.
            meet(1, GROUPS * 128);
            item = look_up(count);
            warp_arrive(taken_empty + (count & 1) * 8);
            fetch_own(item);
            const u32 through = slopes + group * SLOPES;
            put_rows(dk + batch * sdk.batch + head * sdk.head, sdk.row, key_result, scale, through, 64, own_key, keys);
            __syncwarp();
            put_rows(dv + batch * sdv.batch + head * sdv.head, sdv.row, value_result, 1.0f, through, 64, own_key, keys);
        }
    }
}

// The gradients of the queries out of the workspace, where they lie as the threads of the products had them.
extern "C" __global__ void __launch_bounds__(256) attention_backward_finish(
    int heads, int queries, float scale, const float* shares, Half* dq, Heads sdq
) {
    using namespace backward;
    // A thread takes 8 columns of two rows, 8 apart: the numbers of four neighbours of a warp.
    constexpr int CHUNKS = D / 8, WORK = BM / 2 * CHUNKS, BLOCKS = WORK / 256;
    const int tiles = (queries + BM - 1) / BM;
    const int i = (blockIdx.x % BLOCKS) * 256 + threadIdx.x, chunk = i % CHUNKS, low = i / CHUNKS;
    const int tile = blockIdx.x / BLOCKS % tiles, pair = blockIdx.x / BLOCKS / tiles;
    const int row = low / 8 * 16 + low % 8;
    const int group = BM == 128 ? row / 64 : chunk / 8, thread = (row % 64) / 16 * 32 + row % 8 * 4;
    const float4* from = (const float4*)(shares + ((i64)pair * tiles + tile) * (BM * D) + group * (BM * D / 2)) + (chunk % 8) * 128 + thread;
    uint4 high, below;
    u32* up = &high.x;
    u32* down = &below.x;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float4 x = from[j];
        up[j] = two(x.x * scale, x.y * scale);
        down[j] = two(x.z * scale, x.w * scale);
    }
    dq += pair / heads * sdq.batch + pair % heads * sdq.head + chunk * 8;
    const int query = tile * BM + row;
    if (query < queries) *(uint4*)(dq + query * sdq.row) = high;
    if (query + 8 < queries) *(uint4*)(dq + (query + 8) * sdq.row) = below;
}
#endif
