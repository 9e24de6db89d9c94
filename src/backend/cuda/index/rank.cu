// The places of elements in a stable sort by eight bits of their keys, a digit, which a block finds for a tile of them. It has
// WARPS warps, up to eight of them, and each thread ITEMS elements: element k of a thread is number
// (warp * ITEMS + k) * 32 + lane of the tile.

#define THREADS (WARPS * 32)
#define TILE (THREADS * ITEMS)
// Digits that a thread has to add up.
#define DIGITS (256 / THREADS)

// The threads of the warp that have the same digit.
__device__ inline u32 alike(u32 digit) {
    u32 peers = 0xffffffffu;
#pragma unroll
    for (int bit = 0; bit < 8; ++bit) {
        const bool one = digit >> bit & 1;
        const u32 votes = __ballot_sync(0xffffffffu, one);
        peers &= one ? votes : ~votes;
    }
    return peers;
}

// `to` becomes each element's place in the tile. Thread t also learns how many have each of its digits, from DIGITS * t on, and
// how many have a smaller one.
__device__ inline void rank(const u32 (&digit)[ITEMS], u32 (&to)[ITEMS], u32 (&count)[DIGITS], u32 (&start)[DIGITS]) {
    __shared__ u32 seen[WARPS][256];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    __syncwarp();
    for (int each = lane; each < 256; each += 32) seen[warp][each] = 0;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const u32 peers = alike(digit[k]), before = __popc(peers & ((1u << lane) - 1)), old = seen[warp][digit[k]];
        __syncwarp();
        if (before == 0) seen[warp][digit[k]] = old + __popc(peers);
        __syncwarp();
        to[k] = old + before;
    }
    __syncthreads();
    // Each warp's count of a digit becomes that of the warps before it.
    u32 own = 0;
#pragma unroll
    for (int j = 0; j < DIGITS; ++j) {
        count[j] = 0;
        for (int each = 0; each < WARPS; ++each) {
            const u32 here = seen[each][DIGITS * threadIdx.x + j];
            seen[each][DIGITS * threadIdx.x + j] = count[j];
            count[j] += here;
        }
        start[j] = own;
        own += count[j];
    }
    const u32 before = sum_before<WARPS>(own);
#pragma unroll
    for (int j = 0; j < DIGITS; ++j) {
        start[j] += before;
        for (int each = 0; each < WARPS; ++each) seen[each][DIGITS * threadIdx.x + j] += start[j];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) to[k] += seen[warp][digit[k]];
}
