// A stable radix sort of the numbers below n by keys, and then by lanes: number i belongs to lane i / len. A pass reads keys and
// numbers once: each block has a tile, and gets the counts of each digit in all earlier tiles by decoupled look-back.

#define OWN_BITS (sizeof(I) * 8 - 2)
// The flags of a published count of a digit: that of one tile, or of all tiles up to it.
#define IN_TILE ((I)1 << OWN_BITS)
#define UP_TO_HERE ((I)2 << OWN_BITS)
// Counters per digit, so that threads with the same digit rarely contend.
#define PARTS 4
// Tiles whose published counts are read at a time.
#define AT_ONCE 8
// The flags of a pass: it reads the second buffers; all digits are the same, so that it is skipped; numbers are still in their
// order and not written yet; it is the last pass with work.
#define SECOND 1u
#define ALIKE 2u
#define IN_ORDER 4u
#define LAST 8u

// The sizes of the sort: n numbers in `lanes` lanes of length `len`, and the numbers of passes.
struct Sorted { u64 n, len, lanes, key_passes, passes; };

// Input and output: the source of the keys before the first pass, and the target of the last pass, if it WRITES elements.
#ifdef ORDER
// Element k of lane l of (outer, len, inner) elements, column l % inner of outer index l / inner, has the number l * len + k.
struct Ends {
    const E* x;
    u64 len, inner, descending;
    E* values;
    i64* indices;

    __device__ u64 position(I number) const {
        if (inner == 1) return number;
        const I lane = number / (I)len, k = number % (I)len;
        return ((u64)(lane / (I)inner) * len + k) * inner + lane % (I)inner;
    }
    __device__ u32 passes(Sorted) const { return sizeof(E); }
    __device__ u64 turned(u64 key) const { return descending ? key ^ ONES : key; }
    // Key i in any order: enough to count digits.
    __device__ K any_key(u64 i) const { return (K)turned(sort_key(x[i])); }
    __device__ K key(u64 i) const { return any_key(position((I)i)); }
    __device__ void write(I to, I number, K key, bool has_key) const {
        const u64 target = position(to);
        indices[target] = (i64)(number % (I)len);
        if (!values) return;
        // Most elements can be recovered from their keys without a read.
        const u64 own = turned(key);
        values[target] = has_key && is_known(own) ? element_of(own) : x[position(number)];
    }
};
#define WRITES true
#else
// Keys in memory, which are moved together with the numbers.
struct Ends {
    const K* keys;
    __device__ u32 passes(Sorted of) const { return (u32)of.key_passes; }
    __device__ K any_key(u64 i) const { return keys[i]; }
    __device__ K key(u64 i) const { return keys[i]; }
    __device__ void write(I, I, K, bool) const {}
};
#define WRITES false
#endif

// Counts the digits of keys per block; `counts` is (passes, 256). These kernels have 256 threads.
struct Counts { u32 of[sizeof(K)][256][PARTS]; };
__device__ inline void clear(Counts& own, u32 passes) {
    for (u32 p = 0; p < passes; ++p) for (int part = 0; part < PARTS; ++part) own.of[p][threadIdx.x][part] = 0;
    __syncthreads();
}
__device__ inline void add(Counts& own, K key, u32 passes) {
    for (u32 p = 0; p < passes; ++p) atomicAdd(&own.of[p][(u32)(key >> 8 * p & 255)][threadIdx.x % PARTS], 1u);
}

// The counts of all passes, (passes, 256), become the start of each digit.
__device__ inline void digit_starts(Sorted of, I* counts, u32* plan) {
    u32 state = IN_ORDER;
    int last = -1;
    for (u64 pass = 0; pass < of.passes; ++pass) {
        I own;
        if (pass < of.key_passes) own = __ldcg(&counts[pass * 256 + threadIdx.x]);
        else {
            // The number of lanes with this digit, times their common length.
            const u64 step = (u64)1 << 8 * (pass - of.key_passes), from = threadIdx.x * step, rest = of.lanes % (256 * step);
            const u64 more = rest < from ? 0 : rest - from < step ? rest - from : step;
            own = (I)((of.lanes / (256 * step) * step + more) * of.len);
        }
        const bool same = __syncthreads_or(own == (I)of.n);
        counts[pass * 256 + threadIdx.x] = sum_before<8>(own);
        if (threadIdx.x == 0) plan[pass] = same ? state | ALIKE : state;
        if (!same) state = (state ^ SECOND) & ~IN_ORDER, last = (int)pass;
    }
    if (threadIdx.x > 0) return;
    plan[of.passes] = state;
    // The last pass with work writes the result; if there is none, the first pass does, in the given order.
    if (last >= 0) plan[last] |= LAST;
    else if (WRITES) plan[0] = IN_ORDER | LAST;
}

// Adds the counts of a block to the global ones. The last block to do so computes the starts of digits.
__device__ inline void add_up(Counts& own, Sorted of, I* counts, u32* plan, u32* done) {
    __shared__ bool last;
    __syncthreads();
    for (u32 p = 0; p < of.key_passes; ++p) {
        I sum = 0;
        for (int part = 0; part < PARTS; ++part) sum += own.of[p][threadIdx.x][part];
        if (sum) atomicAdd(&counts[p * 256 + threadIdx.x], sum);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    if (last) digit_starts(of, counts, plan);
}

extern "C" __global__ void __launch_bounds__(256) count_digits(Ends ends, Sorted of, I* counts, u32* plan, u32* done) {
    __shared__ Counts own;
    clear(own, ends.passes(of));
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < of.n; i += all) add(own, ends.any_key(i), ends.passes(of));
    add_up(own, of, counts, plan, done);
}

// The number of elements with the digit of this thread in all earlier tiles; this tile has `count`. A published count is one
// word, so that it is read and written atomically.
__device__ inline I in_tiles_before(I* state, u64 tile, I count) {
    volatile I* const own = state + tile * 256 + threadIdx.x;
    I before = 0;
    if (tile > 0) *own = IN_TILE | count;
    // Several at a time, to hide memory latency.
    for (u64 other = tile; other > 0;) {
        I said[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k)
            said[k] = other > k ? *(volatile const I*)(state + (other - 1 - k) * 256 + threadIdx.x) : UP_TO_HERE;
        int heard = 0;
        bool whole = false;
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            if (whole || heard < k || said[k] == 0) continue;
            before += said[k] & (IN_TILE - 1);
            whole = said[k] & UP_TO_HERE;
            ++heard;
        }
        if (whole) break;
        other -= heard;
    }
    *own = UP_TO_HERE | (before + count);
    return before;
}

// One pass. `state` is (tiles, 256), initially zero; `next` is the state of the next pass, and is cleared.
extern "C" __global__ void __launch_bounds__(THREADS) sweep(
    Ends ends, K* keys0, K* keys1, I* numbers0, I* numbers1, Sorted of, u64 pass, const I* starts, const u32* plan, u32* tickets,
    I* state, I* next
) {
    __shared__ __align__(16) K buffer[TILE];
    __shared__ I goes[256];
    __shared__ u32 ticket;
    static_assert(sizeof(buffer) >= WARPS * 256 * sizeof(u32), "the buffer serves as memory before");
    if (HAS_DIGITS) next[(u64)blockIdx.x * 256 + threadIdx.x] = 0;
    const u32 known = plan[pass];
    if (known & ALIKE) return;
    const bool second = known & SECOND, in_order = known & IN_ORDER, last = WRITES && known & LAST;
    const bool by_lane = pass >= of.key_passes;
    const K* const from_keys = second ? keys1 : keys0;
    const I* const from_numbers = second ? numbers1 : numbers0;
    K* const to_keys = second ? keys0 : keys1;
    I* const to_numbers = second ? numbers0 : numbers1;
    // Tiles are taken in order, so that all earlier tiles have started.
    if (threadIdx.x == 0) ticket = atomicAdd(&tickets[pass], 1u);
    __syncthreads();
    const u64 tile = ticket, first = tile * TILE;
    const u32 here = of.n - first < TILE ? (u32)(of.n - first) : TILE;
    const u32 begin = (threadIdx.x >> 5) * 32 * ITEMS + (threadIdx.x & 31);
    const u32 shift = 8 * (u32)(by_lane ? pass - of.key_passes : pass);
    K key[ITEMS];
    I number[ITEMS];
    u32 digit[ITEMS], to[ITEMS], count[1], start[1];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const u32 i = begin + k * 32;
        key[k] = 0, number[k] = 0;
        // Padding beyond the end comes last.
        digit[k] = 255;
        if (i >= here) continue;
        number[k] = in_order ? (I)(first + i) : from_numbers[first + i];
        if (by_lane) digit[k] = (u32)(number[k] / (I)of.len >> shift & 255);
        else key[k] = in_order ? ends.key(first + i) : from_keys[first + i], digit[k] = (u32)(key[k] >> shift & 255);
    }
    rank(digit, to, count, start, (u32(*)[256])buffer);
    if (HAS_DIGITS) {
        if (threadIdx.x == 255) count[0] -= TILE - here;
        const I before = in_tiles_before(state, tile, (I)count[0]);
        // The target of element i of the sorted tile, minus i.
        goes[threadIdx.x] = starts[pass * 256 + threadIdx.x] + before - (I)start[0];
    }
    I target[ITEMS];
    if (!by_lane) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) buffer[to[k]] = key[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const u32 i = threadIdx.x + k * THREADS;
            key[k] = buffer[i];
            target[k] = goes[(u32)(key[k] >> shift & 255)] + (I)i;
            if (i < here && !last) to_keys[target[k]] = key[k];
        }
        __syncthreads();
    }
    I* const numbers = (I*)buffer;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) numbers[to[k]] = number[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const u32 i = threadIdx.x + k * THREADS;
        if (i >= here) continue;
        const I sorted = numbers[i];
        if (by_lane) target[k] = goes[(u32)(sorted / (I)of.len >> shift & 255)] + (I)i;
        if (!last) to_numbers[target[k]] = sorted;
        else ends.write(target[k], sorted, key[k], !by_lane);
    }
}
