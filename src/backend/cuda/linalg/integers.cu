// Products of contiguous matrices of integers, plus a row in every row: one thread per element.

extern "C" __global__ void __launch_bounds__(256) multiply(
    const T* a, const T* b, const T* row, T* y, u64 numel, u64 m, u64 k, u64 n
) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < numel; at += all) {
        const u64 column = at % n, line = at / n, batch = line / m;
        T sum = row ? row[column] : T(0);
        for (u64 i = 0; i < k; ++i) sum += a[line * k + i] * b[(batch * k + i) * n + column];
        y[at] = sum;
    }
}
