// For each of n values the number of elements in its row of `sequence`, of `len`, that come before it: those that are smaller or,
// for `right`, not larger. A row has `width` values.
extern "C" __global__ void __launch_bounds__(256) searchsorted(
    const X* sequence, const X* values, i64* out, u64 n, u64 len, u64 width, u64 right
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const T value = (T)widen(values[i]);
        const X* row = sequence + i / width * len;
        // A NaN value comes after all elements; NaN elements, at the end of the row, after all other values.
        u64 low = value != value ? len : 0, high = len;
        while (low < high) {
            const u64 middle = low + (high - low) / 2;
            const T x = (T)widen(row[middle]);
            if (right ? x <= value : x < value) low = middle + 1;
            else high = middle;
        }
        out[i] = (i64)low;
    }
}
