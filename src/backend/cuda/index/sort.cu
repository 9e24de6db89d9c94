// A stable sort of numbers by keys, eight bits of the key at a time. A warp has a unit of UNIT elements, which it looks at
// in order; `counts` is (256, units): how often each digit occurs in each unit, and then where the first of them goes, from
// where its part of the counts begins.

#define UNIT 1024

extern "C" __global__ void __launch_bounds__(256) count(const I* key, u64 n, u64 shift, u64* counts, u64 units) {
    __shared__ u32 own[8][256];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const u64 unit = (u64)blockIdx.x * 8 + warp;
    for (int digit = lane; digit < 256; digit += 32) own[warp][digit] = 0;
    __syncwarp();
    for (u64 i = unit * UNIT + lane; i < n && i < (unit + 1) * UNIT; i += 32) atomicAdd(&own[warp][key[i] >> shift & 255], 1u);
    __syncwarp();
    if (unit >= units) return;
    for (int digit = lane; digit < 256; digit += 32) counts[digit * units + unit] = own[warp][digit];
}

// Each count becomes the sum of those before it in its part, of which each block has one; `totals` gets that of the whole part.
#define PART 4096

extern "C" __global__ void __launch_bounds__(1024) scan_parts(u64* counts, u64 n, u64* totals) {
    __shared__ u64 sums[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64 first = (u64)blockIdx.x * PART + threadIdx.x * 4;
    u64 own[4], sum = 0;
    for (int k = 0; k < 4; ++k) own[k] = first + k < n ? counts[first + k] : 0, sum += own[k];
    u64 up = sum;
    for (int step = 1; step < 32; step <<= 1) {
        const u64 before = __shfl_up_sync(0xffffffffu, up, step);
        if (lane >= step) up += before;
    }
    if (lane == 31) sums[warp] = up;
    __syncthreads();
    u64 before = up - sum;
    for (int other = 0; other < warp; ++other) before += sums[other];
    if (threadIdx.x == 1023) totals[blockIdx.x] = before + sum;
    for (int k = 0; k < 4; ++k) {
        if (first + k < n) counts[first + k] = before;
        before += own[k];
    }
}

// Each count becomes the sum of those before it. One block of 1024 threads.
extern "C" __global__ void __launch_bounds__(1024) scan(u64* counts, u64 n) {
    __shared__ u64 sums[32];
    __shared__ u64 carry;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) carry = 0;
    for (u64 first = 0; first < n; first += 1024) {
        const u64 i = first + threadIdx.x, own = i < n ? counts[i] : 0;
        u64 sum = own;
        for (int step = 1; step < 32; step <<= 1) {
            const u64 before = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum += before;
        }
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        u64 before = carry;
        for (int other = 0; other < warp; ++other) before += sums[other];
        if (i < n) counts[i] = before + sum - own;
        __syncthreads();
        if (threadIdx.x == 1023) carry = before + sum;
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) scatter(
    const I* key, const I* number, u64 n, u64 shift, const u64* counts, const u64* parts, u64 units, I* to_key, I* to_number
) {
    __shared__ u64 next[8][256];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const u64 unit = (u64)blockIdx.x * 8 + warp;
    if (unit >= units) return;
    for (int digit = lane; digit < 256; digit += 32) {
        const u64 at = digit * units + unit;
        next[warp][digit] = counts[at] + parts[at / PART];
    }
    __syncwarp();
    for (u64 first = unit * UNIT; first < n && first < (unit + 1) * UNIT; first += 32) {
        const u64 i = first + lane;
        const bool there = i < n;
        const I own = there ? key[i] : 0;
        const u32 digit = there ? (u32)(own >> shift & 255) : 256 + lane;
        const u32 alike = __match_any_sync(0xffffffffu, digit), before = alike & ((1u << lane) - 1);
        const u64 to = there ? next[warp][digit] + __popc(before) : 0;
        __syncwarp();
        if (there && before == 0) next[warp][digit] += __popc(alike);
        __syncwarp();
        if (there) to_key[to] = own, to_number[to] = number[i];
    }
}

#ifdef ORDER
// Sorts along a dimension of (outer, len, inner) elements. Element k of lane l, which is column l % inner of l / inner, has the
// number l * len + k.
__device__ inline u64 position(u64 number, u64 len, u64 inner) {
    const u64 lane = number / len, k = number % len;
    return (lane / inner * len + k) * inner + lane % inner;
}

extern "C" __global__ void __launch_bounds__(256) sort_keys(
    const E* x, u64 n, u64 len, u64 inner, u64 descending, I* key, I* number
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const u64 own = sort_key(x[position(i, len, inner)]);
        key[i] = (I)(descending ? own ^ ONES : own);
        number[i] = (I)i;
    }
}

extern "C" __global__ void __launch_bounds__(256) lane_keys(const I* number, u64 n, u64 len, I* key) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) key[i] = (I)(number[i] / len);
}

extern "C" __global__ void __launch_bounds__(256) write_sorted(
    const E* x, const I* number, u64 n, u64 len, u64 inner, E* values, i64* indices
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const u64 to = position(i, len, inner), from = number[i];
        if (values) values[to] = x[position(from, len, inner)];
        indices[to] = from % len;
    }
}
#endif
