// The lexicographic order of rows, by a stable merge sort. Sorted runs of `run` numbers are merged in pairs: each number finds
// its position in the other run by binary search.

__device__ inline bool comes_before(const E* x, u64 columns, u64 a, u64 b, bool if_equal) {
    for (u64 column = 0; column < columns; ++column) {
        const u64 left = sort_key(x[a * columns + column]), right = sort_key(x[b * columns + column]);
        if (left != right) return left < right;
    }
    return if_equal;
}

// Without `from` the numbers are 0, 1, 2, ..
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
            // Of equal rows, that of the first run comes first.
            if (comes_before(x, columns, number(half), own, !left)) low = half + 1;
            else high = half;
        }
        to[begin + (i - (left ? begin : middle)) + (low - first)] = (i64)own;
    }
}
