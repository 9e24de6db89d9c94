// Choosing and adding up by index. An index outside its dimension is reported, and nothing is read or written there.

// y[.., j, ..] = x[.., index[.., j, ..], ..]. `from` walks x with no step along the dimension of the index, which has `step`.
extern "C" __global__ void __launch_bounds__(256) gather(
    const E* x, const i64* index, E* y, Steps<R> from, Steps<R> chosen, i64 step, i64 size, u64 n, u64 op, u32* taken,
    Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        const i64 at = index[place(i, chosen)];
        y[i] = outside(at, size, op, taken, fault) ? E(0) : x[place(i, from) + at * step];
    }
}

// For a sort: where each element goes, as a key, and its number. What goes nowhere sorts after everything else.
extern "C" __global__ void __launch_bounds__(256) keys(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, i64 size, u64 n, u64 last, I* key, I* number, u64 op,
    u32* taken, Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        const i64 at = index[place(i, chosen)];
        key[i] = outside(at, size, op, taken, fault) ? (I)last : (I)(place(i, to) + at * step);
        number[i] = i;
    }
}

#ifdef FOLD
// An element and a new one become one. FOLD: 0 the sum, 1 the product, 2 the larger, 3 the smaller.
__device__ inline T fold(T old, T next) {
#if FOLD == 0
    return old + next;
#elif FOLD == 1
    return old * next;
#elif FOLD == 2
    return next > old || next != next ? next : old;
#else
    return next < old || next != next ? next : old;
#endif
}

// Elements of the same key follow each other in the order of their numbers, so that sums have one order. Whoever meets
// the first of them takes all: sources are (outer, n, inner), targets (outer, size, inner).
extern "C" __global__ void __launch_bounds__(256) fold_sorted(
    const I* key, const I* number, const T* source, T* target, u64 n, u64 last, u64 outer, u64 size, u64 inner
) {
    const u64 columns = outer * inner, all = (u64)gridDim.x * 256;
    for (u64 work = (u64)blockIdx.x * 256 + threadIdx.x; work < n * columns; work += all) {
        u64 i = work / columns;
        const u64 column = work % columns, o = column / inner, j = column % inner;
        const I own = key[i];
        if (own == (I)last || (i > 0 && key[i - 1] == own)) continue;
        T* to = target + (o * size + own) * inner + j;
        T result = *to;
        for (; i < n && key[i] == own; ++i) result = fold(result, source[(o * n + number[i]) * inner + j]);
        *to = result;
    }
}
#endif

// Of elements of the same key, which follow each other in the order of their numbers, the last one stays. Sources and targets
// are as above.
extern "C" __global__ void __launch_bounds__(256) put_sorted(
    const I* key, const I* number, const E* source, E* target, u64 n, u64 last, u64 outer, u64 size, u64 inner
) {
    const u64 columns = outer * inner, all = (u64)gridDim.x * 256;
    for (u64 work = (u64)blockIdx.x * 256 + threadIdx.x; work < n * columns; work += all) {
        const u64 i = work / columns, column = work % columns, o = column / inner, j = column % inner;
        const I own = key[i];
        if (own == (I)last || (i + 1 < n && key[i + 1] == own)) continue;
        target[(o * size + own) * inner + j] = source[(o * n + number[i]) * inner + j];
    }
}

// A triangle of each matrix, and zeros elsewhere.
extern "C" __global__ void __launch_bounds__(256) triangle(
    const E* x, E* y, Steps<R> from, u64 n, u64 rows, u64 columns, i64 diagonal, u64 upper
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const i64 column = i % columns, row = i / columns % rows;
        const bool kept = upper ? column - row >= diagonal : column - row <= diagonal;
        y[i] = kept ? x[place((I)i, from)] : E(0);
    }
}
