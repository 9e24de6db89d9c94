// Elements by their place in the order along a dimension of (outer, len, inner) elements. A block has a lane, and finds the key at
// a place by eight bits at a time.

// Elements that a thread reads before it looks at any.
#define AT_ONCE 8

__device__ inline u64 first_of(u64 lane, u64 len, u64 inner) { return lane / inner * len * inner + lane % inner; }

// The key with `before` smaller ones before it, or as many with the same key; `before` becomes how many of these come first.
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

// The number of threads before this one for which `here` is true; `all` becomes that of all.
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

// The highest bits of keys, by which those that may be among the first are told from the others.
#define HIGH (sizeof(E) == 1 ? 8 : 11)
#define BINS (1 << HIGH)
#define CANDIDATES 1024

// The k first of a lane, sorted, from two looks at its elements: the first counts them by the highest bits of their keys, the
// second collects all that have those of the last one or smaller ones. False if these are too many, and nothing was written.
__device__ inline bool few_of(const E* x, u64 len, u64 inner, u64 flip, u64 k, i64* places, E* values) {
    __shared__ u32 counts[BINS];
    __shared__ u64 keys[CANDIDATES];
    __shared__ u64 numbers[CANDIDATES];
    __shared__ u32 limit, all, collected;
    const int low = (int)sizeof(E) * 8 - HIGH, own = BINS / 256;
    if (k > CANDIDATES || len >= 1ull << 31) return false;
    for (int bin = threadIdx.x; bin < BINS; bin += 256) counts[bin] = 0;
    if (threadIdx.x == 0) collected = 0;
    __syncthreads();
    // Several are read before any is counted: a read takes long.
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
        // One bin has the last of the k.
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
        if (rank < k) places[rank] = (i64)number, values[rank] = x[number * inner];
    }
    __syncthreads();
    return true;
}

// How many come before the one that is looked for: `kind` is 0 for the place k, 1 for the median, 2 for the median of what is not
// NaN.
__device__ inline u64 place(u64 kind, u64 k, u64 len, u64 nans) {
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
            before = place(kind, k, len, nans);
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

// As `kth`, from the order of whole lanes, which is laid out as they are.
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
        const u64 at = place(kind, k, len, len - high);
        indices[lane] = order[first + at * inner];
    }
}

// The k first of each lane of an order.
extern "C" __global__ void __launch_bounds__(256) first_of_sorted(
    const i64* order, u64 n, u64 len, u64 inner, u64 k, i64* indices
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const u64 column = i % inner, rank = i / inner % k, outer = i / inner / k;
        indices[i] = order[(outer * len + rank) * inner + column];
    }
}

// The k first of each lane, and their places, each (lanes, k): in the order of the places, or sorted, which is an order that a
// stable sort makes the same of.
extern "C" __global__ void __launch_bounds__(256) first_places(
    const E* x, u64 lanes, u64 len, u64 inner, u64 descending, u64 k, i64* places, E* values
) {
    const u64 flip = descending ? ONES : 0;
    for (u64 lane = blockIdx.x; lane < lanes; lane += gridDim.x) {
        const E* own = x + first_of(lane, len, inner);
        if (few_of(own, len, inner, flip, k, places + lane * k, values + lane * k)) continue;
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
            if (chosen && to < k) places[lane * k + to] = (i64)i, values[lane * k + to] = own[i * inner];
            seen += some;
        }
        __syncthreads();
    }
}

// Places in the order that a sort of the elements has found, as (outer, k, inner).
extern "C" __global__ void __launch_bounds__(256) places_in_order(
    const i64* places, const i64* order, u64 n, u64 k, u64 inner, i64* indices
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const u64 lane = i / k, rank = i % k;
        indices[(lane / inner * k + rank) * inner + lane % inner] = places[lane * k + order[i]];
    }
}
