// Selection by rank in a lane that many blocks scan together: the digits of the key are found sequentially from the highest,
// DIGIT bits at a time. The blocks of a grid column share a lane, in up to MOST_BLOCKS pieces.

#define DIGITS (1 << DIGIT)

// The state of a lane: the digits found so far, the position of the wanted element among those with these digits, and the
// counts of the next digit. All zero initially.
struct Search {
    u64 prefix, before;
    u32 nans, done;
    u32 counts[DIGITS];
};

// True for all threads of the last block of a lane to arrive here, which sees all writes of the other blocks.
__device__ inline bool is_last(u32* done) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}

// Finds the digit below bit `top` of the key; `first` is true for the highest digit.
extern "C" __global__ void __launch_bounds__(256) long_digit(
    const E* x, u64 len, u64 inner, u64 kind, u64 k, u64 piece, u64 top, u64 first, Search* searches
) {
    __shared__ u32 counts[DIGITS], nans;
    Search* const search = searches + blockIdx.y;
    const E* own = x + first_of(blockIdx.y, len, inner);
    const int shift = top > DIGIT ? (int)top - DIGIT : 0;
    const u64 prefix = search->prefix, below = (top < 64 ? 1ull << top : 0) - 1;
    for (int digit = threadIdx.x; digit < DIGITS; digit += 256) counts[digit] = 0;
    if (threadIdx.x == 0) nans = 0;
    __syncthreads();
    const u64 begin = blockIdx.x * piece, end = begin + piece < len ? begin + piece : len;
    for (u64 from = begin + threadIdx.x; from < end; from += 256 * AT_ONCE) {
        E element[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) if (from + j * 256 < end) element[j] = own[(from + j * 256) * inner];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            if (from + j * 256 >= end) continue;
            const u64 key = sort_key(element[j]);
            if (ORDER == 2 && first && key == ONES) atomicAdd(&nans, 1u);
            if ((key & ~below) == prefix) atomicAdd(&counts[(key & below) >> shift], 1u);
        }
    }
    __syncthreads();
    for (int digit = threadIdx.x; digit < DIGITS; digit += 256)
        if (counts[digit] != 0) atomicAdd(&search->counts[digit], counts[digit]);
    if (threadIdx.x == 0 && nans != 0) atomicAdd(&search->nans, nans);
    if (!is_last(&search->done)) return;
    const int each = DIGITS / 256;
    u32 here[each], sum = 0;
#pragma unroll
    for (int j = 0; j < each; ++j) {
        here[j] = __ldcg(&search->counts[threadIdx.x * each + j]);
        sum += here[j];
    }
    u64 smaller = sum_before<8>(sum);
    const u64 at = first ? position(kind, k, len, __ldcg(&search->nans)) : search->before;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < each; ++j) {
        // Exactly one digit contains the position.
        if (smaller <= at && at < smaller + here[j])
            search->prefix = prefix | (u64)(threadIdx.x * each + j) << shift, search->before = at - smaller;
        smaller += here[j];
        search->counts[threadIdx.x * each + j] = 0;
    }
    if (threadIdx.x == 0) search->done = 0;
}

// The index of the element: of those with its key, the one at position `before`. `alike` holds a count per piece.
extern "C" __global__ void __launch_bounds__(256) long_place(
    const E* x, u64 len, u64 inner, u64 piece, Search* searches, u32* alike, i64* indices
) {
    Search* const search = searches + blockIdx.y;
    const E* own = x + first_of(blockIdx.y, len, inner);
    u32* const counts = alike + (u64)blockIdx.y * gridDim.x;
    const u64 key = search->prefix, before = search->before;
    u64 begin = blockIdx.x * piece, end = begin + piece < len ? begin + piece : len, seen = 0, some;
    u32 mine = 0;
    for (u64 i = begin + threadIdx.x; i < end; i += 256) mine += sort_key(own[i * inner]) == key;
    __shared__ u32 all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    if (mine != 0) atomicAdd(&all, mine);
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
    if (!is_last(&search->done)) return;
    // Find the piece that contains it: each thread scans some consecutive counts.
    __shared__ u64 found, earlier;
    const u32 each = (gridDim.x + 255) / 256;
    u32 here[MOST_BLOCKS / 256] = {}, sum = 0;
    for (u32 j = 0; j < each; ++j) {
        if (threadIdx.x * each + j < gridDim.x) here[j] = __ldcg(&counts[threadIdx.x * each + j]);
        sum += here[j];
    }
    u64 up = sum_before<8>(sum);
    for (u32 j = 0; j < each; ++j) {
        if (up <= before && before < up + here[j]) found = threadIdx.x * each + j, earlier = up;
        up += here[j];
    }
    __syncthreads();
    seen = earlier, begin = found * piece, end = begin + piece < len ? begin + piece : len;
    for (; begin < end && seen <= before; begin += 256) {
        const u64 i = begin + threadIdx.x;
        const bool equal = i < end && sort_key(own[i * inner]) == key;
        const u64 rank = seen + before_me(equal, some);
        if (equal && rank == before) indices[blockIdx.y] = (i64)i;
        seen += some;
    }
}
