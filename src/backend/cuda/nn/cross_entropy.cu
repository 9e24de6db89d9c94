// Cross entropy of contiguous rows of logits of type E against class indices; one block per row. Rows need not be
// aligned: the elements before the first and after the last whole pack are read one by one. WEIGHTED: each class has a
// weight.

// A row's largest element, and the sum of exponentials relative to it.
struct Running { T most, sum; };

__device__ inline void take(Running& all, T x) {
    if (x > all.most) {
        all.sum = all.sum * exp(all.most - x) + T(1);
        all.most = x;
    } else {
        all.sum += exp(x - all.most);
    }
}

struct Targets { const i64* target; const double* weight; i64 classes, ignored; double smoothing; };

__device__ inline T weight_of(const Targets& classes, i64 c) { return WEIGHTED ? T(classes.weight[c]) : T(1); }

// Calls `one(i, x[i])` for the elements outside whole packs, and `pack(i, first)` for the packs.
template <class One, class Packs> __device__ inline void over_row(const E* x, u32 classes, One one, Packs packs) {
    const u32 head = min(classes, (u32)(((16 - ((u64)x & 15)) & 15) / sizeof(E)));
    const u32 count = (classes - head) / PACK, tail = head + count * PACK;
    for (u32 i = threadIdx.x; i < head; i += THREADS) one(i);
    for (u32 p = threadIdx.x; p < count; p += THREADS) packs(head + p * PACK);
    for (u32 i = tail + threadIdx.x; i < classes; i += THREADS) one(i);
}

// `stats` gets each row's largest element and the inverse of its sum of exponentials, `loss` its loss, and `counted` its
// weight.
extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy(
    const E* logits, Targets classes, T* stats, T* loss, T* counted, u64 op, u32* taken, Fault* fault
) {
    const u64 row = blockIdx.x;
    const u32 count = (u32)classes.classes;
    const E* x = logits + row * count;
    Running all = {Bounds<T>::least(), T(0)};
    over_row(x, count, [&](u32 i) { take(all, (T)widen(x[i])); }, [&](u32 i) {
        const Pack<E, PACK> pack = *(const Pack<E, PACK>*)(x + i);
        // One comparison with the largest of a pack, instead of one for every element.
        T v[PACK], most = all.most;
#pragma unroll
        for (int j = 0; j < PACK; ++j) v[j] = (T)widen(pack.x[j]), most = larger(v[j], most);
        if (most == Bounds<T>::least()) return;
        T sum = all.sum * exp(all.most - most);
#pragma unroll
        for (int j = 0; j < PACK; ++j) sum += exp(v[j] - most);
        all.most = most, all.sum = sum;
    });
    const T most = over_group<THREADS, THREADS>(all.most, Bounds<T>::least(), Largest());
    const T own = all.most == Bounds<T>::least() ? T(0) : all.sum * exp(all.most - most);
    const T sum = over_group<THREADS, THREADS>(own, T(0), Plus());
    const T logarithm = log(sum);
    // The uniform part of a smoothed target.
    T even = 0;
    if (classes.smoothing != 0.0) {
        for (u32 i = threadIdx.x; i < count; i += THREADS)
            even += weight_of(classes, i) * ((most - (T)widen(x[i])) + logarithm);
        even = over_group<THREADS, THREADS>(even, T(0), Plus());
    }
    if (threadIdx.x > 0) return;
    stats[2 * row] = most, stats[2 * row + 1] = T(1) / sum;
    const i64 hit = classes.target[row];
    if (hit == classes.ignored || outside(hit, classes.classes, op, taken, fault)) {
        loss[row] = T(0), counted[row] = T(0);
        return;
    }
    const T weight = weight_of(classes, hit);
    // Not (most + logarithm) - logit, which loses digits where the logits are large.
    loss[row] = T((1.0 - classes.smoothing) * (double)weight) * ((most - (T)widen(x[hit])) + logarithm)
        + T(classes.smoothing / (double)count) * even;
    counted[row] = weight;
}

// `g` has a stride of 0 or 1 from row to row. `total` is the sum of all weights; null if they are 1, or the target is
// not smoothed.
extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy_backward(
    const E* logits, Targets classes, const T* stats, const T* g, u64 step, const double* total, E* out
) {
    const u64 row = blockIdx.x;
    const u32 count = (u32)classes.classes;
    const E* x = logits + row * count;
    E* y = out + row * count;
    const i64 hit = classes.target[row];
    const bool counts = hit != classes.ignored && (u64)hit < (u64)count;
    const T most = stats[2 * row], by = g[row * step];
    const T own = counts ? T((1.0 - classes.smoothing) * (double)weight_of(classes, hit)) : T(0);
    const T even = counts ? T(classes.smoothing / (double)count) : T(0);
    const T scale = by * (own + even * T(total ? *total : (double)count)) * stats[2 * row + 1];
    // An ignored row has gradient 0, even if it contains NaN.
    auto value = [&](u32 i, T x) {
        if (!counts) return T(0);
        T v = exp(x - most) * scale;
        if (classes.smoothing != 0.0) v -= by * even * weight_of(classes, i);
        return i == (u32)hit ? v - by * own : v;
    };
    over_row(x, count, [&](u32 i) { narrow(y[i], value(i, (T)widen(x[i]))); }, [&](u32 i) {
        const Pack<E, PACK> pack = *(const Pack<E, PACK>*)(x + i);
        Pack<E, PACK> to;
#pragma unroll
        for (int j = 0; j < PACK; ++j) narrow(to.x[j], value(i + j, (T)widen(pack.x[j])));
        *(Pack<E, PACK>*)(y + i) = to;
    });
}
