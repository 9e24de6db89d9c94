// Cumulative folds along the middle dimension of (outer, len, inner) elements of type X, as type Y; backwards from the last one on.
// FOLD is 0 for sums, 1 for products, 2 for logarithms of sums of exponentials, 3 for y[k] = x[k] * y[k - 1] + other[k], and 4
// for the index of the largest or smallest so far, of elements that are given by their bits. Floats are folded in f64. The
// order of operations depends only on the sizes.

// A is f64 for floats, else T.
template <class S> struct Wide { typedef S type; };
template <> struct Wide<float> { typedef double type; };
typedef typename Wide<T>::type A;

__device__ inline A earlier(A x, int step) { return __shfl_up_sync(0xffffffffu, x, step); }
// The value of the last thread of a warp.
__device__ inline A of_last(A x) { return __shfl_sync(0xffffffffu, x, 31); }

#if FOLD == 3
// The effect of a stretch of elements on a number: factor * number + term.
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
// The later of equal ones.
__device__ inline State join(State a, State b) { return b.key >= a.key ? b : a; }
__device__ inline State earlier(State x, int step) {
    return {__shfl_up_sync(0xffffffffu, x.key, step), __shfl_up_sync(0xffffffffu, x.at, step)};
}
__device__ inline State of_last(State x) {
    return {__shfl_sync(0xffffffffu, x.key, 31), __shfl_sync(0xffffffffu, x.at, 31)};
}
__device__ inline State element(X x, X, u64 k, bool smallest) {
    const u64 own = sort_key(x);
    // Of all floats only NaN has this key, and it is always chosen.
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
    // The difference of equal infinities is NaN.
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

// One block per lane: 256 elements at a time. Threads beyond the end come last, where their states are not used.
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

// The number of consecutive elements of a thread: 16 bytes, or more for large elements.
constexpr int EACH = FOLD >= 3 || sizeof(X) >= 4 ? 4 : 16 / sizeof(X);

template <class V> __device__ inline bool is_aligned(const V* at) { return (u64)at % alignof(Pack<V, EACH>) == 0; }

// The part of a lane that a warp has: elements from `begin` to `end`.
struct Part {
    const X *x, *other;
    u64 begin, end, len, inner, backwards, smallest;
    // Whether EACH elements can be read, and written, at once.
    bool packed;

    __device__ u64 at(u64 k) const { return (backwards ? len - 1 - k : k) * inner; }
};

// The elements of a thread: EACH from `k` on, as far as they exist.
struct Elements { Pack<X, EACH> x, other; };

__device__ inline Elements elements(const Part& of, u64 k) {
    Elements found;
    if (of.packed && k + EACH <= of.end) {
        found.x = *(const Pack<X, EACH>*)(of.x + k);
        if (FOLD == 3) found.other = *(const Pack<X, EACH>*)(of.other + k);
        return found;
    }
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
        if (k + j >= of.end) break;
        found.x.x[j] = of.x[of.at(k + j)];
        if (FOLD == 3) found.other.x[j] = of.other[of.at(k + j)];
    }
    return found;
}

template <bool WHOLE = false> __device__ inline State element_of(const Part& of, const Elements& here, int j, u64 k) {
    return WHOLE || k + j < of.end ? element(here.x.x[j], FOLD == 3 ? here.other.x[j] : here.x.x[j], k + j, of.smallest) : start();
}

// Folds the elements of the threads of a warp with the state before them, writes the results, and advances `before`. WHOLE if all
// threads have all of their elements, and these can be written at once.
template <bool WRITES, bool WHOLE = false> __device__ inline void turn(const Part& of, const Elements& now, u64 k, State& before, Y* y) {
    State own[EACH];
    own[0] = element_of<WHOLE>(of, now, 0, k);
#pragma unroll
    for (int j = 1; j < EACH; ++j) own[j] = join(own[j - 1], element_of<WHOLE>(of, now, j, k));
    const int thread = threadIdx.x & 31;
    State up = own[EACH - 1];
    for (int step = 1; step < 32; step <<= 1) {
        const State left = earlier(up, step);
        if (thread >= step) up = join(left, up);
    }
    if (WRITES) {
        const State left = earlier(up, 1), mine = thread == 0 ? before : join(before, left);
        if (WHOLE || of.packed && k + EACH <= of.end) {
            Pack<Y, EACH> to;
#pragma unroll
            for (int j = 0; j < EACH; ++j) write(to.x[j], join(mine, own[j]));
            *(Pack<Y, EACH>*)(y + k) = to;
        } else {
#pragma unroll
            for (int j = 0; j < EACH; ++j)
                if (k + j < of.end) write(y[of.at(k + j)], join(mine, own[j]));
        }
    }
    before = join(before, of_last(up));
}

// The fold of the first `count` states, computed by all threads of a block, and returned to each.
__device__ inline State before_piece(const State* totals, u64 count) {
    const u64 each = (count + 255) / 256;
    State own = start(), all;
    for (u64 k = threadIdx.x * each; k < (threadIdx.x + 1) * each && k < count; ++k) own = join(own, totals[k]);
    folded(own, all);
    return all;
}

// Lanes in pieces: each lane has `pieces` pieces of `piece` elements, a multiple of 8 * 512. A block has one piece, and each of
// its warps an eighth of that, so that they do not wait for each other. `totals` are the folds of all pieces, and `inside` those
// of the elements before each warp in its piece.
struct Pieces {
    const X *x, *other;
    Y* y;
    u64 lanes, len, inner, backwards, smallest, piece, pieces;
    State *totals, *inside;

    __device__ u64 first(u64 unit) const { return first_of(unit / pieces, len, inner); }
    __device__ Part part(u64 unit) const {
        const u64 begin = unit % pieces * piece + (threadIdx.x >> 5) * (piece / 8), end = begin + piece / 8;
        const X *const from = x + first(unit), *const from_other = other + first(unit);
        const bool packed =
            inner == 1 && !backwards && is_aligned(from) && is_aligned(from_other) && is_aligned(y + first(unit));
        return {from, from_other, begin, end < len ? end : len, len, inner, backwards, smallest, packed};
    }
};

extern "C" __global__ void __launch_bounds__(256) fold_pieces(Pieces all) {
    __shared__ State sums[8];
    const int warp = threadIdx.x >> 5, thread = threadIdx.x & 31;
    for (u64 unit = blockIdx.x; unit < all.lanes * all.pieces; unit += gridDim.x) {
        const Part part = all.part(unit);
        State before = start();
#if FOLD == 0 || FOLD == 2
        // Sums do not depend on the order: each thread has its own, and waits for no other before the end. Products do, as they
        // could overflow if the factors of one thread are large.
        State own = start();
#pragma unroll (FOLD == 0 ? 8 : 1)
        for (u64 k = part.begin + thread * EACH; k < part.end; k += 32 * EACH) {
            const Elements now = elements(part, k);
#pragma unroll
            for (int j = 0; j < EACH; ++j) own = join(own, element_of(part, now, j, k));
        }
        for (int step = 1; step < 32; step <<= 1) {
            const State left = earlier(own, step);
            if (thread >= step) own = join(left, own);
        }
        before = of_last(own);
#else
        // The next elements are requested before the threads wait for each other.
        Elements next = elements(part, part.begin + thread * EACH);
        for (u64 k = part.begin + thread * EACH; k < part.end + thread * EACH; k += 32 * EACH) {
            const Elements now = next;
            next = elements(part, k + 32 * EACH);
            turn<false>(part, now, k, before, nullptr);
        }
#endif
        if (thread == 0) sums[warp] = before;
        __syncthreads();
        if (threadIdx.x == 0) {
            State sum = start();
            for (int each = 0; each < 8; ++each) {
                all.inside[unit * 8 + each] = sum;
                sum = join(sum, sums[each]);
            }
            all.totals[unit] = sum;
        }
        __syncthreads();
    }
}

// The number of elements of a warp in one stage of copies to shared memory. There are two stages.
constexpr int STAGE = 2048 / sizeof(X) / (FOLD == 3 ? 2 : 1) < 512 ? 2048 / sizeof(X) / (FOLD == 3 ? 2 : 1) : 512;

// Starts asynchronous copies of 16 bytes each.
__device__ inline void fetch(X* to, const X* from, int thread) {
    constexpr int WORDS = STAGE * sizeof(X) / 16;
    for (int k = thread; k < WORDS; k += 32) {
#if __CUDA_ARCH__ >= 800
        const u32 address = (u32)__cvta_generic_to_shared((uint4*)to + k);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"((const uint4*)from + k));
#else
        ((uint4*)to)[k] = ((const uint4*)from)[k];
#endif
    }
}
// Closes the current stage, and waits for all stages but the last.
__device__ inline void close_stage() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}
__device__ inline void await_stage() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
    __syncwarp();
}

// Each block folds the states before its piece. Pieces are in reverse order, as the last ones are still in the cache.
extern "C" __global__ void __launch_bounds__(256) write_pieces(Pieces all) {
    __shared__ __align__(64) X held[8][2][STAGE];
    __shared__ __align__(64) X held_other[FOLD == 3 ? 8 : 1][2][FOLD == 3 ? STAGE : 8];
    const int warp = threadIdx.x >> 5, thread = threadIdx.x & 31, other_warp = FOLD == 3 ? warp : 0;
    for (u64 number = blockIdx.x; number < all.lanes * all.pieces; number += gridDim.x) {
        const u64 unit = all.lanes * all.pieces - 1 - number;
        const Part part = all.part(unit);
        Y* const y = all.y + all.first(unit);
        // Whether the part is whole, and its elements are aligned for copies of 16 bytes.
        const bool whole = part.packed && part.end == part.begin + all.piece / 8;
        const u64 stages = whole && ((u64)part.x | (u64)part.other) % 16 == 0 ? all.piece / 8 / STAGE : 0;
        // Elements are copied while the states before them are read.
        const auto ask = [&](u64 stage) {
            if (stage < stages) {
                fetch(held[warp][stage % 2], part.x + part.begin + stage * STAGE, thread);
                if (FOLD == 3) fetch(held_other[other_warp][stage % 2], part.other + part.begin + stage * STAGE, thread);
            }
            close_stage();
        };
        ask(0);
        ask(1);
        const State before_it = before_piece(all.totals + unit / all.pieces * all.pieces, unit % all.pieces);
        State before = join(before_it, all.inside[unit * 8 + warp]);
        for (u64 stage = 0; stage < stages; ++stage) {
            await_stage();
#pragma unroll 2
            for (int i = thread * EACH; i < STAGE; i += 32 * EACH) {
                Elements now;
                now.x = *(const Pack<X, EACH>*)&held[warp][stage % 2][i];
                if (FOLD == 3) now.other = *(const Pack<X, EACH>*)&held_other[other_warp][stage % 2][i];
                turn<true, true>(part, now, part.begin + stage * STAGE + i, before, y);
            }
            __syncwarp();
            ask(stage + 2);
        }
        if (stages > 0) continue;
        for (u64 k = part.begin + thread * EACH; k < part.end + thread * EACH; k += 32 * EACH)
            turn<true>(part, elements(part, k), k, before, y);
    }
}
