// Where the elements of a mask are true. A block has BLOCK elements, and looks at 256 at a time.

#define BLOCK 4096

extern "C" __global__ void __launch_bounds__(256) count_true(const u8* mask, u64 n, u64* counts) {
    u64 count = 0;
    for (u64 k = 0; k < BLOCK; k += 256) {
        const u64 i = (u64)blockIdx.x * BLOCK + k + threadIdx.x;
        count += __syncthreads_count(i < n && mask[i]);
    }
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

struct Sizes { u64 size[R]; };

// out is (how many, R): the indices of the true elements. `starts` says how many there are before each block.
extern "C" __global__ void __launch_bounds__(256) write_true(const u8* mask, u64 n, const u64* starts, i64* out, Sizes sizes) {
    __shared__ u32 counts[8];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u64 start = starts[blockIdx.x];
    for (u64 k = 0; k < BLOCK; k += 256) {
        const u64 i = (u64)blockIdx.x * BLOCK + k + threadIdx.x;
        const bool yes = i < n && mask[i];
        const u32 found = __ballot_sync(0xffffffffu, yes);
        if (lane == 0) counts[warp] = __popc(found);
        __syncthreads();
        u64 row = start + __popc(found & ((1u << lane) - 1));
        for (int other = 0; other < 8; ++other) {
            if (other < warp) row += counts[other];
            start += counts[other];
        }
        if (yes) {
            u64 rest = i;
            for (int r = R - 1; r >= 0; --r) {
                const u64 next = rest / sizes.size[r];
                out[row * R + r] = (i64)(rest - next * sizes.size[r]);
                rest = next;
            }
        }
        __syncthreads();
    }
}
