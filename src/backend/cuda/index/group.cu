// Groups the numbers of elements by place without a sort: the elements of each place are counted, and their numbers stored
// together in any order. Up to FEW numbers are ordered by the kernel that reads them; more are sorted by a block.

#define OWN_BITS (sizeof(I) * 8 - 2)
// The flags of a published sum: that of one tile, or of all tiles up to it.
#define IN_TILE ((I)1 << OWN_BITS)
#define UP_TO_HERE ((I)2 << OWN_BITS)

// The start of the numbers of each place, by a prefix sum of the counts with decoupled look-back; `large` gets the places with
// more than FEW numbers. `state` has a word per tile, initially zero.
extern "C" __global__ void __launch_bounds__(256) place_starts(
    const I* counts, u64 last, I* starts, I* state, u32* ticket, I* large, u32* larges
) {
    __shared__ I begin;
    __shared__ u32 taken;
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    // Tiles are taken in order, so that all earlier tiles have started.
    if (threadIdx.x == 0) taken = atomicAdd(ticket, 1u);
    __syncthreads();
    const u64 tile = taken, first = tile * TILE + threadIdx.x * ITEMS;
    I own[ITEMS], sum = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        own[k] = first + k < last ? counts[first + k] : 0;
        sum += own[k];
        if (own[k] > FEW) large[atomicAdd(larges, 1u)] = (I)(first + k);
    }
    I all, before = sum_before<8>(sum, all);
    if (warp == 0) {
        I earlier = 0;
        if (tile > 0) {
            if (lane == 0) *(volatile I*)(state + tile) = IN_TILE | all;
            for (u64 other = tile;;) {
                const I said = other > lane ? *(volatile const I*)(state + other - 1 - lane) : UP_TO_HERE;
                const u32 silent = __ballot_sync(0xffffffffu, said == 0);
                const u32 whole = __ballot_sync(0xffffffffu, (said & UP_TO_HERE) != 0);
                const u32 heard = silent ? __ffs(silent) - 1 : 32, end = whole ? __ffs(whole) - 1 : 32;
                const u32 used = end < heard ? end + 1 : heard;
                I some = lane < used ? said & (IN_TILE - 1) : 0;
                for (int step = 16; step > 0; step >>= 1) some += __shfl_xor_sync(0xffffffffu, some, step);
                earlier += some;
                if (end < heard) break;
                other -= used;
            }
        }
        if (lane == 0) *(volatile I*)(state + tile) = UP_TO_HERE | (earlier + all), begin = earlier;
    }
    __syncthreads();
    before += begin;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        if (first + k < last) starts[first + k] = before;
        before += own[k];
    }
}

extern "C" __global__ void __launch_bounds__(256) group(
    const I* key, const I* order, const I* starts, u64 n, u64 last, I* members
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all)
        if (key[i] != (I)last) members[starts[key[i]] + order[i]] = (I)i;
}

// Sorts the numbers of places with more than FEW, one block per place, by a radix sort. `other` is as large as `members`.
extern "C" __global__ void __launch_bounds__(256) order_large(
    const I* counts, const I* starts, const I* large, const u32* larges, u64 n, I* members, I* other
) {
    __shared__ u32 digits[256];
    __shared__ u32 peers[WARPS][256];
    __shared__ I next[256];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const u32 begin = warp * 32 * ITEMS + lane;
    for (u32 which = blockIdx.x; which < *larges; which += gridDim.x) {
        const u64 len = counts[large[which]];
        I *from = members + starts[large[which]], *to = other + starts[large[which]];
        u32 shift = 0;
        for (; shift < sizeof(I) * 8 && (n - 1) >> shift != 0; shift += 8) {
            digits[threadIdx.x] = 0;
            __syncthreads();
            for (u64 i = threadIdx.x; i < len; i += 256) atomicAdd(&digits[from[i] >> shift & 255], 1u);
            __syncthreads();
            next[threadIdx.x] = sum_before<8>(digits[threadIdx.x]);
            for (u64 first = 0; first < len; first += TILE) {
                I number[ITEMS];
                u32 digit[ITEMS], at[ITEMS], count[1], start[1];
#pragma unroll
                for (int k = 0; k < ITEMS; ++k) {
                    const u64 i = first + begin + k * 32;
                    number[k] = i < len ? from[i] : 0;
                    // Padding beyond the end comes last.
                    digit[k] = i < len ? (u32)(number[k] >> shift & 255) : 255;
                }
                rank(digit, at, count, start, peers);
                next[threadIdx.x] -= start[0];
                __syncthreads();
#pragma unroll
                for (int k = 0; k < ITEMS; ++k)
                    if (first + begin + k * 32 < len) to[next[digit[k]] + at[k]] = number[k];
                __syncthreads();
                next[threadIdx.x] += start[0] + count[0];
            }
            __syncthreads();
            I* const swapped = from;
            from = to, to = swapped;
        }
        // After an odd number of passes they are in the other buffer.
        if (shift / 8 % 2 == 1) for (u64 i = threadIdx.x; i < len; i += 256) to[i] = from[i];
        __syncthreads();
    }
}
