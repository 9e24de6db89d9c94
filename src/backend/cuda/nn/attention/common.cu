// Attention in half precision on tensor cores, forward and backward, tiled so that the scores are never written to
// device memory.
//
// This file has the code shared by all kernels and is included after heads.cu. After it come
//   for sm_80 and later, and every D: warps.cu, forward.cu, backward.cu
//   for sm_90a, and D of 64 or 128: warpgroups.cu, handover.cu, hopper_forward.cu, hopper_backward.cu
//
// Macros given before this source:
//   BF16    1: bf16 elements, 0: f16
//   D       the size of a head: 16, 32, 64, 96 or 128
//   CAUSAL  1: query i attends to keys 0..=i
//   MASK    0: none; 1: f32 numbers added to the scaled scores;
//           2: one byte for each query and key, masked out if 0
//
// The kernels are deterministic: no floating-point atomics race, so two runs give the same bits.
//
// Terms:
//   pair    the index of a batch and head (in masks: a query and a key)
//   score   S, the product of a query and a key
//   weight  P: forward 2^(exponent), not yet divided by the row's sum; backward, the softmax
//   ds      dS, the gradient of a scaled score
//   delta   the sum of dO * O of a query
//
// Products have their results in fragments of 8 columns, c[n][4], where n counts groups of 8 columns: a thread has
// columns (lane & 3) * 2 and the next, of row lane >> 2 in c[n][0] and c[n][1], and of the row 8 below in c[n][2] and
// c[n][3]. So four neighbouring lanes share a row. `h` is 0 for the upper and 1 for the lower row of a thread.

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

// Copies 16 bytes asynchronously to shared memory, or zeros if there is nothing to copy.
__device__ inline void fetch(u32 to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ inline void commit_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most LEFT of the committed groups are pending.
template <int LEFT> __device__ inline void await_fetches() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// ---------------------------------------------------------------------------------------------------------------------
// Which keys a query attends to

// The additive mask of a query and a key, for exponents of base 2.
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
        // The lowest finite numbers stay finite, so that a row of only these is still an average.
        return x == NOTHING ? x : fmaxf(x * LOG2E, -3e38f);
    }
};

// Whether a query and a key are in range and not excluded by CAUSAL.
__device__ inline bool in_sight(int query, int key, int queries, int keys) {
    return key < keys && (!CAUSAL || key <= query) && (!MASK || query < queries);
}

// A row's weights are 2^(score * factor - offset). With a mask, scores become exponents first and the factor is 1.
__device__ inline float masked(float score, float factor, int query, int key, int queries, int keys, const Mask& mask) {
    if (!in_sight(query, key, queries, keys)) return NOTHING;
    return MASK ? __fmaf_rn(score, factor, mask(query, key)) : score;
}

// Whether the rows of a fragment are queries or keys; its columns are the other side.
enum Side { ROWS_ARE_QUERIES, ROWS_ARE_KEYS };

// Masks the scores of a warp's 16 rows from `first_row` on and 8 N columns from `first_column` on.
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
// Online softmax

// Turns the scores of row `h` into weights, relative to the largest score so far, `most`, and adds them to this
// thread's `total`. Returns the factor that rescales the previous results, since `most` may have grown.
template <int N> __device__ inline float soften(float (&score)[N][4], int h, float factor, float& most, float& total) {
    float largest = most;
#pragma unroll
    for (int n = 0; n < N; ++n) largest = fmaxf(largest, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    // A row without visible keys so far has no largest score; 0 is used instead.
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

// Divides row `h`, which is query `row` of its head, by the sum of its weights, and writes its LSE, unless the row is
// at `end` or beyond. The LSEs of its head start at `sums_start`.
template <int N> __device__ inline void finish_row(
    float (&result)[N][4], int h, float factor, float most, float total, float* sums, i64 sums_start, int row, int end
) {
    float sum = total;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    // A query without visible keys gives zeros.
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    if ((threadIdx.x & 3) == 0 && row < end)
        sums[sums_start + row] = sum == 0 ? NOTHING : __fmaf_rn(most * factor, LN2, logf(sum));
    scale_row(result, h, inverse);
}

// ---------------------------------------------------------------------------------------------------------------------
// Preparation of the backward pass

// For every query: its delta, and its LSE in base 2. `padded` is the number of queries of a head rounded up to a
// multiple of 128; those beyond the last get weights of 0. Also sets `semaphores`, the semaphores that order the sums of dQ,
// to 0. LANES threads process a row.
extern "C" __global__ void __launch_bounds__(256) attention_backward_prepare(
    int heads, int queries, int padded, const Half* gradient, Heads sg, const Half* out, Heads so, const float* sums,
    float* lse, float* deltas, int* semaphores, int all_semaphores
) {
    constexpr int CHUNKS = D / 8, LANES = CHUNKS > 8 ? 16 : CHUNKS, ROWS = 256 / LANES;
    const i64 thread = (i64)blockIdx.x * 256 + threadIdx.x;
    if (thread < all_semaphores) semaphores[thread] = 0;
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
        const float row_lse = row < queries ? sums[(i64)pair * queries + row] : NOTHING;
        deltas[(i64)pair * padded + row] = sum;
        // Rows without visible keys get weights of 0 too.
        lse[(i64)pair * padded + row] = row_lse == NOTHING ? EVERYTHING : row_lse * LOG2E;
    }
}
