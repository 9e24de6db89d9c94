// One step of an LSTM, forward and backward: the elementwise part or, for small states, the product as well. A thread
// has one element of a state. Rows of gates are four times as long as those of states: input gate, forget gate,
// candidate, output gate.

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

// The cotangent `kept` is updated in place: from that of this step's cell state to that of the previous one.
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

// A block has EXAMPLES examples and UNITS units of the state, a thread for each pair; the inner dimension goes in
// pieces of DEPTH.
constexpr int EXAMPLES = 32, UNITS = 4, DEPTH = 64, THREADS = EXAMPLES * UNITS;

struct alignas(4 * sizeof(T)) Four { T v[4]; };

// The products of row `row + threadIdx.x / UNITS` of `a` with the rows of `b` that belong to unit
// `unit + threadIdx.x % UNITS`: one for each gate, `units` rows apart. Elements out of range count as 0.
template <int GATES>
__device__ inline void multiply(const E* a, u64 row, u64 rows, const E* b, u64 unit, u64 units, u64 depth, T (&sums)[GATES]) {
    // Padded rows, so that a warp has no bank conflicts.
    __shared__ Four left[EXAMPLES][DEPTH / 4 + 1], right[GATES * UNITS][DEPTH / 4 + 1];
    constexpr int LEFT = EXAMPLES * DEPTH / THREADS, RIGHT = GATES * UNITS * DEPTH / THREADS;
    const int me = threadIdx.x, example = me / UNITS, own = me % UNITS, column = me % DEPTH, first = me / DEPTH;
    constexpr int STEP = THREADS / DEPTH;
    T next_left[LEFT], next_right[RIGHT];
    auto fetch = [&](u64 from) {
        const bool inside = from + column < depth;
#pragma unroll
        for (int i = 0; i < LEFT; ++i) {
            const u64 at = row + first + i * STEP;
            next_left[i] = inside && at < rows ? (T)widen(a[at * depth + from + column]) : T(0);
        }
#pragma unroll
        for (int i = 0; i < RIGHT; ++i) {
            const int line = first + i * STEP;
            const u64 at = unit + line % UNITS;
            next_right[i] = inside && at < units ? (T)widen(b[(line / UNITS * units + at) * depth + from + column]) : T(0);
        }
    };
#pragma unroll
    for (int k = 0; k < GATES; ++k) sums[k] = T(0);
    fetch(0);
    for (u64 from = 0; from < depth; from += DEPTH) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < LEFT; ++i) left[first + i * STEP][column / 4].v[column % 4] = next_left[i];
#pragma unroll
        for (int i = 0; i < RIGHT; ++i) right[first + i * STEP][column / 4].v[column % 4] = next_right[i];
        __syncthreads();
        // Loads of the next piece overlap with the sums of this one.
        if (from + DEPTH < depth) fetch(from + DEPTH);
#pragma unroll 8
        for (int q = 0; q < DEPTH / 4; ++q) {
            const Four x = left[example][q];
#pragma unroll
            for (int k = 0; k < GATES; ++k) {
                const Four w = right[k * UNITS + own][q];
#pragma unroll
                for (int j = 0; j < 4; ++j) sums[k] += x.v[j] * w.v[j];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) whole_step(
    const E* input, const E* weight, const E* bias, const E* hidden, const E* last, E* gates, E* memory, E* shown, u64 batch, u64 size
) {
    const u64 row = (u64)blockIdx.y * EXAMPLES, unit = (u64)blockIdx.x * UNITS;
    T sums[4];
    multiply<4>(hidden, row, batch, weight, unit, size, size, sums);
    const u64 example = row + threadIdx.x / UNITS, own = unit + threadIdx.x % UNITS;
    if (example >= batch || own >= size) return;
    const u64 i = example * size + own, at = example * 4 * size + own;
    T all[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        T sum = (T)widen(input[at + k * size]) + sums[k];
        if (bias) sum += (T)widen(bias[k * size + own]);
        all[k] = k == 2 ? tanh(sum) : gate(sum);
        narrow(gates[at + k * size], all[k]);
    }
    const T cell = all[1] * (T)widen(last[i]) + all[0] * all[2];
    narrow(memory[i], cell);
    narrow(shown[i], all[3] * tanh(cell));
}

// `next` are the cotangents of the preactivations of the next step, or null: then `from_next` is the cotangent of the
// hidden state. The weight is transposed.
extern "C" __global__ void __launch_bounds__(THREADS) whole_step_back(
    const E* next, const E* weight, const E* from_next, const E* from_output, const E* gates, const E* memory, const E* last, T* kept, E* sums,
    u64 batch, u64 size
) {
    const u64 row = (u64)blockIdx.y * EXAMPLES, unit = (u64)blockIdx.x * UNITS;
    T product[1] = {T(0)};
    if (next) multiply<1>(next, row, batch, weight, unit, size, 4 * size, product);
    const u64 example = row + threadIdx.x / UNITS, own = unit + threadIdx.x % UNITS;
    if (example >= batch || own >= size) return;
    const u64 i = example * size + own, at = example * 4 * size + own;
    T g = next ? product[0] : (T)widen(from_next[i]);
    if (from_output) g += (T)widen(from_output[i]);
    T all[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) all[k] = (T)widen(gates[at + k * size]);
    const T seen = tanh((T)widen(memory[i]));
    const T part = kept[i] + g * all[3] * (T(1) - seen * seen);
    narrow(sums[at], part * all[2] * all[0] * (T(1) - all[0]));
    narrow(sums[at + size], part * (T)widen(last[i]) * all[1] * (T(1) - all[1]));
    narrow(sums[at + 2 * size], part * all[0] * (T(1) - all[2] * all[2]));
    narrow(sums[at + 3 * size], g * seen * all[3] * (T(1) - all[3]));
    kept[i] = part * all[1];
}
