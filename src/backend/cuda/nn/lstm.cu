// One step of an LSTM, forward and backward: what comes between the products. A thread has one number of a state. Rows of gates are four times
// as long as those of states: for what enters, for what is kept, what is new, and what is shown.

__device__ inline T gate(T x) { return sigmoid(x); }

extern "C" __global__ void __launch_bounds__(256) step(
    const E* input, const E* product, const E* last, E* gates, E* memory, E* shown, E* hidden, u64 n, u64 size
) {
    const u64 threads = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += threads) {
        const u64 row = i / size, at = row * 4 * size + (i - row * size);
        T all[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const T sum = (T)widen(input[at + k * size]) + (T)widen(product[at + k * size]);
            all[k] = k == 2 ? tanh(sum) : gate(sum);
            narrow(gates[at + k * size], all[k]);
        }
        const T cell = all[1] * (T)widen(last[i]) + all[0] * all[2];
        narrow(memory[i], cell);
        const T next = all[3] * tanh(cell);
        narrow(shown[i], next);
        narrow(hidden[i], next);
    }
}

// The cotangent of the memory is changed in place: before, it is that of this step's memory, afterwards that of the last one's.
extern "C" __global__ void __launch_bounds__(256) step_back(
    const E* gates, const E* memory, const E* last, const E* from_output, const E* from_next, T* kept, E* sums, E* product, u64 n, u64 size
) {
    const u64 threads = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += threads) {
        const u64 row = i / size, at = row * 4 * size + (i - row * size);
        T all[4], slopes[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) all[k] = (T)widen(gates[at + k * size]);
        const T g = (from_output ? (T)widen(from_output[i]) : T(0)) + (T)widen(from_next[i]);
        const T seen = tanh((T)widen(memory[i]));
        const T own = kept[i] + g * all[3] * (T(1) - seen * seen);
        slopes[0] = own * all[2] * all[0] * (T(1) - all[0]);
        slopes[1] = own * (T)widen(last[i]) * all[1] * (T(1) - all[1]);
        slopes[2] = own * all[0] * (T(1) - all[2] * all[2]);
        slopes[3] = g * seen * all[3] * (T(1) - all[3]);
        kept[i] = own * all[1];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            narrow(sums[at + k * size], slopes[k]);
            narrow(product[at + k * size], slopes[k]);
        }
    }
}
