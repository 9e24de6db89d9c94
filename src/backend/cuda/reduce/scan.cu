// Running folds along the middle dimension of (outer, len, inner) elements of type X, as type Y; backwards from the last one on.
// FOLD is 0 for sums, 1 for products, 2 for logarithms of sums of exponentials, 3 for y[k] = x[k] * y[k - 1] + other[k], and 4
// for the index of the largest or smallest so far, of elements that are given by their bits. Floats are folded in f64. The
// order of operations depends on the sizes alone.

// A is f64 for floats, else T.
template <class S> struct Wide { typedef S type; };
template <> struct Wide<float> { typedef double type; };
typedef typename Wide<T>::type A;

__device__ inline A earlier(A x, int step) { return __shfl_up_sync(0xffffffffu, x, step); }
// That of the last thread of a warp.
__device__ inline A of_last(A x) { return __shfl_sync(0xffffffffu, x, 31); }

#if FOLD == 3
// What a stretch of elements makes of a number: factor * number + term.
struct State { A factor, term; };
__device__ inline State start() { return {A(1), A(0)}; }
__device__ inline State join(State a, State b) { return {a.factor * b.factor, b.factor * a.term + b.term}; }
__device__ inline State earlier(State x, int step) { return {earlier(x.factor, step), earlier(x.term, step)}; }
__device__ inline State of_last(State x) { return {of_last(x.factor), of_last(x.term)}; }
__device__ inline State element(X x, X other, u64, bool) { return {(A)(T)widen(x), (A)(T)widen(other)}; }
__device__ inline void write(Y& to, State x) { narrow(to, (T)x.term); }
#elif FOLD == 4
struct State { u64 key; i64 at; };
__device__ inline State start() { return {0, 0}; }
// Of equal ones the later.
__device__ inline State join(State a, State b) { return b.key >= a.key ? b : a; }
__device__ inline State earlier(State x, int step) {
    return {__shfl_up_sync(0xffffffffu, x.key, step), __shfl_up_sync(0xffffffffu, x.at, step)};
}
__device__ inline State of_last(State x) {
    return {__shfl_sync(0xffffffffu, x.key, 31), __shfl_sync(0xffffffffu, x.at, 31)};
}
__device__ inline State element(X x, X, u64 k, bool smallest) {
    const u64 own = sort_key(x);
    // Only a NaN among floats has this key, and it is chosen in any case.
    const bool nan = ORDER == 2 && own == ONES;
    return {smallest && !nan ? own ^ ONES : own, (i64)k};
}
__device__ inline void write(Y& to, State x) { to = x.at; }
#else
typedef A State;
__device__ inline State element(X x, X, u64, bool) { return (A)(T)widen(x); }
__device__ inline void write(Y& to, State x) { narrow(to, (T)x); }
#if FOLD == 0
__device__ inline State start() { return A(0); }
__device__ inline State join(State a, State b) { return a + b; }
#elif FOLD == 1
__device__ inline State start() { return A(1); }
__device__ inline State join(State a, State b) { return a * b; }
#else
__device__ inline State start() { return __longlong_as_double(0xfff0000000000000ll); }
__device__ inline State join(State a, State b) {
    const double low = a < b ? a : b, high = a < b ? b : a;
    // Equal infinities have no difference.
    return low == high && isinf(high) ? high : high + log1p(exp(low - high));
}
#endif
#endif

__device__ inline u64 first_of(u64 lane, u64 len, u64 inner) { return lane / inner * len * inner + lane % inner; }

extern "C" __global__ void __launch_bounds__(256) short_lanes(
    const X* x, const X* other, Y* y, u64 lanes, u64 len, u64 inner, u64 backwards, u64 smallest
) {
    for (u64 lane = (u64)blockIdx.x * 256 + threadIdx.x; lane < lanes; lane += (u64)gridDim.x * 256) {
        const u64 first = first_of(lane, len, inner);
        State state = start();
        for (u64 k = 0; k < len; ++k) {
            const u64 at = first + (backwards ? len - 1 - k : k) * inner;
            state = join(state, element(x[at], other[at], k, smallest));
            write(y[at], state);
        }
    }
}

// The fold of the states of all threads before this one and its own; `all` becomes that of all threads.
__device__ inline State folded(State own, State& all) {
    __shared__ State totals[8];
    const int warp = threadIdx.x >> 5, thread = threadIdx.x & 31;
    for (int step = 1; step < 32; step <<= 1) {
        const State left = earlier(own, step);
        if (thread >= step) own = join(left, own);
    }
    __syncthreads();
    if (thread == 31) totals[warp] = own;
    __syncthreads();
    all = start();
    for (int each = 0; each < 8; ++each) {
        if (each == warp) own = join(all, own);
        all = join(all, totals[each]);
    }
    return own;
}

// A block has a lane: 256 elements at a time. Threads beyond the end come last, where nobody looks at their states.
extern "C" __global__ void __launch_bounds__(256) long_lanes(
    const X* x, const X* other, Y* y, u64 lanes, u64 len, u64 inner, u64 backwards, u64 smallest
) {
    for (u64 lane = blockIdx.x; lane < lanes; lane += gridDim.x) {
        const u64 first = first_of(lane, len, inner);
        State before = start();
        for (u64 turn = 0; turn < len; turn += 256) {
            const u64 k = turn + threadIdx.x, at = first + (backwards ? len - 1 - k : k) * inner;
            State all;
            const State own = folded(k < len ? element(x[at], other[at], k, smallest) : start(), all);
            if (k < len) write(y[at], join(before, own));
            before = join(before, all);
        }
    }
}

// Elements of a thread that follow each other: 32 bytes, or as many as there are registers for.
constexpr int EACH = FOLD >= 3 || sizeof(X) == 8 ? 4 : sizeof(X) == 4 ? 8 : 16;

template <class V> __device__ inline bool is_aligned(const V* at) { return (u64)at % alignof(Pack<V, EACH>) == 0; }

// What a thread has of a lane: EACH elements from `k` on, as far as there are some before `end`.
struct Elements { Pack<X, EACH> x, other; };

__device__ inline Elements elements(
    const X* x, const X* other, u64 k, u64 end, u64 len, u64 inner, u64 backwards, bool packed
) {
    Elements found;
    if (packed && k + EACH <= end) {
        found.x = *(const Pack<X, EACH>*)(x + k);
        if (FOLD == 3) found.other = *(const Pack<X, EACH>*)(other + k);
        return found;
    }
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
        if (k + j >= end) break;
        const u64 at = (backwards ? len - 1 - k - j : k + j) * inner;
        found.x.x[j] = x[at];
        if (FOLD == 3) found.other.x[j] = other[at];
    }
    return found;
}

__device__ inline State element_of(const Elements& of, int j, u64 k, u64 end, bool smallest) {
    return k + j < end ? element(of.x.x[j], FOLD == 3 ? of.other.x[j] : of.x.x[j], k + j, smallest) : start();
}

// The fold of the first `count` states, by all threads of a block, each of which gets it.
__device__ inline State before_piece(const State* totals, u64 count) {
    const u64 each = (count + 255) / 256;
    State own = start(), all;
    for (u64 k = threadIdx.x * each; k < (threadIdx.x + 1) * each && k < count; ++k) own = join(own, totals[k]);
    folded(own, all);
    return all;
}

// A block has a piece of a lane, and each of its warps an eighth of that, so that they do not wait for each other. There are
// `pieces` of each lane, of `piece` elements, a multiple of 256 * EACH. The first time, without `y`, this finds the folds of all
// pieces, `totals`, and in `inside` of what comes before each warp in its piece. Then each block folds what comes before its own
// piece, and pieces come in reverse order: the last ones are still in the cache.
template <bool FIRST> __device__ inline void pieces_of_lanes(
    const X* x, const X* other, Y* y, u64 lanes, u64 len, u64 inner, u64 backwards, u64 smallest, u64 piece, u64 pieces,
    State* totals, State* inside
) {
    __shared__ State sums[8];
    const int warp = threadIdx.x >> 5, thread = threadIdx.x & 31;
    for (u64 number = blockIdx.x; number < lanes * pieces; number += gridDim.x) {
        const u64 unit = FIRST ? number : lanes * pieces - 1 - number;
        const u64 first = first_of(unit / pieces, len, inner), begin = unit % pieces * piece + warp * (piece / 8);
        const u64 end = begin + piece / 8 < len ? begin + piece / 8 : len;
        const X *const from = x + first, *const from_other = other + first;
        const bool packed = inner == 1 && !backwards && is_aligned(from) && is_aligned(from_other) && is_aligned(y + first);
        State before = start();
        if (!FIRST) before = join(before_piece(totals + unit / pieces * pieces, unit % pieces), inside[unit * 8 + warp]);
#if FOLD == 0 || FOLD == 2
        if (FIRST) {
            // A sum does not ask for the order: each thread has one, and waits for no other before the end. Products do, which
            // overflow where the factors of one thread are large.
            State own = start();
#pragma unroll 4
            for (u64 k = begin + thread * EACH; k < end; k += 32 * EACH) {
                const Elements now = elements(from, from_other, k, end, len, inner, backwards, packed);
#pragma unroll
                for (int j = 0; j < EACH; ++j) own = join(own, element_of(now, j, k, end, smallest));
            }
            for (int step = 1; step < 32; step <<= 1) {
                const State left = earlier(own, step);
                if (thread >= step) own = join(left, own);
            }
            before = of_last(own);
        } else
#endif
        {
            // The next elements are asked for before the threads wait for each other.
            Elements next = elements(from, from_other, begin + thread * EACH, end, len, inner, backwards, packed);
            for (u64 turn = begin; turn < end; turn += 32 * EACH) {
                const u64 k = turn + thread * EACH;
                const Elements now = next;
                next = elements(from, from_other, k + 32 * EACH, end, len, inner, backwards, packed);
                State own[EACH];
                own[0] = element_of(now, 0, k, end, smallest);
#pragma unroll
                for (int j = 1; j < EACH; ++j) own[j] = join(own[j - 1], element_of(now, j, k, end, smallest));
                State up = own[EACH - 1];
                for (int step = 1; step < 32; step <<= 1) {
                    const State left = earlier(up, step);
                    if (thread >= step) up = join(left, up);
                }
                const State left = earlier(up, 1), mine = thread == 0 ? before : join(before, left);
                if (!FIRST && packed && k + EACH <= end) {
                    Pack<Y, EACH> to;
#pragma unroll
                    for (int j = 0; j < EACH; ++j) write(to.x[j], join(mine, own[j]));
                    *(Pack<Y, EACH>*)(y + first + k) = to;
                } else if (!FIRST) {
#pragma unroll
                    for (int j = 0; j < EACH; ++j) {
                        const u64 at = first + (backwards ? len - 1 - k - j : k + j) * inner;
                        if (k + j < end) write(y[at], join(mine, own[j]));
                    }
                }
                before = join(before, of_last(up));
            }
        }
        if (!FIRST) continue;
        if (thread == 0) sums[warp] = before;
        __syncthreads();
        if (threadIdx.x == 0) {
            State sum = start();
            for (int each = 0; each < 8; ++each) {
                inside[unit * 8 + each] = sum;
                sum = join(sum, sums[each]);
            }
            totals[unit] = sum;
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) fold_pieces(
    const X* x, const X* other, Y* y, u64 lanes, u64 len, u64 inner, u64 backwards, u64 smallest, u64 piece, u64 pieces,
    State* totals, State* inside
) {
    pieces_of_lanes<true>(x, other, y, lanes, len, inner, backwards, smallest, piece, pieces, totals, inside);
}

extern "C" __global__ void __launch_bounds__(256) write_pieces(
    const X* x, const X* other, Y* y, u64 lanes, u64 len, u64 inner, u64 backwards, u64 smallest, u64 piece, u64 pieces,
    State* totals, State* inside
) {
    pieces_of_lanes<false>(x, other, y, lanes, len, inner, backwards, smallest, piece, pieces, totals, inside);
}
