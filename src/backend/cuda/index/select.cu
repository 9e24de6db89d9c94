// Selection by rank along a dimension of (outer, len, inner) elements. A block processes a lane, and finds the key of a rank
// eight bits at a time.

// Elements that a thread reads before it processes them.
#define AT_ONCE 8

__device__ inline u64 first_of(u64 lane, u64 len, u64 inner) { return lane / inner * len * inner + lane % inner; }

// The key at position `before` of the sorted lane; `before` becomes its position among the elements with this key.
__device__ inline u64 key_at(const E* x, u64 len, u64 inner, u64 flip, u64& before) {
    __shared__ u32 counts[256];
    __shared__ u64 found, left;
    u64 prefix = 0, known = 0;
    for (int shift = (int)sizeof(E) * 8 - 8; shift >= 0; shift -= 8) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (u64 i = threadIdx.x; i < len; i += 256) {
            const u64 key = sort_key(x[i * inner]) ^ flip;
            if ((key & known) == prefix) atomicAdd(&counts[key >> shift & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u64 rest = before;
            int digit = 0;
            for (; digit < 255 && rest >= counts[digit]; ++digit) rest -= counts[digit];
            found = (u64)digit, left = rest;
        }
        __syncthreads();
        prefix |= found << shift, known |= 255ull << shift;
        before = left;
    }
    return prefix;
}

// The number of threads before this one for which `here` is true; `all` becomes the number in the block.
__device__ inline u64 before_me(bool here, u64& all) {
    __shared__ u32 counts[8];
    const int warp = threadIdx.x >> 5, thread = threadIdx.x & 31;
    const u32 votes = __ballot_sync(0xffffffffu, here);
    __syncthreads();
    if (thread == 0) counts[warp] = __popc(votes);
    __syncthreads();
    u64 own = __popc(votes & ((1u << thread) - 1));
    all = 0;
    for (int each = 0; each < 8; ++each) {
        if (each < warp) own += counts[each];
        all += counts[each];
    }
    return own;
}

// The number of leading bits of a key, by which candidates for the first elements are selected.
#define HIGH (sizeof(E) == 1 ? 8 : 11)
#define BINS (1 << HIGH)
#define CANDIDATES 1024

// The first k elements of a lane, sorted, in two passes: the first counts elements by the leading bits of their keys, the
// second collects those whose leading bits do not exceed those of element k. False if these are too many; nothing is written.
__device__ inline bool few_of(const E* x, u64 len, u64 inner, u64 flip, u64 k, i64* positions, E* values) {
    __shared__ u32 counts[BINS];
    __shared__ u64 keys[CANDIDATES];
    __shared__ u64 numbers[CANDIDATES];
    __shared__ u32 limit, all, collected;
    const int low = (int)sizeof(E) * 8 - HIGH, own = BINS / 256;
    if (k > CANDIDATES || len >= 1ull << 31) return false;
    for (int bin = threadIdx.x; bin < BINS; bin += 256) counts[bin] = 0;
    if (threadIdx.x == 0) collected = 0;
    __syncthreads();
    // Several elements are read before any is counted, to hide latency.
    for (u64 begin = threadIdx.x; begin < len; begin += 256 * AT_ONCE) {
        E element[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) if (begin + j * 256 < len) element[j] = x[(begin + j * 256) * inner];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
            if (begin + j * 256 < len) atomicAdd(&counts[(sort_key(element[j]) ^ flip) >> low], 1u);
    }
    __syncthreads();
    u32 sum = 0;
    for (int j = 0; j < own; ++j) sum += counts[threadIdx.x * own + j];
    u32 before = sum_before<8>(sum);
    for (int j = 0; j < own; ++j) {
        const u32 here = counts[threadIdx.x * own + j];
        // Exactly one bin contains element k.
        if (before < k && k <= before + here) limit = threadIdx.x * own + j, all = before + here;
        before += here;
    }
    __syncthreads();
    if (all > CANDIDATES) {
        __syncthreads();
        return false;
    }
    for (u64 begin = threadIdx.x; begin < len; begin += 256 * AT_ONCE) {
        E element[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) if (begin + j * 256 < len) element[j] = x[(begin + j * 256) * inner];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            if (begin + j * 256 >= len) continue;
            const u64 key = sort_key(element[j]) ^ flip;
            if (key >> low > limit) continue;
            const u32 to = atomicAdd(&collected, 1u);
            keys[to] = key, numbers[to] = begin + j * 256;
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < all; i += 256) {
        const u64 key = keys[i], number = numbers[i];
        u32 rank = 0;
        for (u32 each = 0; each < all; ++each) rank += keys[each] < key || (keys[each] == key && numbers[each] < number);
        if (rank < k) positions[rank] = (i64)number, values[rank] = x[number * inner];
    }
    __syncthreads();
    return true;
}

// The sorted position of the element to find: `kind` is 0 for position k, 1 for the median, 2 for the median without NaNs.
__device__ inline u64 position(u64 kind, u64 k, u64 len, u64 nans) {
    if (kind == 0) return k;
    if (kind == 1) return nans > 0 ? len - nans : (len - 1) / 2;
    return nans == len ? 0 : (len - nans - 1) / 2;
}

extern "C" __global__ void __launch_bounds__(256) kth(
    const E* x, u64 lanes, u64 len, u64 inner, u64 kind, u64 k, i64* indices
) {
    for (u64 lane = blockIdx.x; lane < lanes; lane += gridDim.x) {
        const E* own = x + first_of(lane, len, inner);
        u64 before = k;
        if (kind != 0) {
            u64 nans = 0, some;
            for (u64 begin = 0; begin < len; begin += 256) {
                const u64 i = begin + threadIdx.x;
                before_me(ORDER == 2 && i < len && sort_key(own[i * inner]) == ONES, some);
                nans += some;
            }
            before = position(kind, k, len, nans);
        }
        const u64 key = key_at(own, len, inner, 0, before);
        u64 seen = 0, some;
        for (u64 begin = 0; begin < len && seen <= before; begin += 256) {
            const u64 i = begin + threadIdx.x;
            const bool alike = i < len && sort_key(own[i * inner]) == key;
            const u64 rank = seen + before_me(alike, some);
            if (alike && rank == before) indices[lane] = (i64)i;
            seen += some;
        }
        __syncthreads();
    }
}

// As `kth`, from the sorting indices of whole lanes, with the layout of the elements.
extern "C" __global__ void __launch_bounds__(256) kth_of_sorted(
    const E* x, const i64* order, u64 lanes, u64 len, u64 inner, u64 kind, u64 k, i64* indices
) {
    for (u64 lane = (u64)blockIdx.x * 256 + threadIdx.x; lane < lanes; lane += (u64)gridDim.x * 256) {
        const u64 first = first_of(lane, len, inner);
        u64 low = 0, high = len;
        while (ORDER == 2 && kind != 0 && low < high) {
            const u64 middle = low + (high - low) / 2;
            if (sort_key(x[first + order[first + middle * inner] * inner]) == ONES) high = middle;
            else low = middle + 1;
        }
        const u64 at = position(kind, k, len, len - high);
        indices[lane] = order[first + at * inner];
    }
}

// The first k sorting indices of each lane.
extern "C" __global__ void __launch_bounds__(256) first_of_sorted(
    const i64* order, u64 n, u64 len, u64 inner, u64 k, i64* indices
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const u64 column = i % inner, rank = i / inner % k, outer = i / inner / k;
        indices[i] = order[(outer * len + rank) * inner + column];
    }
}

// The first k elements of each lane and their places, each (lanes, k): in the order of the places, or sorted. A stable sort
// gives the same result for both.
extern "C" __global__ void __launch_bounds__(256) first_places(
    const E* x, u64 lanes, u64 len, u64 inner, u64 descending, u64 k, i64* positions, E* values
) {
    const u64 flip = descending ? ONES : 0;
    for (u64 lane = blockIdx.x; lane < lanes; lane += gridDim.x) {
        const E* own = x + first_of(lane, len, inner);
        if (few_of(own, len, inner, flip, k, positions + lane * k, values + lane * k)) continue;
        u64 before = k - 1;
        const u64 last = key_at(own, len, inner, flip, before);
        u64 alike_seen = 0, seen = 0, some;
        for (u64 begin = 0; begin < len && seen < k; begin += 256) {
            const u64 i = begin + threadIdx.x;
            const u64 key = i < len ? sort_key(own[i * inner]) ^ flip : 0;
            const bool alike = i < len && key == last;
            const u64 rank = alike_seen + before_me(alike, some);
            alike_seen += some;
            const bool chosen = i < len && (key < last || (alike && rank <= before));
            const u64 to = seen + before_me(chosen, some);
            if (chosen && to < k) positions[lane * k + to] = (i64)i, values[lane * k + to] = own[i * inner];
            seen += some;
        }
        __syncthreads();
    }
}

// The places permuted by the sorting indices of their elements, as (outer, k, inner).
extern "C" __global__ void __launch_bounds__(256) places_in_order(
    const i64* positions, const i64* order, u64 n, u64 k, u64 inner, i64* indices
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const u64 lane = i / k, rank = i % k;
        indices[(lane / inner * k + rank) * inner + lane % inner] = positions[lane * k + order[i]];
    }
}
