// Running sums along the middle dimension of (outer, len, inner) elements of type X, as type Y; backwards from the last one on.
// Floats are added up in f64. The order of additions depends on the sizes alone.

// A is f64 for floats, else T.
template <class S> struct Wide { typedef S type; };
template <> struct Wide<float> { typedef double type; };
typedef typename Wide<T>::type A;

__device__ inline u64 first_of(u64 lane, u64 len, u64 inner) { return lane / inner * len * inner + lane % inner; }

extern "C" __global__ void __launch_bounds__(256) short_lanes(
    const X* x, Y* y, u64 lanes, u64 len, u64 inner, u64 backwards
) {
    for (u64 lane = (u64)blockIdx.x * 256 + threadIdx.x; lane < lanes; lane += (u64)gridDim.x * 256) {
        const u64 first = first_of(lane, len, inner);
        A sum = A(0);
        for (u64 k = 0; k < len; ++k) {
            const u64 at = first + (backwards ? len - 1 - k : k) * inner;
            sum += (A)(T)widen(x[at]);
            narrow(y[at], (T)sum);
        }
    }
}

// A block has a lane: 256 elements at a time, each thread with the sum of those before it in its warp, in the warps before, and
// in all earlier turns.
extern "C" __global__ void __launch_bounds__(256) long_lanes(
    const X* x, Y* y, u64 lanes, u64 len, u64 inner, u64 backwards
) {
    __shared__ A totals[8];
    const int warp = threadIdx.x >> 5, thread = threadIdx.x & 31;
    for (u64 lane = blockIdx.x; lane < lanes; lane += gridDim.x) {
        const u64 first = first_of(lane, len, inner);
        A before = A(0);
        for (u64 start = 0; start < len; start += 256) {
            const u64 k = start + threadIdx.x, at = first + (backwards ? len - 1 - k : k) * inner;
            A sum = k < len ? (A)(T)widen(x[at]) : A(0);
            for (int step = 1; step < 32; step <<= 1) {
                const A other = __shfl_up_sync(0xffffffffu, sum, step);
                if (thread >= step) sum += other;
            }
            if (thread == 31) totals[warp] = sum;
            __syncthreads();
            A all = A(0);
            for (int other = 0; other < 8; ++other) {
                if (other == warp) sum += all;
                all += totals[other];
            }
            if (k < len) narrow(y[at], (T)(before + sum));
            before += all;
            __syncthreads();
        }
    }
}
