// The maxima and the sums of windows over three dimensions. A thread has a result, or a pack of results if the channels
// come last: then there are `lanes` packs of PACK channels. If the channels come first, both are 1. S is a signed index
// type.

// As the Rust struct of this name.
struct Windows { i64 size, count, num, den, start, end, step; };
struct Three { Windows dim[3]; };
struct Range { S first, count; };

typedef Pack<E, PACK> Packed;

__device__ inline S floor_divide(S a, S b) {
    if (b == 1) return a;
    const S q = a / b;
    return q - (q * b > a);
}

__device__ inline Range elements(const Windows& w, S o) {
    const S step = (S)w.step, den = (S)w.den;
    S first = floor_divide(o * (S)w.num + (S)w.start, den), end = floor_divide(o * (S)w.num + (S)w.end, den);
    if (first < 0) first += (step - 1 - first) / step * step;
    if (end > (S)w.size) end = (S)w.size;
    return { first, end > first ? (step == 1 ? end - first : (end - first + step - 1) / step) : 0 };
}

struct Windowed { I plane, lane; Range d, h, w; };
__device__ inline Windowed window(const Three& all, I i, I lanes) {
    const I at = lanes == 1 ? i : i / lanes, lane = i - at * lanes;
    const I width = (I)all.dim[2].count, height = (I)all.dim[1].count, depth = (I)all.dim[0].count;
    const I row = at / width, w = at - row * width, plane = row / height, h = row - plane * height;
    const I volume = depth == 1 ? plane : plane / depth, d = plane - volume * depth;
    return { volume, lane, elements(all.dim[0], (S)d), elements(all.dim[1], (S)h), elements(all.dim[2], (S)w) };
}

// The flat index in its plane of an element of a window.
__device__ inline S place_in(const Three& all, const Windowed& at, S d, S h, S w) {
    const S y = at.d.first + d * (S)all.dim[0].step, z = at.h.first + h * (S)all.dim[1].step;
    return (y * (S)all.dim[1].size + z) * (S)all.dim[2].size + at.w.first + w * (S)all.dim[2].step;
}

__device__ inline u64 plane_size(const Three& all) { return all.dim[0].size * all.dim[1].size * all.dim[2].size; }

// The first pack of a thread's plane, counted in packs.
__device__ inline u64 first_pack(const Three& all, const Windowed& at, u64 lanes) {
    return at.plane * plane_size(all) * lanes + at.lane;
}

// NaN is the largest, and the last NaN wins, as on the CPU.
extern "C" __global__ void __launch_bounds__(256) largest(
    const Packed* x, Three all, Packed* values, Pack<i64, PACK>* indices, u64 n, u64 lanes
) {
    const u64 threads = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += threads) {
        const Windowed at = window(all, (I)i, (I)lanes);
        const Packed* own = x + first_pack(all, at, lanes);
        const S first = place_in(all, at, 0, 0, 0);
        Packed best = own[first * lanes];
        S position[PACK];
#pragma unroll
        for (int j = 0; j < PACK; ++j) position[j] = first;
        for (S d = 0; d < at.d.count; ++d)
            for (S h = 0; h < at.h.count; ++h)
                for (S w = 0; w < at.w.count; ++w) {
                    const S here = place_in(all, at, d, h, w);
                    const Packed other = own[here * lanes];
#pragma unroll
                    for (int j = 0; j < PACK; ++j) {
                        const T value = (T)widen(other.x[j]);
                        if (value > (T)widen(best.x[j]) || value != value) best.x[j] = other.x[j], position[j] = here;
                    }
                }
        values[i] = best;
        if (indices) {
            Pack<i64, PACK> to;
#pragma unroll
            for (int j = 0; j < PACK; ++j) to.x[j] = (i64)position[j];
            indices[i] = to;
        }
    }
}

// For each element, the sum of the elements of g whose index it is. They are among its inverse windows.
extern "C" __global__ void __launch_bounds__(256) at_largest(
    const Packed* g, const Pack<i64, PACK>* indices, Three all, Packed* y, u64 n, u64 lanes
) {
    const u64 threads = (u64)gridDim.x * 256;
    const u64 size = all.dim[0].count * all.dim[1].count * all.dim[2].count;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += threads) {
        const Windowed at = window(all, (I)i, (I)lanes);
        const u64 first = first_pack(all, at, lanes);
        const i64 own = (i64)((I)(lanes == 1 ? i : (I)i / (I)lanes) % (I)size);
        T sum[PACK];
#pragma unroll
        for (int j = 0; j < PACK; ++j) sum[j] = T(0);
        for (S d = 0; d < at.d.count; ++d)
            for (S h = 0; h < at.h.count; ++h)
                for (S w = 0; w < at.w.count; ++w) {
                    const u64 position = first + (u64)place_in(all, at, d, h, w) * lanes;
                    const Pack<i64, PACK> where = indices[position];
                    const Packed other = g[position];
#pragma unroll
                    for (int j = 0; j < PACK; ++j)
                        if (where.x[j] == own) sum[j] += (T)widen(other.x[j]);
                }
        Packed to;
#pragma unroll
        for (int j = 0; j < PACK; ++j) narrow(to.x[j], sum[j]);
        y[i] = to;
    }
}

extern "C" __global__ void __launch_bounds__(256) sums(
    const Packed* x, Three all, double divisor, Packed* y, u64 n, u64 lanes
) {
    const u64 threads = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += threads) {
        const Windowed at = window(all, (I)i, (I)lanes);
        const Packed* own = x + first_pack(all, at, lanes);
        T sum[PACK];
#pragma unroll
        for (int j = 0; j < PACK; ++j) sum[j] = T(0);
        for (S d = 0; d < at.d.count; ++d)
            for (S h = 0; h < at.h.count; ++h)
                for (S w = 0; w < at.w.count; ++w) {
                    const Packed other = own[(u64)place_in(all, at, d, h, w) * lanes];
#pragma unroll
                    for (int j = 0; j < PACK; ++j) sum[j] += (T)widen(other.x[j]);
                }
        Packed to;
#pragma unroll
        for (int j = 0; j < PACK; ++j) narrow(to.x[j], sum[j] / (T)divisor);
        y[i] = to;
    }
}
