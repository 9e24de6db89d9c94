// Updates many parameters in one launch. A block has PIECE elements of one of them. RULE changes the parameter `p` and
// its state `s[0]`, `s[1]`, … by its gradient `g` and the numbers `c(0)`, `c(1)`, …. With RESIDUAL, the last state is
// the rounding residual of the parameter: its value in the compute dtype minus its rounded value.

#define PIECE 4096

// The numbers are in memory and not in the arguments, so that a replay of a CUDA graph reads new ones.
struct Entry { P* parameter; const G* gradient; T* state[STATES]; u64 numel, first; const double* numbers; };
struct Table { Entry entry[ENTRIES]; };

extern "C" __global__ void __launch_bounds__(256) update(const __grid_constant__ Table table, const u64 entries) {
    // Binary search for the last entry whose first block is not after this one.
    u32 low = 0, high = (u32)entries;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (table.entry[middle].first <= blockIdx.x) low = middle;
        else high = middle;
    }
    const Entry& one = table.entry[low];
    const u64 start = (blockIdx.x - one.first) * PIECE, end = start + PIECE < one.numel ? start + PIECE : one.numel;
    auto c = [&](int k) { return T(one.numbers[k]); };
    for (u64 i = start + threadIdx.x; i < end; i += 256) {
        const T gradient = (T)widen(one.gradient[i]);
        T g = gradient, p = (T)widen(one.parameter[i]);
        if (RESIDUAL) p += one.state[STATES - 1][i];
        T s[STATES];
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) s[k] = one.state[k][i];
        { RULE }
#pragma unroll
        for (int k = 0; k < SLOTS; ++k) one.state[k][i] = s[k];
        P rounded;
        narrow(rounded, p);
        one.parameter[i] = rounded;
        if (RESIDUAL) one.state[STATES - 1][i] = p - (T)widen(rounded);
    }
}
