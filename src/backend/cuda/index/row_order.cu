// The order of rows by their first elements, then by their second, and so on. Runs of `run` numbers that are in order are merged
// two by two: each number finds how many of the other run come before it. Rows that are equal stay in their order.

__device__ inline bool comes_before(const E* x, u64 columns, u64 a, u64 b, bool if_equal) {
    for (u64 column = 0; column < columns; ++column) {
        const u64 left = sort_key(x[a * columns + column]), right = sort_key(x[b * columns + column]);
        if (left != right) return left < right;
    }
    return if_equal;
}

// Without `from` the numbers are in their own order.
extern "C" __global__ void __launch_bounds__(256) merge_rows(
    const E* x, u64 rows, u64 columns, u64 run, const i64* from, i64* to
) {
    auto number = [&](u64 i) { return from ? (u64)from[i] : i; };
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < rows; i += (u64)gridDim.x * 256) {
        const u64 own = number(i), begin = i / (2 * run) * (2 * run);
        const u64 middle = begin + run < rows ? begin + run : rows, end = middle + run < rows ? middle + run : rows;
        const bool left = i < middle;
        const u64 first = left ? middle : begin;
        u64 low = first, high = left ? end : middle;
        while (low < high) {
            const u64 half = low + (high - low) / 2;
            // An equal one of the first run comes before one of the second.
            if (comes_before(x, columns, number(half), own, !left)) low = half + 1;
            else high = half;
        }
        to[begin + (i - (left ? begin : middle)) + (low - first)] = (i64)own;
    }
}
