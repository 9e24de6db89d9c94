// Prefix sums over the threads of a block.

// The exclusive prefix sum; `all` becomes the sum over all threads of a block of N warps.
template <int N, class A> __device__ inline A sum_before(A own, A& all) {
    __shared__ A sums[N];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    A up = own;
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
        const A left = __shfl_up_sync(0xffffffffu, up, step);
        if (lane >= step) up += left;
    }
    // Other threads may still read the sums of the previous call.
    __syncthreads();
    if (lane == 31) sums[warp] = up;
    __syncthreads();
    A before = up - own;
    all = 0;
#pragma unroll
    for (int each = 0; each < N; ++each) {
        if (each < warp) before += sums[each];
        all += sums[each];
    }
    return before;
}

template <int N, class A> __device__ inline A sum_before(A own) {
    A all;
    return sum_before<N>(own, all);
}

