// The ranks of the elements of a tile in a stable sort by a digit, eight bits of their keys, found by a block. It has WARPS
// warps, and each thread ITEMS elements: element k of a thread is number
// (warp * ITEMS + k) * 32 + lane of the tile.

#define THREADS (WARPS * 32)
#define TILE (THREADS * ITEMS)
// The number of digits that a thread sums, and whether it has any.
#define DIGITS (THREADS > 256 ? 1 : 256 / THREADS)
#define HAS_DIGITS (THREADS <= 256 || threadIdx.x < 256)

// `to` becomes the rank of each element in the tile. Thread t also gets, for its digits from DIGITS * t on, the number of
// elements with the digit and with a smaller one. `peers` is temporary memory.
__device__ inline void rank(
    const u32 (&digit)[ITEMS], u32 (&to)[ITEMS], u32 (&count)[DIGITS], u32 (&start)[DIGITS], u32 (*peers)[256]
) {
    __shared__ u32 seen[WARPS][256];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    __syncwarp();
    for (int each = lane; each < 256; each += 32) seen[warp][each] = 0, peers[warp][each] = 0;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        // The threads of the warp with the same digit set their bits in one word, which is faster than eight ballots.
        atomicOr(&peers[warp][digit[k]], 1u << lane);
        __syncwarp();
        const u32 alike = peers[warp][digit[k]], old = seen[warp][digit[k]], before = __popc(alike & ((1u << lane) - 1));
        __syncwarp();
        if (before == 0) seen[warp][digit[k]] = old + __popc(alike), peers[warp][digit[k]] = 0;
        __syncwarp();
        to[k] = old + before;
    }
    __syncthreads();
    // The count of a digit in a warp becomes the count in all warps before it.
    u32 own = 0;
#pragma unroll
    for (int j = 0; j < DIGITS && HAS_DIGITS; ++j) {
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
    for (int j = 0; j < DIGITS && HAS_DIGITS; ++j) {
        start[j] += before;
        for (int each = 0; each < WARPS; ++each) seen[each][DIGITS * threadIdx.x + j] += start[j];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) to[k] += seen[warp][digit[k]];
}
