// Writing by index. An index out of range is reported, and nothing is read or written there.

// The target place of each element, as a key; `last` for an index out of range.
extern "C" __global__ void __launch_bounds__(256) keys(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, Dimension dimension, u64 n, u64 last, I* key, u64 op, u32* taken,
    Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        i64 at = index[position(i, chosen)];
        key[i] = outside(at, dimension, op, taken, fault) ? (I)last : (I)(position(i, to) + at * step);
    }
}

// `winner`, initially 0, becomes for each place the number of its last element plus one.
extern "C" __global__ void __launch_bounds__(256) claim(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, Dimension dimension, u64 n, u64 last, I* winner, u64 op, u32* taken,
    Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        i64 at = index[position(i, chosen)];
        if (!outside(at, dimension, op, taken, fault)) max_at(&winner[position(i, to) + at * step], i + 1);
    }
}

// The same for elements of at most four bytes: the element is stored below its number. 0 marks a place without elements.
extern "C" __global__ void __launch_bounds__(256) claim_with(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, Dimension dimension, u64 n, u64 last, const E* source, u64* claims,
    u64 op, u32* taken, Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        i64 at = index[position(i, chosen)];
        const u64 claim = (u64)(i + 1) << 32 | (u64)source[i];
        if (!outside(at, dimension, op, taken, fault)) max_at(&claims[position(i, to) + at * step], claim);
    }
}

// Sources are (outer, n, inner), targets (outer, size, inner): a key applies to a whole slice.
struct Slices { u64 outer, size, inner; };

// One element of a slice: the number of its key, and its outer and inner positions.
struct Piece { u64 i, o, j; };
__device__ inline Piece piece(u64 work, const Slices& slices) {
    const u64 columns = slices.outer * slices.inner;
    if (columns == 1) return {work, 0, 0};
    const u64 i = work / columns, column = work % columns;
    return {i, column / slices.inner, column % slices.inner};
}

// The sorted keys and the numbers of their elements, as `sort_long.cu` leaves them.
struct Sorted {
    const I *keys, *numbers;
    bool in_order;
    __device__ u64 number(u64 i) const { return in_order ? i : numbers[i]; }
};
__device__ inline Sorted sorted(const I* keys0, const I* keys1, const I* numbers0, const I* numbers1, const u32* known) {
    return {*known & 1 ? keys1 : keys0, *known & 1 ? numbers1 : numbers0, (*known & 4) != 0};
}

#ifdef FOLD
// Combines an element with a new one. FOLD: 0 sum, 1 product, 2 maximum, 3 minimum.
__device__ inline T fold(T old, T next) {
#if FOLD == 0
    return old + next;
#elif FOLD == 1
    return old * next;
#elif FOLD == 2
    return next > old || next != next ? next : old;
#else
    return next < old || next != next ? next : old;
#endif
}

// Elements of the same key are adjacent, in the order of their numbers, so that sums have a fixed order. The thread of the first
// one folds all of them.
extern "C" __global__ void __launch_bounds__(256) fold_sorted(
    const I* keys0, const I* keys1, const I* numbers0, const I* numbers1, const u32* known, const T* source, T* target,
    u64 n, u64 last, Slices slices
) {
    const u64 all = (u64)gridDim.x * 256, works = n * slices.outer * slices.inner;
    const Sorted by = sorted(keys0, keys1, numbers0, numbers1, known);
    for (u64 work = (u64)blockIdx.x * 256 + threadIdx.x; work < works; work += all) {
        const Piece own = piece(work, slices);
        u64 i = own.i;
        const I key = by.keys[i];
        if (key == (I)last || (i > 0 && by.keys[i - 1] == key)) continue;
        T* to = target + (own.o * slices.size + key) * slices.inner + own.j;
        T result = *to;
        for (; i < n && by.keys[i] == key; ++i)
            result = fold(result, source[(own.o * n + by.number(i)) * slices.inner + own.j]);
        *to = result;
    }
}

// The place of each element as a key, and its number among the elements of that place, in no order; `counts`, initially 0,
// becomes the number of elements of each place.
extern "C" __global__ void __launch_bounds__(256) count_places(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, Dimension dimension, u64 n, u64 last, I* key, I* order, I* counts, u64 op,
    u32* taken, Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        i64 at = index[position(i, chosen)];
        const bool nowhere = outside(at, dimension, op, taken, fault);
        const I own = nowhere ? (I)last : (I)(position(i, to) + at * step);
        key[i] = own;
        if (!nowhere) order[i] = atomicAdd(&counts[own], (I)1);
    }
}

// A thread folds the elements of a place in the order of their numbers. More than FEW are already sorted.
extern "C" __global__ void __launch_bounds__(256) fold_groups(
    const I* counts, const I* starts, const I* members, const T* source, T* target, u64 n, u64 last, Slices slices
) {
    const u64 all = (u64)gridDim.x * 256, works = last * slices.outer * slices.inner;
    for (u64 work = (u64)blockIdx.x * 256 + threadIdx.x; work < works; work += all) {
        const Piece own = piece(work, slices);
        const I count = counts[own.i];
        if (count == 0) continue;
        const I* const numbers = members + starts[own.i];
        T* to = target + (own.o * slices.size + own.i) * slices.inner + own.j;
        T result = *to;
        I number = numbers[0];
        for (I k = 0; k < count; ++k) {
            if (count > FEW) number = numbers[k];
            else if (count > 1) {
                // The smallest number that has not been processed.
                const I after = number;
                number = ~(I)0;
                for (I each = 0; each < count; ++each) {
                    const I next = numbers[each];
                    if ((k == 0 || next > after) && next < number) number = next;
                }
            }
            result = fold(result, source[(own.o * n + number) * slices.inner + own.j]);
        }
        *to = result;
    }
}

#if WHOLE
// Integers may be combined in any order, and floats if deterministic algorithms are off.
__device__ inline void add_to(i64* to, i64 x) { add_at((u64*)to, (u64)x); }
__device__ inline void add_to(u64* to, u64 x) { add_at(to, x); }
__device__ inline void add_to(f32* to, f32 x) { add_at(to, x); }
__device__ inline void add_to(f64* to, f64 x) { add_at(to, x); }

__device__ inline void fold_into(T* to, T x) {
#if FOLD == 0
    add_to(to, x);
#elif FOLD == 2
    atomicMax(to, x);
#else
    atomicMin(to, x);
#endif
}

// One element per index.
extern "C" __global__ void __launch_bounds__(256) fold_each(
    const i64* index, Steps<R> to, Steps<R> chosen, i64 step, Dimension dimension, u64 n, u64 last, const T* source, T* target,
    u64 op, u32* taken, Fault* fault
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)n; i += all) {
        i64 at = index[position(i, chosen)];
        if (!outside(at, dimension, op, taken, fault)) fold_into(&target[position(i, to) + at * step], source[i]);
    }
}

extern "C" __global__ void __launch_bounds__(256) fold_whole(
    const I* key, const T* source, T* target, u64 n, u64 last, Slices slices
) {
    const u64 all = (u64)gridDim.x * 256, works = n * slices.outer * slices.inner;
    for (u64 work = (u64)blockIdx.x * 256 + threadIdx.x; work < works; work += all) {
        const Piece own = piece(work, slices);
        if (key[own.i] == (I)last) continue;
        T* to = target + (own.o * slices.size + key[own.i]) * slices.inner + own.j;
        fold_into(to, source[(own.o * n + own.i) * slices.inner + own.j]);
    }
}
#endif
#endif

// Of the elements of the same key, which are adjacent in the order of their numbers, the last one wins.
extern "C" __global__ void __launch_bounds__(256) put_sorted(
    const I* keys0, const I* keys1, const I* numbers0, const I* numbers1, const u32* known, const E* source, E* target,
    u64 n, u64 last, Slices slices
) {
    const u64 all = (u64)gridDim.x * 256, works = n * slices.outer * slices.inner;
    const Sorted by = sorted(keys0, keys1, numbers0, numbers1, known);
    for (u64 work = (u64)blockIdx.x * 256 + threadIdx.x; work < works; work += all) {
        const Piece own = piece(work, slices);
        const I key = by.keys[own.i];
        if (key == (I)last || (own.i + 1 < n && by.keys[own.i + 1] == key)) continue;
        target[(own.o * slices.size + key) * slices.inner + own.j] =
            source[(own.o * n + by.number(own.i)) * slices.inner + own.j];
    }
}

// The same without a sort: `target` becomes `base`, which may be `target` itself, with the last element of each place.
extern "C" __global__ void __launch_bounds__(256) put(
    const I* winner, const E* base, const E* source, E* target, u64 n, u64 last, Slices slices
) {
    const I all = (I)gridDim.x * 256, inner = (I)slices.inner, positions = (I)(slices.outer * last) * inner;
    for (I here = (I)blockIdx.x * 256 + threadIdx.x; here < positions; here += all) {
        const I row = inner == 1 ? here : here / inner, outer = slices.outer == 1 ? 0 : row / (I)last;
        const I from = winner[row - outer * (I)last];
        target[here] = from == 0 ? base[here] : source[(outer * (I)n + from - 1) * inner + (here - row * inner)];
    }
}

// The same with the elements stored by `claim_with`.
extern "C" __global__ void __launch_bounds__(256) put_claimed(
    const u64* claims, const E* base, const E* source, E* target, u64 n, u64 last, Slices
) {
    const I all = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < (I)last; i += all) {
        const u64 claim = claims[i];
        target[i] = claim == 0 ? base[i] : (E)claim;
    }
}
