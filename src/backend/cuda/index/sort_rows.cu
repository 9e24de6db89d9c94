// Sorts along a dimension of (outer, len, inner) elements; a block sorts a lane in shared memory.

__device__ inline u64 first_of(u64 lane, u64 len, u64 inner) { return lane / inner * len * inner + lane % inner; }

// The bits in which keys differ, over all threads of the block: `some` is the OR of the keys of a thread, `every` the AND.
__device__ inline K differences(K some, K every) {
    __shared__ K parts[WARPS][2];
    for (int step = 16; step > 0; step >>= 1) {
        some |= __shfl_xor_sync(0xffffffffu, some, step);
        every &= __shfl_xor_sync(0xffffffffu, every, step);
    }
    __syncthreads();
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5][0] = some, parts[threadIdx.x >> 5][1] = every;
    __syncthreads();
    for (int each = 0; each < WARPS; ++each) some |= parts[each][0], every &= parts[each][1];
    return some ^ every;
}

extern "C" __global__ void __launch_bounds__(THREADS) sort_rows(
    const E* x, u64 lanes, u64 len, u64 inner, u64 descending, E* values, i64* indices
) {
    __shared__ K keys[TILE];
    __shared__ u16 numbers[TILE];
    __shared__ u32 peers[WARPS][256];
    const K flip = descending ? (K)ONES : K(0);
    const u32 begin = (threadIdx.x >> 5) * 32 * ITEMS + (threadIdx.x & 31);
    for (u64 row = blockIdx.x; row < lanes; row += gridDim.x) {
        const u64 first = first_of(row, len, inner);
        K key[ITEMS], some = 0, every = ~K(0);
        u16 number[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const u32 i = begin + k * 32;
            number[k] = (u16)i;
            // Padding beyond the end has the largest digits, and stays there.
            key[k] = ~K(0);
            if (i < len) {
                key[k] = (K)sort_key(x[first + i * inner]) ^ flip;
                some |= key[k], every &= key[k];
            }
        }
        const K differ = differences(some, every);
        for (u32 shift = 0; shift < sizeof(E) * 8; shift += 8) {
            if ((differ >> shift & 255) == 0) continue;
            u32 digit[ITEMS], to[ITEMS], count[DIGITS], start[DIGITS];
#pragma unroll
            for (int k = 0; k < ITEMS; ++k) digit[k] = (u32)(key[k] >> shift & 255);
            rank(digit, to, count, start, peers);
#pragma unroll
            for (int k = 0; k < ITEMS; ++k) keys[to[k]] = key[k], numbers[to[k]] = number[k];
            __syncthreads();
#pragma unroll
            for (int k = 0; k < ITEMS; ++k) key[k] = keys[begin + k * 32], number[k] = numbers[begin + k * 32];
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const u32 i = begin + k * 32;
            if (i >= len) continue;
            if (values) values[first + i * inner] = x[first + number[k] * inner];
            indices[first + i * inner] = number[k];
        }
    }
}

// The same for lanes of up to 32 elements: GROUP threads of a warp share a lane, and each counts the elements before its own.
extern "C" __global__ void __launch_bounds__(256) sort_short(
    const E* x, u64 lanes, u64 len, u64 inner, u64 descending, E* values, i64* indices
) {
    const K flip = descending ? (K)ONES : K(0);
    const u32 at = threadIdx.x % GROUP, own = 256 / GROUP;
    const u64 turns = (lanes + own - 1) / own;
    for (u64 turn = blockIdx.x; turn < turns; turn += gridDim.x) {
        const u64 row = turn * own + threadIdx.x / GROUP, first = first_of(row, len, inner);
        const bool here = row < lanes && at < len;
        const E element = here ? x[first + at * inner] : E(0);
        const K key = (K)sort_key(element) ^ flip;
        u32 before = 0;
        for (u32 each = 0; each < len; ++each) {
            const K other = __shfl_sync(0xffffffffu, key, (threadIdx.x & 31) / GROUP * GROUP + each);
            before += other < key || (other == key && each < at);
        }
        if (!here) continue;
        if (values) values[first + before * inner] = element;
        indices[first + before * inner] = at;
    }
}
