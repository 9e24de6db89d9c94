// Attention in half precision on tensor cores, forward and backward, in tiles that never leave the chip.
//
// This file has what all kernels share, and comes first, but for heads.cu. After it come
//   for sm_80 and later, and every D: warps.cu, forward.cu, backward.cu
//   for sm_90a, and D of 64 or 128: warpgroups.cu, handover.cu, hopper_forward.cu, hopper_backward.cu
//
// Macros given before this source:
//   BF16    1: bf16 elements, 0: f16
//   D       the size of a head: 16, 32, 64, 96 or 128
//   CAUSAL  1: query i sees keys 0..=i
//   MASK    0: none; 1: f32 numbers added to the scaled scores;
//           2: one byte a pair, and only pairs whose byte is not 0 are seen
//
// Every number is a function of the inputs alone: no floating atomics race, so two runs give the same bits.
//
// Words used throughout:
//   pair    a batch and a head of it, as a number (of a query and a key only where masks are the subject)
//   score   the product of a query and a key
//   weight  what a score becomes: forward 2^(exponent), to be divided by the row's sum; backward, already divided
//   slope   the derivative by a scaled score
//   delta   the sum of gradient times result of a query
//
// Products leave their numbers in fragments of 8 columns, c[n][4], n counting columns in eights: a thread has columns
// (lane & 3) * 2 and the next, of row lane >> 2 in c[n][0] and c[n][1], and of the row 8 below in c[n][2] and c[n][3].
// Four neighbours of a warp thus share a row. Where `h` counts rows, it is 0 for the upper and 1 for the lower one.

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

// ---------------------------------------------------------------------------------------------------------------------
// Single instructions

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
__device__ inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Copies 16 bytes into shared memory, or zeros where there is nothing to copy.
__device__ inline void fetch(u32 to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ inline void commit_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most LEFT of the groups committed are still on their way.
template <int LEFT> __device__ inline void await_fetches() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// ---------------------------------------------------------------------------------------------------------------------
// Which keys a query sees

// What a pair of a query and a key adds to its exponent of base 2.
struct Mask {
    const void* at;
    i64 row, column;
    __device__ Mask(const void* mask, const MaskSteps& steps, int batch, int head)
        : row(steps.row), column(steps.column) {
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

// What the rows of a fragment are; its columns are the other side.
enum Side { ROWS_ARE_QUERIES, ROWS_ARE_KEYS };

// Masks the scores of a warp's 16 rows from `first_row`, and of 8 N columns from `first_column`.
template <Side ROWS, int N> __device__ inline void mask_scores(
    float (&score)[N][4], float factor, int first_row, int first_column, int queries, int keys, const Mask& mask
) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int column = first_column + n * 8 + (lane & 3) * 2 + (c & 1);
            const int row = first_row + (lane >> 2) + (c >> 1) * 8;
            const int query = ROWS == ROWS_ARE_QUERIES ? row : column, key = ROWS == ROWS_ARE_QUERIES ? column : row;
            score[n][c] = masked(score[n][c], factor, query, key, queries, keys, mask);
        }
}

// ---------------------------------------------------------------------------------------------------------------------
// Softmax of rows whose keys come in tiles

// Turns the scores of row `h` into weights, relative to the largest score so far, `most`, and adds them to this
// thread's `total`. Returns the number by which whatever was weighted before shrinks, now that `most` may have grown.
template <int N> __device__ inline float soften(float (&score)[N][4], int h, float factor, float& most, float& total) {
    float largest = most;
#pragma unroll
    for (int n = 0; n < N; ++n) largest = fmaxf(largest, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    // A row that saw nothing yet has no largest score to be relative to.
    const float offset = (MASK && largest == NOTHING ? 0.0f : largest) * factor;
    const float shrink = power_of_two(__fmaf_rn(most, factor, -offset));
    most = largest;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int c = 2 * h; c < 2 * h + 2; ++c) {
            score[n][c] = power_of_two(__fmaf_rn(score[n][c], factor, -offset));
            sum += score[n][c];
        }
    total = __fmaf_rn(total, shrink, sum);
    return shrink;
}

// Multiplies row `h` by a number.
template <int N> __device__ inline void scale_row(float (&c)[N][4], int h, float by) {
#pragma unroll
    for (int n = 0; n < N; ++n) c[n][2 * h] *= by, c[n][2 * h + 1] *= by;
}

// Divides row `h`, which is query `row` of its head, by the sum of its weights, and writes the logarithm of the sum of
// its exponentials, unless the row lies at `end` or behind. The numbers of its head begin at `sums_start`.
template <int N> __device__ inline void finish_row(
    float (&result)[N][4], int h, float factor, float most, float total, float* sums, i64 sums_start, int row, int end
) {
    float sum = total;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    // A query that sees no key gives zeros.
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    if ((threadIdx.x & 3) == 0 && row < end)
        sums[sums_start + row] = sum == 0 ? NOTHING : __fmaf_rn(most * factor, LN2, logf(sum));
    scale_row(result, h, inverse);
}

// ---------------------------------------------------------------------------------------------------------------------
// What the backward pass needs of every query

// For every query its delta, and the logarithm of base 2 of the sum of its exponentials; `padded` is the queries of a
// head rounded up to a multiple of 128, and those beyond the last get weights of 0. Also sets the `turns` that the
// order of sums goes by to 0. One row by LANES threads.
extern "C" __global__ void __launch_bounds__(256) attention_backward_prepare(
    int heads, int queries, int padded, const Half* gradient, Heads sg, const Half* out, Heads so, const float* sums,
    float* logarithms, float* deltas, int* turns, int all_turns
) {
    constexpr int CHUNKS = D / 8, LANES = CHUNKS > 8 ? 16 : CHUNKS, ROWS = 256 / LANES;
    const i64 thread = (i64)blockIdx.x * 256 + threadIdx.x;
    if (thread < all_turns) turns[thread] = 0;
    const int blocks = padded / ROWS, pair = blockIdx.x / blocks;
    const int row = (blockIdx.x % blocks) * ROWS + threadIdx.x / LANES, chunk = threadIdx.x % LANES;
    float sum = 0;
    if (row < queries && chunk < CHUNKS) {
        const int batch = pair / heads, head = pair % heads;
        union { uint4 all; u16 x[8]; } a, b;
        a.all = *(const uint4*)(sg.find(gradient, batch, head) + row * sg.row + chunk * 8);
        b.all = *(const uint4*)(so.find(out, batch, head) + row * so.row + chunk * 8);
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
