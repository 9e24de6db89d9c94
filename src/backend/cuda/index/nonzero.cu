// The indices of the true elements of a mask. A thread reads ITEMS adjacent elements, a block BLOCK elements.

#define ITEMS 16
#define BLOCK (256 * ITEMS)

// A bit mask of which elements of this thread are true, from the lowest bit on.
__device__ inline u32 seen(const u8* mask, u64 n, u64 first) {
    u32 found = 0;
    // Read as one vector, if complete and aligned.
    if (first + ITEMS <= n && ((u64)mask & (ITEMS - 1)) == 0) {
        const Pack<u8, ITEMS> all = *(const Pack<u8, ITEMS>*)(mask + first);
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) found |= (u32)(all.x[k] != 0) << k;
    } else {
        for (int k = 0; k < ITEMS; ++k) if (first + k < n && mask[first + k]) found |= 1u << k;
    }
    return found;
}

extern "C" __global__ void __launch_bounds__(256) count_true(const u8* mask, u64 n, u64* counts) {
    __shared__ u32 sums[8];
    u32 count = __popc(seen(mask, n, (u64)blockIdx.x * BLOCK + threadIdx.x * ITEMS));
    for (int step = 16; step > 0; step >>= 1) count += __shfl_xor_sync(0xffffffffu, count, step);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = count;
    __syncthreads();
    if (threadIdx.x > 0) return;
    u32 all = 0;
    for (int warp = 0; warp < 8; ++warp) all += sums[warp];
    counts[blockIdx.x] = all;
}

// The exclusive prefix sum of the counts, followed by the total. One block of 1024 threads, each with EACH counts at a time.
#define EACH 8

extern "C" __global__ void __launch_bounds__(1024) starts(u64* counts, u64 n) {
    u64 carry = 0;
    for (u64 turn = 0; turn < n; turn += 1024 * EACH) {
        const u64 first = turn + threadIdx.x * EACH;
        u64 own[EACH], sum = 0;
#pragma unroll
        for (int k = 0; k < EACH; ++k) own[k] = first + k < n ? counts[first + k] : 0, sum += own[k];
        u64 all, before = carry + sum_before<32>(sum, all);
        carry += all;
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            if (first + k < n) counts[first + k] = before;
            before += own[k];
        }
    }
    if (threadIdx.x == 0) counts[n] = carry;
}

struct Sizes { u64 size[R]; };

// out is (count, R): the indices of the true elements. `starts` holds the number of true elements before each block.
extern "C" __global__ void __launch_bounds__(256) write_true(const u8* mask, u64 n, const u64* starts, i64* out, Sizes sizes) {
    __shared__ u16 positions[BLOCK];
    const u64 begin = (u64)blockIdx.x * BLOCK, start = starts[blockIdx.x];
    u32 found = seen(mask, n, begin + threadIdx.x * ITEMS);
    u32 all, to = sum_before<8>((u32)__popc(found), all);
    // Collected in shared memory first, so that writes are coalesced.
    for (; found; found &= found - 1) positions[to++] = (u16)(threadIdx.x * ITEMS + __ffs(found) - 1);
    __syncthreads();
    for (u32 k = threadIdx.x; k < all; k += 256) {
        u64 rest = begin + positions[k];
        i64* const row = out + (start + k) * R;
        for (int r = R - 1; r > 0; --r) {
            const u64 next = rest / sizes.size[r];
            row[r] = (i64)(rest - next * sizes.size[r]);
            rest = next;
        }
        row[0] = (i64)rest;
    }
}
