// Reductions over groups of G threads: 1, a warp, or the whole block of BLOCK threads. Every thread gets the result. The
// order depends only on the sizes.

__device__ inline float moved(float x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
__device__ inline double moved(double x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
__device__ inline i64 moved(i64 x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
__device__ inline u32 moved(u32 x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
__device__ inline u64 moved(u64 x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }

template <class A, class F> __device__ inline A over_warp(A x, F join) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
        const A other = moved(x, step);
        // The lower lane is the first operand on both sides, so that both get the same bits.
        x = threadIdx.x & step ? join(other, x) : join(x, other);
    }
    return x;
}

template <int G, int BLOCK, class A, class F> __device__ inline A over_group(A x, A start, F join) {
    if (G == 1) return x;
    x = over_warp(x, join);
    if (G == 32) return x;
    __shared__ A parts[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
    if (lane == 0) parts[warp] = x;
    __syncthreads();
    return over_warp(lane < BLOCK / 32 ? parts[lane] : start, join);
}

struct Plus { template <class A> __device__ A operator()(A a, A b) const { return a + b; } };
struct Largest { template <class A> __device__ A operator()(A a, A b) const { return larger(a, b); } };

template <class X> struct Bounds;
template <> struct Bounds<float> {
    __device__ static float least() { return __int_as_float(0xff800000); }
    __device__ static float most() { return __int_as_float(0x7f800000); }
};
template <> struct Bounds<double> {
    __device__ static double least() { return __longlong_as_double(0xfff0000000000000ll); }
    __device__ static double most() { return __longlong_as_double(0x7ff0000000000000ll); }
};
template <> struct Bounds<i64> {
    __device__ static i64 least() { return (i64)0x8000000000000000ull; }
    __device__ static i64 most() { return 0x7fffffffffffffffll; }
};
template <> struct Bounds<u64> {
    __device__ static u64 least() { return 0; }
    __device__ static u64 most() { return 0xffffffffffffffffull; }
};
