// Tiled attention by ordinary arithmetic, in full precision: for dtypes and sizes that the tensor cores do not support.
//
// This file has the shared code; tiles_forward.cu or tiles_backward.cu comes after it. The prelude and heads.cu come
// before it, and so do X, the type of elements, and these macros:
//   D, E     the sizes of a query or key, and of a value
//   CAUSAL   1: query i attends to keys 0..=i
//   MASK     1: numbers of type T are added to the scaled scores
//   PACK     the number of elements that are read and written at a time; divides D, E and all strides
//   WARPS, ROWS, COLUMNS   the shape of a tile, see below
//   BLOCKS   the number of blocks that a multiprocessor should hold
//
// A block has OWN rows, of queries or of keys, and loops over the rows of the other side, OTHER at a time. Tiles of
// both are in shared memory, in the compute dtype, padded with zeros. A warp has 4 ROWS of the block's rows. It
// computes the products of its rows with the other rows, and the weighted sums of the other rows, without other warps:
// the block synchronizes only when tiles are loaded.
//
// The lanes of a warp form 4 rows of 8: lane l has the warp's rows l / 8 + 4 i, and the other rows l % 8 + 8 j.
// Neighbouring lanes read neighbouring rows. Row strides are odd multiples of 16 bytes, which avoids bank conflicts.
//
// Terms are those of common.cu, but exponents are of base e: a score that a mask sets to the lowest finite number then
// stays that number, forward and backward. The kernels are deterministic: two runs give the same bits.

constexpr int THREADS = WARPS * 32;
// Rows of a warp, of a block, and of a tile of the other side.
constexpr int WARP_ROWS = 4 * ROWS, OWN = WARPS * WARP_ROWS, OTHER = 8 * COLUMNS;
// Elements that a thread reads at a time from shared memory.
constexpr int WIDE = 16 / sizeof(T);
// The stride of a row of weights: the four rows of a warp that are written at once are in different banks.
constexpr int WEIGHT_STEP = OTHER + 8;

// Rows of SIZE elements in shared memory.
template <int SIZE> struct Tile {
    // The length of a row in products, and its length with zero padding.
    static constexpr int ALONG = (SIZE + WIDE - 1) / WIDE * WIDE, PADDED = (SIZE + 15) / 16 * 16;
    static constexpr int STEP = PADDED + WIDE;
    // Elements of a sum per lane: EACH = GROUPS * NEIGHBOURS.
    static constexpr int EACH = PADDED / 8, NEIGHBOURS = WIDE == 4 && PADDED % 32 == 0 ? 4 : 2;
    static constexpr int GROUPS = EACH / NEIGHBOURS;
};

// A lane's products of its rows with the other rows, and its part of a weighted sum of rows.
typedef T Products[ROWS][COLUMNS];
template <int SIZE> using Sums = T[ROWS][Tile<SIZE>::EACH];

// ---------------------------------------------------------------------------------------------------------------------
// Numbers

__device__ inline T nothing() { return (T)__int_as_float(0xff800000); }
__device__ inline T everything() { return (T)__int_as_float(0x7f800000); }
template <int N> __device__ inline Pack<T, N> load(const T* at) { return *(const Pack<T, N>*)at; }

// ---------------------------------------------------------------------------------------------------------------------
// Loads and stores of tiles

// Copies BYTES asynchronously to shared memory, or zeros if there is nothing to copy.
template <int BYTES> __device__ inline void fetch_bytes(T* to, const T* from, bool there) {
    const u32 at = (u32)__cvta_generic_to_shared(to);
    const int count = there ? BYTES : 0;
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(count) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(at), "l"(from), "r"(count), "n"(BYTES)
                     : "memory");
    }
}
// Waits until all fetches of this thread have completed.
__device__ inline void await_fetches() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ inline void fetch_pack(T* to, const T* from, bool there) { fetch_bytes<PACK * sizeof(T)>(to, from, there); }
// Elements that are widened go through registers.
template <class Half> __device__ inline void fetch_pack(T* to, const Half* from, bool there) {
    Pack<Half, PACK> pack = {};
    if (there) pack = *(const Pack<Half, PACK>*)from;
    constexpr int N = PACK < WIDE ? PACK : WIDE;
#pragma unroll
    for (int i = 0; i < PACK; i += N) {
        Pack<T, N> wide;
#pragma unroll
        for (int n = 0; n < N; ++n) wide.x[n] = widen(pack.x[i + n]);
        *(Pack<T, N>*)(to + i) = wide;
    }
}

// Fetches COUNT rows from `first` on, and zeros for those at `end` or beyond.
template <int COUNT, int SIZE> __device__ inline void fetch_rows(T* tile, const X* from, i64 step, int first, int end) {
    constexpr int PACKS = Tile<SIZE>::PADDED / PACK;
#pragma unroll 4
    for (int at = threadIdx.x; at < COUNT * PACKS; at += THREADS) {
        const int row = at / PACKS, column = at % PACKS * PACK;
        const bool there = first + row < end && column < SIZE;
        fetch_pack(tile + row * Tile<SIZE>::STEP + column, there ? from + (first + row) * step + column : from, there);
    }
}

// Writes the rows of a warp from `first` on, times a factor, except for those at `end` or beyond.
template <int SIZE> __device__ inline void put_rows(X* to, i64 step, const Sums<SIZE>& sums, T by, int first, int end) {
    constexpr int NEIGHBOURS = Tile<SIZE>::NEIGHBOURS, N = PACK < NEIGHBOURS ? PACK : NEIGHBOURS;
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = first + i * 4 + (lane >> 3);
        if (row >= end) continue;
#pragma unroll
        for (int at = 0; at < Tile<SIZE>::EACH; at += N) {
            const int column = at / NEIGHBOURS * 8 * NEIGHBOURS + (lane & 7) * NEIGHBOURS + at % NEIGHBOURS;
            Pack<X, N> pack;
#pragma unroll
            for (int n = 0; n < N; ++n) narrow(pack.x[n], sums[i][at + n] * by);
            if (column < SIZE) *(Pack<X, N>*)(to + row * step + column) = pack;
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Products

// The products of a warp's rows with all other rows. `own` is the first row of the warp.
template <int SIZE> __device__ inline void each_with_each(Products& product, const T* own, const T* other) {
    const int lane = threadIdx.x & 31;
    own += (lane >> 3) * Tile<SIZE>::STEP;
    other += (lane & 7) * Tile<SIZE>::STEP;
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) product[i][j] = 0;
#pragma unroll 2
    for (int at = 0; at < Tile<SIZE>::ALONG; at += WIDE) {
        Pack<T, WIDE> a[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) a[i] = load<WIDE>(own + i * 4 * Tile<SIZE>::STEP + at);
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const Pack<T, WIDE> b = load<WIDE>(other + j * 8 * Tile<SIZE>::STEP + at);
#pragma unroll
            for (int w = 0; w < WIDE; ++w)
#pragma unroll
                for (int i = 0; i < ROWS; ++i) product[i][j] = fma(a[i].x[w], b.x[w], product[i][j]);
        }
    }
}

// Writes a warp's weights to shared memory for `weigh`; the warp must synchronize in between.
__device__ inline void put_weights(T* weights, const Products& weight) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
            weights[(i * 4 + (lane >> 3)) * WEIGHT_STEP + j * 8 + (lane & 7)] = weight[i][j];
}

// Adds the weighted other rows to the sums of a warp's rows.
template <int SIZE> __device__ inline void weigh(Sums<SIZE>& sums, const T* weights, const T* other) {
    constexpr int N = Tile<SIZE>::NEIGHBOURS;
    const int lane = threadIdx.x & 31;
    weights += (lane >> 3) * WEIGHT_STEP;
    other += (lane & 7) * N;
#pragma unroll 1
    for (int at = 0; at < OTHER; at += WIDE) {
        Pack<T, WIDE> weight[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) weight[i] = load<WIDE>(weights + i * 4 * WEIGHT_STEP + at);
#pragma unroll
        for (int w = 0; w < WIDE; ++w)
#pragma unroll
            for (int g = 0; g < Tile<SIZE>::GROUPS; ++g) {
                const Pack<T, N> x = load<N>(other + (at + w) * Tile<SIZE>::STEP + g * 8 * N);
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
#pragma unroll
                    for (int n = 0; n < N; ++n)
                        sums[i][g * N + n] = fma(weight[i].x[w], x.x[n], sums[i][g * N + n]);
            }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Which keys a query attends to

// The additive mask of a query and a key.
struct Mask {
    const T* at;
    i64 row, column;
    __device__ Mask(const T* mask, const MaskSteps& steps, int batch, int head)
        : at(mask + batch * steps.batch + head * steps.head), row(steps.row), column(steps.column) {}
    __device__ T operator()(int query, int key) const { return at[query * row + key * column]; }
};

// Whether the rows of a block are queries or keys; the other rows are the other side.
enum Side { OWN_QUERIES, OWN_KEYS };

// Whether any query attends to any key between the rows of a warp, from `first_own` on, and a tile of other rows.
template <Side SIDE> __device__ inline bool in_reach(int first_own, int first_other, int queries, int keys) {
    if (first_own >= (SIDE == OWN_QUERIES ? queries : keys)) return false;
    const int last_query = SIDE == OWN_QUERIES ? first_own + WARP_ROWS - 1 : first_other + OTHER - 1;
    return !CAUSAL || (SIDE == OWN_QUERIES ? first_other : first_own) <= last_query;
}

// Turns products into exponents: scaled, masked, and minus infinity if a query does not attend to a key.
template <Side SIDE> __device__ inline void to_exponents(
    Products& score, T scale, int first_own, int first_other, int queries, int keys, const Mask& mask
) {
    const int lane = threadIdx.x & 31;
    const int last_key = SIDE == OWN_QUERIES ? first_other + OTHER - 1 : first_own + WARP_ROWS - 1;
    const int first_query = SIDE == OWN_QUERIES ? first_own : first_other;
    const bool all_seen = !MASK && last_key < keys && (!CAUSAL || last_key <= first_query);
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const int own = first_own + i * 4 + (lane >> 3), other = first_other + j * 8 + (lane & 7);
            const int query = SIDE == OWN_QUERIES ? own : other, key = SIDE == OWN_QUERIES ? other : own;
            if (all_seen) score[i][j] *= scale;
            else if (key >= keys || (CAUSAL && key > query) || (MASK && query >= queries)) score[i][j] = nothing();
            else score[i][j] = MASK ? fma(score[i][j], scale, mask(query, key)) : score[i][j] * scale;
        }
}
