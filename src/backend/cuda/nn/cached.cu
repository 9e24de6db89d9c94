// Attention of a few queries over many keys, as in decoding text: the keys are split over blocks, whose results are joined.
//
// Settings: E, the type of the elements; D, the size of a head, a power of two from 8 to 256; R, the queries that a block takes;
// CLUSTER, whether the blocks of the keys' parts are a cluster, which joins their results itself.

#define LANES (D / 8)       // Lanes that share a key: each has 8 elements of it.
#define GROUPS (32 / LANES) // Keys that a warp reads at once.
#define WARPS 4
// Keys of a group whose reads are under way at the same time.
#define TOGETHER (R > 4 ? 2 : 4)

// Rows `[batch, head, row, D]`, each of which is contiguous.
struct Rows { const E* first; i64 batch, head, row; };

__device__ inline float two_to(float x) { return fast::power_of_two(x); }

// The sum of exponentials and of weighted values, relative to the largest score, for each of R queries.
struct Sums {
    float largest[R], weight[R], values[R][8];

    __device__ void clear() {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            largest[r] = Bounds<float>::least(), weight[r] = 0;
#pragma unroll
            for (int j = 0; j < 8; ++j) values[r][j] = 0;
        }
    }
};

// The factor of sums relative to `old` when they become relative to `now`.
__device__ inline float rescaled(float old, float now) {
    return old == Bounds<float>::least() ? 0.0f : two_to(old - now);
}

__device__ inline void read(Pack<E, 8>& to, const E* from, bool exists) {
    if (exists) to = *(const Pack<E, 8>*)from;
    else {
#pragma unroll
        for (int j = 0; j < 8; ++j) narrow(to.x[j], 0.0f);
    }
}

#if CLUSTER
// A number in the shared memory of another block of the cluster, where `own` is in this one's.
__device__ inline float of_block(const float* own, u32 block) {
    u32 address;
    float x;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"((u32)__cvta_generic_to_shared(own)), "r"(block));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ inline void await_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif

// Blocks of x are pairs of a sequence and a head, times the parts of its queries; blocks of y are the parts of the keys. The keys
// of sequence b are starts[b] to lengths[b], at most the last `window` of them if that is not 0.
extern "C" __global__ void __launch_bounds__(32 * WARPS) attend(
    Rows query, Rows key, Rows value, const i64* lengths, i64 length_step, const i64* starts, u64 window, u64 keys,
    u64 heads, u64 queries, u64 parts, double scale, double cap, float* partial, E* out
) {
    let_next_start();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, at = lane % LANES * 8, own = lane / LANES;
    const u64 pair = blockIdx.x / parts, first = blockIdx.x % parts * R, batch = pair / heads, head = pair % heads;
    await_previous();
    i64 end = lengths ? lengths[(i64)batch * length_step] : (i64)keys, begin = starts ? starts[batch] : 0;
    if (end > (i64)keys) end = (i64)keys;
    if (window && begin < end - (i64)window) begin = end - (i64)window;
    const i64 count = end > begin ? end - begin : 0, each = (count + gridDim.y - 1) / gridDim.y;
    const i64 from = begin + (i64)blockIdx.y * each, to = from + each < end ? from + each : end;

    // Scores are exponents of two. With a bound they are scaled later.
    const float log2e = 1.44269504f, factor = cap > 0 ? (float)(scale / cap) : (float)scale * log2e;
    float q[R][8];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        Pack<E, 8> x;
        read(x, query.first + batch * query.batch + head * query.head + (first + r) * query.row + at, first + r < queries);
#pragma unroll
        for (int j = 0; j < 8; ++j) q[r][j] = widen(x.x[j]) * factor;
    }
    const E* k = key.first + batch * key.batch + head * key.head + at;
    const E* v = value.first + batch * value.batch + head * value.head + at;
    Sums sums;
    sums.clear();
    for (i64 j = from + warp * GROUPS + own; j - own < to; j += WARPS * GROUPS * TOGETHER) {
        Pack<E, 8> x[TOGETHER], y[TOGETHER];
#pragma unroll
        for (int u = 0; u < TOGETHER; ++u) {
            const i64 row = j + u * (WARPS * GROUPS);
            read(x[u], k + row * key.row, row < to);
            read(y[u], v + row * value.row, row < to);
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
            float scores[TOGETHER], largest = sums.largest[r];
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                float score = 0;
#pragma unroll
                for (int i = 0; i < 8; ++i) score = __fmaf_rn(q[r][i], widen(x[u].x[i]), score);
#pragma unroll
                for (int step = LANES / 2; step > 0; step >>= 1) score += moved(score, step);
                if (cap > 0) score = tanhf(score) * (float)cap * log2e;
                scores[u] = j + u * (WARPS * GROUPS) < to ? score : Bounds<float>::least();
                largest = fmaxf(largest, scores[u]);
            }
            const float old = rescaled(sums.largest[r], largest);
            sums.largest[r] = largest;
            sums.weight[r] *= old;
#pragma unroll
            for (int i = 0; i < 8; ++i) sums.values[r][i] *= old;
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                const float p = rescaled(scores[u], largest);
                sums.weight[r] += p;
#pragma unroll
                for (int i = 0; i < 8; ++i) sums.values[r][i] = __fmaf_rn(p, widen(y[u].x[i]), sums.values[r][i]);
            }
        }
    }
    // The groups of a warp, then the warps.
#pragma unroll
    for (int step = LANES; step < 32; step <<= 1) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const float other = moved(sums.largest[r], step), largest = fmaxf(sums.largest[r], other);
            const float a = rescaled(sums.largest[r], largest), b = rescaled(other, largest);
            sums.largest[r] = largest;
            sums.weight[r] = sums.weight[r] * a + moved(sums.weight[r], step) * b;
#pragma unroll
            for (int i = 0; i < 8; ++i)
                sums.values[r][i] = sums.values[r][i] * a + moved(sums.values[r][i], step) * b;
        }
    }
    __shared__ float all[WARPS][R][D + 2];
#if CLUSTER
    __shared__ float sums_of_block[R][D + 2];
#endif
    if (own == 0) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
#pragma unroll
            for (int i = 0; i < 8; ++i) all[warp][r][at + i] = sums.values[r][i];
            if (lane == 0) all[warp][r][D] = sums.largest[r], all[warp][r][D + 1] = sums.weight[r];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < R * D; i += 32 * WARPS) {
        const int r = i / D, d = i % D;
        if (first + r >= queries) continue;
        float largest = Bounds<float>::least(), weight = 0, sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, all[w][r][D]);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float part = rescaled(all[w][r][D], largest);
            weight += all[w][r][D + 1] * part, sum += all[w][r][d] * part;
        }
        const u64 row = pair * queries + first + r;
        if (gridDim.y == 1) {
            // A query without keys gives zeros.
            narrow(out[row * D + d], weight == 0 ? 0.0f : sum / weight);
            continue;
        }
#if CLUSTER
        float* mine = sums_of_block[r];
#else
        float* mine = partial + (row * gridDim.y + blockIdx.y) * (D + 2);
#endif
        mine[d] = sum;
        if (d == 0) mine[D] = largest, mine[D + 1] = weight;
    }
#if CLUSTER
    await_cluster();
    for (int i = blockIdx.y * (32 * WARPS) + threadIdx.x; i < R * D; i += gridDim.y * (32 * WARPS)) {
        const int r = i / D, d = i % D;
        if (first + r >= queries) break;
        float largest = Bounds<float>::least(), weight = 0, sum = 0;
        for (u32 part = 0; part < gridDim.y; ++part) largest = fmaxf(largest, of_block(&sums_of_block[r][D], part));
        for (u32 part = 0; part < gridDim.y; ++part) {
            const float factor = rescaled(of_block(&sums_of_block[r][D], part), largest);
            weight += of_block(&sums_of_block[r][D + 1], part) * factor;
            sum += of_block(&sums_of_block[r][d], part) * factor;
        }
        narrow(out[(pair * queries + first + r) * D + d], weight == 0 ? 0.0f : sum / weight);
    }
    // The memory of a block is read until here.
    await_cluster();
#endif
}

// Joins the parts of each query. A block is a query, a thread an element.
extern "C" __global__ void __launch_bounds__(D) join_parts(const float* partial, u64 parts, E* out) {
    let_next_start();
    await_previous();
    const float* mine = partial + (u64)blockIdx.x * parts * (D + 2);
    float largest = Bounds<float>::least(), weight = 0, sum = 0;
    for (u64 part = 0; part < parts; ++part) largest = fmaxf(largest, mine[part * (D + 2) + D]);
    for (u64 part = 0; part < parts; ++part) {
        const float* at = mine + part * (D + 2);
        const float factor = rescaled(at[D], largest);
        weight += at[D + 1] * factor, sum += at[threadIdx.x] * factor;
    }
    narrow(out[(u64)blockIdx.x * D + threadIdx.x], weight == 0 ? 0.0f : sum / weight);
}
