// Fixed-point sums of floats by place, which have the same bits in any order. A float is 24 bits times a power of two: floats
// that are not far below the largest one are added to `sums` in a common unit, without loss. Smaller ones are listed, per block,
// and then added to `rests` in a unit per place, given by the largest of them.
//
// A sum of zero leaves its place unchanged, so that -0 stays -0.

__device__ inline int exponent(T x) {
    const int e = __float_as_uint(x) >> 23 & 255;
    return e == 0 ? 1 : e;
}

// A float in the unit that leaves `span` bits below a float with exponent `top`.
__device__ inline u64 fixed(T x, int top, int span) {
    const u32 bits = __float_as_uint(x), fraction = (bits & 0x7fffff) | (bits & 0x7f800000 ? 0x800000 : 0);
    const int shift = span - (top - exponent(x));
    u64 size = 0;
    if (shift >= 0) size = (u64)fraction << shift;
    else if (shift > -25) size = (fraction + (1u << (-shift - 1))) >> -shift;
    return bits >> 31 ? 0 - size : size;
}

__device__ inline f64 unit(int top, int span) { return __longlong_as_double((i64)(top - 127 - 23 - span + 1023) << 52); }

// Infinities and NaN need no order either: bits of `tops` above all exponents record which of them a place has.
constexpr u32 PLUS = 256, MINUS = 512, NEITHER = 1024;

// Their sum.
__device__ inline f64 unbounded(u32 which) {
    const i64 bits = which == PLUS ? 0x7ff0000000000000ll : which == MINUS ? 0xfff0000000000000ll : 0x7ff8000000000000ll;
    return __longlong_as_double(bits);
}

// The global state: the largest exponent, and for each block the largest exponent of its part and the number of listed floats.
struct Known { u32 top, tops[BLOCKS], listed[BLOCKS]; };

// The start of the list of this block, which has room for all floats of the block.
__device__ inline u64 list_start(u64 n) {
    const u64 all = (u64)gridDim.x * 256;
    return (n + all - 1) / all * 256 * blockIdx.x;
}

// Clears sums, and finds the largest exponents.
extern "C" __global__ void __launch_bounds__(256) fixed_start(
    const T* source, u64 n, u64 last, Known* known, u64* sums, u32* tops
) {
    const I first = (I)blockIdx.x * 256 + threadIdx.x, all = (I)gridDim.x * 256;
#pragma unroll 4
    for (I i = first; i < (I)last; i += all) sums[i] = 0, tops[i] = 0;
    u32 top = 0;
#pragma unroll 4
    for (I i = first; i < (I)n; i += all) {
        const T x = source[i];
        const u32 own = exponent(x);
        if (x != 0 && own != 255 && own > top) top = own;
    }
    top = over_group<256, 256>(top, 0u, Largest());
    if (threadIdx.x == 0) known->tops[blockIdx.x] = top;
}

extern "C" __global__ void __launch_bounds__(256) fixed_sums(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, Dimension dimension, u64 n, u64 last, const T* source, Known* known,
    u64* sums, u32* tops, u64* rests, I* list, u64 span, u64 blocks, u64 op, u32* taken, Fault* fault
) {
    const I first = (I)blockIdx.x * 256 + threadIdx.x, all = (I)gridDim.x * 256;
    __shared__ u32 listed;
    if (threadIdx.x == 0) listed = 0;
    u32 largest = 0;
    for (I i = threadIdx.x; i < (I)blocks; i += 256) largest = max(largest, known->tops[i]);
    const int top = over_group<256, 256>(largest, 0u, Largest());
    if (first == 0) known->top = top;
    list += list_start(n);
    for (I i = first; i < (I)n; i += all) {
        i64 at = index[position(i, chosen)];
        const T x = source[i];
        if (outside(at, dimension, op, taken, fault) || x == 0) continue;
        const i64 key = position(i, to) + at * step;
        const int own = exponent(x);
        if (own == 255) atomicOr(&tops[key], x != x ? NEITHER : x > 0 ? PLUS : MINUS);
        else if (own + (int)span >= top) add_at(&sums[key], fixed(x, top, span));
        else {
            // The first float of a place clears it for the next kernel.
            if (atomicMax(&tops[key], (u32)own) == 0) rests[key] = 0;
            list[atomicAdd(&listed, 1u)] = i;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) known->listed[blockIdx.x] = listed;
}

// Launched with as many blocks as `fixed_sums`.
extern "C" __global__ void __launch_bounds__(256) fixed_rests(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, Dimension dimension, u64 n, u64 last, const T* source, const Known* known,
    const u32* tops, u64* rests, const I* list, u64 span, u64 op, u32* taken, Fault* fault
) {
    const u32 listed = known->listed[blockIdx.x];
    list += list_start(n);
    for (u32 j = threadIdx.x; j < listed; j += 256) {
        const I i = list[j];
        const i64 key = position(i, to) + dimension.counted(index[position(i, chosen)]) * step;
        if (tops[key] < PLUS) add_at(&rests[key], fixed(source[i], tops[key], span));
    }
}

// `target` becomes `base`, which may be `target` itself, plus the sums.
extern "C" __global__ void __launch_bounds__(256) fixed_finish(
    const T* base, T* target, u64 last, const Known* known, const u64* sums, const u32* tops, const u64* rests, u64 span
) {
    const I all = (I)gridDim.x * 256;
    const f64 common = unit(known->top, span);
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)last; i += all) {
        const i64 sum = sums[i];
        const u32 top = tops[i];
        const T before = base[i];
        f64 total = (f64)sum * common;
        if (top >= PLUS) total = unbounded(top & ~255u);
        else if (top != 0) total += (f64)(i64)rests[i] * unit(top, span);
        target[i] = sum == 0 && top == 0 ? before : (T)((f64)before + total);
    }
}
