// A stable sort of numbers below n by keys, digit by digit, and then by the digits of the lanes that they belong to: number i
// is of lane i / len. A pass reads keys and numbers once: the blocks have a tile each, and learn from those before them how many
// elements of each digit came before.

#define OWN_BITS (sizeof(I) * 8 - 2)
// What a block says about a digit: how many there are in its tile, or in all tiles up to it.
#define IN_TILE ((I)1 << OWN_BITS)
#define UP_TO_HERE ((I)2 << OWN_BITS)
// Numbers for each digit, so that threads that meet the same one seldom wait for each other.
#define PARTS 4
// Tiles that are asked at once for what they have to say.
#define AT_ONCE 8
// What is known of a pass: which of the two buffers it reads, whether all digits are the same, so that there is nothing to do,
// and whether numbers are still in their order, and not written yet.
#define SECOND 1u
#define ALIKE 2u
#define IN_ORDER 4u

// Counts digits of keys, block by block; `counts` is (passes, 256).
struct Counts { u32 of[sizeof(K)][256][PARTS]; };
__device__ inline void clear(Counts& own, u32 passes) {
    for (u32 p = 0; p < passes; ++p) for (int part = 0; part < PARTS; ++part) own.of[p][threadIdx.x][part] = 0;
    __syncthreads();
}
__device__ inline void add(Counts& own, K key, u32 passes) {
    for (u32 p = 0; p < passes; ++p) atomicAdd(&own.of[p][(u32)(key >> 8 * p & 255)][threadIdx.x % PARTS], 1u);
}
__device__ inline void add_up(Counts& own, u32 passes, I* counts) {
    __syncthreads();
    for (u32 p = 0; p < passes; ++p) {
        I sum = 0;
        for (int part = 0; part < PARTS; ++part) sum += own.of[p][threadIdx.x][part];
        if (sum) atomicAdd(&counts[p * 256 + threadIdx.x], sum);
    }
}

extern "C" __global__ void __launch_bounds__(256) count_digits(const K* key, u64 n, u64 passes, I* counts) {
    __shared__ Counts own;
    clear(own, (u32)passes);
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) add(own, key[i], (u32)passes);
    add_up(own, (u32)passes, counts);
}

// The counts of all passes, (passes, 256), become where each digit begins. One block.
extern "C" __global__ void __launch_bounds__(256) digit_starts(
    I* counts, u64 n, u64 key_passes, u64 passes, u64 lanes, u64 len, u32* plan
) {
    u32 state = IN_ORDER;
    for (u64 pass = 0; pass < passes; ++pass) {
        I own;
        if (pass < key_passes) own = counts[pass * 256 + threadIdx.x];
        else {
            // Lanes with this digit, of which all are of the same length.
            const u64 step = (u64)1 << 8 * (pass - key_passes), from = threadIdx.x * step, rest = lanes % (256 * step);
            const u64 more = rest < from ? 0 : rest - from < step ? rest - from : step;
            own = (I)((lanes / (256 * step) * step + more) * len);
        }
        const bool same = __syncthreads_or(own == (I)n);
        counts[pass * 256 + threadIdx.x] = sum_before<8>(own);
        if (threadIdx.x == 0) plan[pass] = same ? state | ALIKE : state;
        if (!same) state = (state ^ SECOND) & ~IN_ORDER;
    }
    if (threadIdx.x == 0) plan[passes] = state;
}

// One pass. `state` is (tiles, 256), with zeros; `next` is that of the next pass, and becomes zero.
extern "C" __global__ void __launch_bounds__(256) sweep(
    K* keys0, K* keys1, I* numbers0, I* numbers1, u64 n, u64 pass, u64 key_passes, u64 len, const I* starts, const u32* plan,
    u32* tickets, I* state, I* next
) {
    __shared__ K buffer[TILE];
    __shared__ I goes[256];
    __shared__ u32 ticket;
    next[(u64)blockIdx.x * 256 + threadIdx.x] = 0;
    const u32 known = plan[pass];
    if (known & ALIKE) return;
    const bool second = known & SECOND, by_lane = pass >= key_passes;
    const K* const from_keys = second ? keys1 : keys0;
    const I* const from_numbers = second ? numbers1 : numbers0;
    K* const to_keys = second ? keys0 : keys1;
    I* const to_numbers = second ? numbers0 : numbers1;
    // Tiles are taken in order, so that those before are under way.
    if (threadIdx.x == 0) ticket = atomicAdd(&tickets[pass], 1u);
    __syncthreads();
    const u64 tile = ticket, first = tile * TILE;
    const u32 here = n - first < TILE ? (u32)(n - first) : TILE;
    const u32 begin = (threadIdx.x >> 5) * 32 * ITEMS + (threadIdx.x & 31);
    const u32 shift = 8 * (u32)(by_lane ? pass - key_passes : pass);
    K key[ITEMS];
    I number[ITEMS];
    u32 digit[ITEMS], to[ITEMS], count[1], start[1];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const u32 i = begin + k * 32;
        key[k] = 0, number[k] = 0;
        // What is beyond the end comes last.
        digit[k] = 255;
        if (i >= here) continue;
        number[k] = known & IN_ORDER ? (I)(first + i) : from_numbers[first + i];
        if (by_lane) digit[k] = (u32)(number[k] / (I)len >> shift & 255);
        else key[k] = from_keys[first + i], digit[k] = (u32)(key[k] >> shift & 255);
    }
    rank(digit, to, count, start);
    if (threadIdx.x == 255) count[0] -= TILE - here;
    // What this block says is one word: no one sees a part of it.
    volatile I* const own = state + tile * 256 + threadIdx.x;
    I before = 0;
    if (tile > 0) {
        *own = IN_TILE | (I)count[0];
        // Several at once, since each takes a way to memory and back.
        for (u64 other = tile; other > 0;) {
            I said[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k)
                said[k] = other > k ? *(volatile const I*)(state + (other - 1 - k) * 256 + threadIdx.x) : UP_TO_HERE;
            int known_here = 0;
            bool whole = false;
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                if (whole || known_here < k || said[k] == 0) continue;
                before += said[k] & (IN_TILE - 1);
                whole = said[k] & UP_TO_HERE;
                ++known_here;
            }
            if (whole) break;
            other -= known_here;
        }
    }
    *own = UP_TO_HERE | (before + (I)count[0]);
    // Where element i of the sorted tile goes, less i.
    goes[threadIdx.x] = starts[pass * 256 + threadIdx.x] + before - (I)start[0];
    I target[ITEMS];
    if (!by_lane) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) buffer[to[k]] = key[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const u32 i = threadIdx.x + k * 256;
            const K sorted = buffer[i];
            target[k] = goes[(u32)(sorted >> shift & 255)] + (I)i;
            if (i < here) to_keys[target[k]] = sorted;
        }
        __syncthreads();
    }
    I* const numbers = (I*)buffer;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) numbers[to[k]] = number[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const u32 i = threadIdx.x + k * 256;
        if (i >= here) continue;
        const I sorted = numbers[i];
        if (by_lane) target[k] = goes[(u32)(sorted / (I)len >> shift & 255)] + (I)i;
        to_numbers[target[k]] = sorted;
    }
}

#ifdef ORDER
// Element k of lane l of (outer, len, inner) elements, which is column l % inner of l / inner, has the number l * len + k.
__device__ inline u64 position(I number, I len, I inner) {
    const I lane = number / len, k = number % len;
    return ((u64)(lane / inner) * len + k) * inner + lane % inner;
}

extern "C" __global__ void __launch_bounds__(256) sort_keys(
    const E* x, u64 n, u64 len, u64 inner, u64 descending, K* key, I* counts
) {
    __shared__ Counts own;
    clear(own, sizeof(E));
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const u64 element = sort_key(x[inner == 1 ? i : position((I)i, (I)len, (I)inner)]);
        key[i] = (K)(descending ? element ^ ONES : element);
        add(own, key[i], sizeof(E));
    }
    add_up(own, sizeof(E), counts);
}

extern "C" __global__ void __launch_bounds__(256) write_sorted(
    const E* x, const I* numbers0, const I* numbers1, const u32* known, u64 n, u64 len, u64 inner, E* values, i64* indices
) {
    const I* const numbers = *known & SECOND ? numbers1 : numbers0;
    const bool in_order = *known & IN_ORDER;
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const I from = in_order ? (I)i : numbers[i];
        const u64 to = inner == 1 ? i : position((I)i, (I)len, (I)inner);
        if (values) values[to] = x[inner == 1 ? from : position(from, (I)len, (I)inner)];
        indices[to] = (i64)(from % (I)len);
    }
}
#endif
