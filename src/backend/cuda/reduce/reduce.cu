// Folds of strided elements of type X into results of type Y. The walk over the results has K dimensions, that over the elements
// of each has R. FOLD is the operation. Long folds are split into pieces whose bounds depend only on the sizes, and the pieces are
// joined in order, so that the bits are always the same.

#define SUM 0
#define MEAN 1
#define PROD 2
#define MAX 3
#define MIN 4
#define DEVIATION 5
#define LOG_SUM_EXP 6
#define ARG_MAX 7
#define ARG_MIN 8
#define MEAN_DIFFERENCE 9

#if FOLD == ARG_MAX || FOLD == ARG_MIN
// The element chosen so far and its index; none if that is negative.
struct A { T value; i64 at; };
__device__ inline A moved(A x, int step) { return A{moved(x.value, step), moved(x.at, step)}; }
__device__ inline A start() { return A{T(0), -1}; }
// A NaN comes before everything else.
__device__ inline bool wins(T a, T b) {
    if (a != a || b != b) return b == b;
    return FOLD == ARG_MAX ? a > b : a < b;
}
__device__ inline A join(A a, A b) {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    if (wins(a.value, b.value)) return a;
    return wins(b.value, a.value) || b.at < a.at ? b : a;
}
__device__ inline A take(T x, T own, i64 at) { return A{x, at}; }
#else
typedef T A;
__device__ inline A start() {
    return FOLD == PROD ? A(1) : FOLD == MAX ? Bounds<A>::least() : FOLD == MIN ? Bounds<A>::most() : A(0);
}
__device__ inline A join(A a, A b) {
    if (FOLD == PROD) return a * b;
    if (FOLD == MAX) return larger(a, b);
    if (FOLD == MIN) return smaller(a, b);
    return a + b;
}
__device__ inline A take(T x, T own, i64 at) {
    if (FOLD == DEVIATION) return (x - own) * (x - own);
    if (FOLD == MEAN_DIFFERENCE) return x - own;
#if FOLD == LOG_SUM_EXP
    return exp(x - own);
#endif
    return x;
}
__device__ inline T finish(A all, T own, double count) {
    if (FOLD == MEAN || FOLD == DEVIATION || FOLD == MEAN_DIFFERENCE) return all / T(count);
#if FOLD == LOG_SUM_EXP
    return log(all) + own;
#endif
    return all;
}
#endif

struct Join { __device__ A operator()(A a, A b) const { return join(a, b); } };

// The targets of the results: values, and the indices of chosen elements.
struct Results { Y* value; i64* at; const T* own; double count; };

__device__ inline void write(const Results& to, u64 result, A all) {
#if FOLD == ARG_MAX || FOLD == ARG_MIN
    if (to.value) narrow(to.value[result], all.value);
    to.at[result] = all.at;
#else
    narrow(to.value[result], finish(all, to.own ? to.own[result] : T(0), to.count));
#endif
}

// For results whose elements have a smaller stride than the results: GROUP threads share a piece.
extern "C" __global__ void __launch_bounds__(256) fold_rows(
    const X* x, Results to, A* partial, Steps<K> kept, Steps<R> folded, u64 results, u64 length, u64 piece, u64 pieces
) {
    const I lane = threadIdx.x % GROUP;
    const u64 groups = (u64)gridDim.x * (256 / GROUP);
    for (u64 g = (u64)blockIdx.x * (256 / GROUP) + threadIdx.x / GROUP; g < results * pieces; g += groups) {
        const u64 result = pieces == 1 ? g : g / pieces, first = pieces == 1 ? 0 : (g % pieces) * piece;
        const I end = (I)(first + piece < length ? first + piece : length);
        const T own = to.own ? to.own[result] : T(0);
        const X* from = x + position((I)result, kept);
        A all = start();
        I i = (I)first + lane;
        for (; i + 3 * GROUP < end; i += 4 * GROUP) {
            X four[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) four[j] = from[position(i + j * GROUP, folded)];
#pragma unroll
            for (int j = 0; j < 4; ++j) all = join(all, take((T)widen(four[j]), own, i + j * GROUP));
        }
        for (; i < end; i += GROUP) all = join(all, take((T)widen(from[position(i, folded)]), own, i));
        all = over_group<GROUP, 256>(all, start(), Join());
        if (lane == 0) {
            if (pieces == 1) write(to, result, all);
            else partial[g] = all;
        }
    }
}

// For results with a smaller stride than their elements: 32 neighbouring packs of PACK results, and eight threads for each.
extern "C" __global__ void __launch_bounds__(256) fold_columns(
    const X* x, Results to, A* partial, Steps<K> kept, Steps<R> folded, u64 results, u64 length, u64 piece, u64 pieces
) {
    typedef Pack<X, PACK> Packed;
    __shared__ A parts[8][PACK][33];
    const int column = threadIdx.x & 31, row = threadIdx.x >> 5;
    const u64 start_of_block = (u64)blockIdx.x * (32 * PACK), result = start_of_block + column * PACK;
    const u64 first = blockIdx.y * piece;
    const I end = (I)(first + piece < length ? first + piece : length);
    A all[PACK];
#pragma unroll
    for (int j = 0; j < PACK; ++j) all[j] = start();
    if (result < results) {
        T own[PACK];
#pragma unroll
        for (int j = 0; j < PACK; ++j) own[j] = to.own ? to.own[result + j] : T(0);
        const X* from = x + position((I)result, kept);
        auto take_row = [&](const Packed& elements, I i) {
#pragma unroll
            for (int j = 0; j < PACK; ++j) all[j] = join(all[j], take((T)widen(elements.x[j]), own[j], i));
        };
        I i = (I)first + row;
        for (; i + 24 < end; i += 32) {
            Packed four[4];
#pragma unroll
            for (int r = 0; r < 4; ++r) four[r] = *(const Packed*)(from + position(i + r * 8, folded));
#pragma unroll
            for (int r = 0; r < 4; ++r) take_row(four[r], i + r * 8);
        }
        for (; i < end; i += 8) take_row(*(const Packed*)(from + position(i, folded)), i);
    }
#pragma unroll
    for (int j = 0; j < PACK; ++j) parts[row][j][column] = all[j];
    __syncthreads();
    for (int c = threadIdx.x; c < 32 * PACK && start_of_block + c < results; c += 256) {
        A sum = parts[0][c % PACK][c / PACK];
        for (int other = 1; other < 8; ++other) sum = join(sum, parts[other][c % PACK][c / PACK]);
        if (pieces == 1) write(to, start_of_block + c, sum);
        else partial[(start_of_block + c) * pieces + blockIdx.y] = sum;
    }
}

// Joins the pieces of every result.
extern "C" __global__ void __launch_bounds__(256) fold_pieces(Results to, const A* partial, u64 results, u64 pieces) {
    for (u64 result = blockIdx.x; result < results; result += gridDim.x) {
        A all = start();
        for (u64 i = threadIdx.x; i < pieces; i += 256) all = join(all, partial[result * pieces + i]);
        all = over_group<256, 256>(all, start(), Join());
        if (threadIdx.x == 0) write(to, result, all);
    }
}
