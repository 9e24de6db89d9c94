// Reading by index. An index out of range is reported, and nothing is read or written there.

// y[.., j, ..] = x[.., index[.., j, ..], ..]. `from` walks x with stride 0 along the indexed dimension, whose stride is `step`.
extern "C" __global__ void __launch_bounds__(256) gather(
    const E* x, const i64* index, E* y, Steps<R> from, Steps<R> chosen, i64 step, i64 size, u64 n, u64 op, u32* taken,
    Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        const i64 at = index[position(i, chosen)];
        y[i] = outside(at, size, op, taken, fault) ? E(0) : x[position(i, from) + at * step];
    }
}

// Indices with negative ones counted from the end. One out of range becomes one that is out of range in any dimension.
extern "C" __global__ void __launch_bounds__(256) wrap(
    const i64* index, i64* y, Steps<R> from, i64 size, u64 n, u64 op, u32* taken, Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        const i64 given = index[position(i, from)], at = given < 0 && given >= -size ? given + size : given;
        y[i] = outside(at, size, op, taken, fault) ? -0x4000000000000000ll : at;
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
        y[i] = kept ? x[position((I)i, from)] : E(0);
    }
}
