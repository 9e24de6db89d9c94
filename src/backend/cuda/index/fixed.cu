// Sums of floats by place as whole numbers, which come to the same bits in any order. A float is 24 bits times a power of two:
// all that is not far below the largest of all is added to `sums` in one unit, without loss. What is smaller is listed, and
// then added to `rests` in a unit for its place, which the largest of these decides.
//
// A sum of zero leaves its place alone, so that -0 stays -0.

__device__ inline int exponent(T x) {
    const int e = __float_as_uint(x) >> 23 & 255;
    return e == 0 ? 1 : e;
}

// A float in a unit that leaves `span` bits below one whose exponent is `top`.
__device__ inline u64 fixed(T x, int top, int span) {
    const u32 bits = __float_as_uint(x), fraction = (bits & 0x7fffff) | (bits & 0x7f800000 ? 0x800000 : 0);
    const int shift = span - (top - exponent(x));
    u64 size = 0;
    if (shift >= 0) size = (u64)fraction << shift;
    else if (shift > -25) size = (fraction + (1u << (-shift - 1))) >> -shift;
    return bits >> 31 ? 0 - size : size;
}

__device__ inline f64 unit(int top, int span) { return __longlong_as_double((i64)(top - 127 - 23 - span + 1023) << 52); }

// What is known of all: the largest exponent, and how many floats are small.
struct Known { u32 top, small; };

extern "C" __global__ void __launch_bounds__(256) fixed_top(const T* source, u64 n, Known* known) {
    __shared__ u32 tops[8];
    const u64 all = (u64)gridDim.x * 256;
    u32 top = 0;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const T x = source[i];
        const u32 own = exponent(x);
        if (x != 0 && own != 255 && own > top) top = own;
    }
    for (int step = 16; step > 0; step >>= 1) top = max(top, __shfl_xor_sync(0xffffffffu, top, step));
    if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = top;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < 8; ++warp) top = max(top, tops[warp]);
    atomicMax(&known->top, top);
}

extern "C" __global__ void __launch_bounds__(256) fixed_sums(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, i64 size, u64 n, u64 last, const T* source, T* target,
    Known* known, u64* sums, u32* tops, I* list, u64 span, u64 op, u32* taken, Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    const int top = known->top;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        const i64 at = index[place(i, chosen)];
        const T x = source[i];
        if (outside(at, size, op, taken, fault) || x == 0) continue;
        const i64 key = place(i, to) + at * step;
        const int own = exponent(x);
        // Infinities and NaN have no order either.
        if (own == 255) atomicAdd(&target[key], x);
        else if (own + (int)span >= top) atomicAdd(&sums[key], fixed(x, top, span));
        else {
            atomicMax(&tops[key], (u32)own);
            list[atomicAdd(&known->small, 1u)] = i;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) fixed_rests(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, i64 size, u64 n, u64 last, const T* source, const Known* known,
    const u32* tops, u64* rests, const I* list, u64 span, u64 op, u32* taken, Fault* fault
) {
    const I all = (I)gridDim.x * 256, small = known->small;
    for (I j = (I)blockIdx.x * 256 + threadIdx.x; j < small; j += all) {
        const I i = list[j];
        const i64 key = place(i, to) + index[place(i, chosen)] * step;
        atomicAdd(&rests[key], fixed(source[i], tops[key], span));
    }
}

extern "C" __global__ void __launch_bounds__(256) fixed_finish(
    T* target, u64 last, const Known* known, const u64* sums, const u32* tops, const u64* rests, u64 span
) {
    const u64 all = (u64)gridDim.x * 256;
    const f64 common = unit(known->top, span);
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < last; i += all) {
        const i64 sum = sums[i];
        const u32 top = tops[i];
        if (sum == 0 && top == 0) continue;
        f64 total = (f64)sum * common;
        if (top != 0) total += (f64)(i64)rests[i] * unit(top, span);
        target[i] = (T)((f64)target[i] + total);
    }
}
