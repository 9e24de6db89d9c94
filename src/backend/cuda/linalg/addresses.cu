// The addresses of matrices that are `step` bytes apart.
extern "C" __global__ void __launch_bounds__(256) addresses(u64* to, u64 first, u64 step, u64 n) {
    const u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i < n) to[i] = first + i * step;
}
