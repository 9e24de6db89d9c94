// The largest elements, or the sums, of windows over three dimensions of planes that lie in order. A thread has a result.

// As the Rust struct of this name.
struct Windows { i64 size, count, num, den, start, end, step; };
struct Three { Windows dim[3]; };
struct Range { i64 first, count; };

__device__ inline i64 floor_divide(i64 a, i64 b) {
    const i64 q = a / b;
    return q - (q * b > a);
}

__device__ inline Range elements(const Windows& w, i64 o) {
    i64 first = floor_divide(o * w.num + w.start, w.den), end = floor_divide(o * w.num + w.end, w.den);
    if (first < 0) first += (w.step - 1 - first) / w.step * w.step;
    if (end > w.size) end = w.size;
    return { first, end > first ? (end - first + w.step - 1) / w.step : 0 };
}

struct Windowed { u64 plane; Range d, h, w; };
__device__ inline Windowed window(const Three& all, u64 i) {
    const u64 w = i % all.dim[2].count, rest = i / all.dim[2].count;
    const u64 h = rest % all.dim[1].count, more = rest / all.dim[1].count;
    const u64 d = more % all.dim[0].count;
    return { more / all.dim[0].count, elements(all.dim[0], d), elements(all.dim[1], h), elements(all.dim[2], w) };
}

// The element of a window with these numbers, in its plane.
__device__ inline u64 place_in(const Three& all, const Windowed& at, i64 d, i64 h, i64 w) {
    const i64 y = at.d.first + d * all.dim[0].step, z = at.h.first + h * all.dim[1].step, x = at.w.first + w * all.dim[2].step;
    return (y * all.dim[1].size + z) * all.dim[2].size + x;
}

__device__ inline u64 plane_size(const Three& all) { return all.dim[0].size * all.dim[1].size * all.dim[2].size; }

// Of NaN the last is the largest, as on the CPU.
extern "C" __global__ void __launch_bounds__(256) largest(const T* x, Three all, T* values, i64* indices, u64 n) {
    const u64 threads = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += threads) {
        const Windowed at = window(all, i);
        const T* own = x + at.plane * plane_size(all);
        u64 best = place_in(all, at, 0, 0, 0);
        T value = own[best];
        for (i64 d = 0; d < at.d.count; ++d)
            for (i64 h = 0; h < at.h.count; ++h)
                for (i64 w = 0; w < at.w.count; ++w) {
                    const u64 place = place_in(all, at, d, h, w);
                    const T other = own[place];
                    if (other > value || other != other) best = place, value = other;
                }
        values[i] = value;
        if (indices) indices[i] = (i64)best;
    }
}

// For each element the sum of those of g whose index it is: they are among its windows, whose sizes are those of the inverse.
extern "C" __global__ void __launch_bounds__(256) at_largest(const T* g, const i64* indices, Three all, T* y, u64 n) {
    const u64 threads = (u64)gridDim.x * 256;
    const u64 size = all.dim[0].count * all.dim[1].count * all.dim[2].count;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += threads) {
        const Windowed at = window(all, i);
        const u64 first = at.plane * plane_size(all);
        const i64 own = (i64)(i % size);
        T sum = T(0);
        for (i64 d = 0; d < at.d.count; ++d)
            for (i64 h = 0; h < at.h.count; ++h)
                for (i64 w = 0; w < at.w.count; ++w) {
                    const u64 place = first + place_in(all, at, d, h, w);
                    if (indices[place] == own) sum += g[place];
                }
        y[i] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(256) sums(const T* x, Three all, double divisor, T* y, u64 n) {
    const u64 threads = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += threads) {
        const Windowed at = window(all, i);
        const T* own = x + at.plane * plane_size(all);
        T sum = T(0);
        for (i64 d = 0; d < at.d.count; ++d)
            for (i64 h = 0; h < at.h.count; ++h)
                for (i64 w = 0; w < at.w.count; ++w) sum += own[place_in(all, at, d, h, w)];
        y[i] = sum / (T)divisor;
    }
}
