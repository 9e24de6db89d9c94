// Softmax, log-softmax, and their derivatives, along the middle of three dimensions of contiguous elements of type E.
// WHICH: 0 is softmax and 1 log-softmax of `a`; 2 and 3 are their derivatives, from the cotangent `a` and the result
// `b`.

// The reductions of a row: its largest element and the sum of exponentials, or, for the derivatives, one sum.
struct Row { T most, sum; };

__device__ inline T result(T a, T b, Row row) {
    if (WHICH == 0) return exp(a - row.most) / row.sum;
    if (WHICH == 1) return (a - row.most) - log(row.sum);
    if (WHICH == 2) return b * (a - row.sum);
    return a - exp(b) * row.sum;
}

// `get(a, i)` and `get(b, i)` are elements `i` of the row; each `lane` of `GROUP` threads reads every GROUP-th.
template <class Get> __device__ inline Row look(const E* a, const E* b, I length, I lane, Get get) {
    Row row = {T(0), T(0)};
    if (WHICH < 2) {
        row.most = Bounds<T>::least();
        for (I i = lane; i < length; i += GROUP) row.most = larger(row.most, get(a, i));
        row.most = over_group<GROUP, 256>(row.most, Bounds<T>::least(), Largest());
        for (I i = lane; i < length; i += GROUP) row.sum += exp(get(a, i) - row.most);
    } else {
        for (I i = lane; i < length; i += GROUP) row.sum += WHICH == 2 ? get(a, i) * get(b, i) : get(a, i);
    }
    row.sum = over_group<GROUP, 256>(row.sum, T(0), Plus());
    return row;
}

// Rows of contiguous elements.
extern "C" __global__ void __launch_bounds__(256) softmax_rows(const E* a, const E* b, E* y, u64 rows, u64 length) {
    const I lane = threadIdx.x % GROUP;
    const u64 step = (u64)gridDim.x * (256 / GROUP);
    for (u64 at = (u64)blockIdx.x * (256 / GROUP) + threadIdx.x / GROUP; at < rows; at += step) {
        const E *ra = a + at * length, *rb = b + at * length;
        E* ry = y + at * length;
        auto get = [](const E* x, I i) { return (T)widen(x[i]); };
        const Row row = look(ra, rb, (I)length, lane, get);
        for (I i = lane; i < (I)length; i += GROUP) narrow(ry[i], result(get(ra, i), WHICH < 2 ? T(0) : get(rb, i), row));
    }
}

// Interleaved rows: one thread per row, so that reads are coalesced. GROUP is 1.
extern "C" __global__ void __launch_bounds__(256) softmax_columns(
    const E* a, const E* b, E* y, u64 rows, u64 length, u64 inner
) {
    const u64 step = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < rows; at += step) {
        const u64 first = at / inner * inner * length + at % inner;
        auto get = [=](const E* x, I i) { return (T)widen(x[first + i * inner]); };
        const Row row = look(a, b, (I)length, 0, get);
        for (I i = 0; i < (I)length; ++i) {
            narrow(y[first + i * inner], result(get(a, i), WHICH < 2 ? T(0) : get(b, i), row));
        }
    }
}
