// Statistics of channels: x is [outer, channels, inner], and each channel is reduced over outer and inner. Channels are
// cut into pieces whose bounds depend only on the sizes, and the pieces are joined in order, so that the results are
// deterministic.
//
// E is the type of x, G that of g. PACK elements are read at a time. LANES is for channels that come last: the number
// of packs of channels in a row of a block. BATCH reads are in flight at a time.

#define BATCH 8
#define ROWS (256 / LANES)

// The count, the mean, and the sum of squared differences from the mean of some elements (Welford).
struct Moments { T count, mean, squares; };

__device__ inline Moments join(Moments a, Moments b) {
    const T count = a.count + b.count;
    if (count == T(0)) return a;
    const T share = b.count / count, apart = b.mean - a.mean;
    return { count, a.mean + apart * share, a.squares + b.squares + apart * apart * (a.count * share) };
}

// The moments of N elements.
template <int N> __device__ inline Moments moments_of(const T (&x)[N]) {
    T sum = T(0), squares = T(0);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += x[i];
    const T mean = sum * (T(1) / T(N));
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (x[i] - mean) * (x[i] - mean);
    return { T(N), mean, squares };
}

// Two sums.
struct Sums { T total, along; };
__device__ inline Sums join(Sums a, Sums b) { return { a.total + b.total, a.along + b.along }; }

// Joins the values of all threads of a block, for the first thread.
template <class A> __device__ inline A over_block(A own) {
    __shared__ A all[256];
    __syncthreads();
    all[threadIdx.x] = own;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) all[threadIdx.x] = join(all[threadIdx.x], all[threadIdx.x + half]);
        __syncthreads();
    }
    return all[0];
}

// Joins the values of the threads of a block with the same PACK channels, and writes them to their piece.
template <class A> __device__ inline void to_piece(const A (&own)[PACK], A* partial, u64 channels, u64 pieces) {
    __shared__ A all[ROWS][LANES * PACK];
    const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
#pragma unroll
    for (int j = 0; j < PACK; ++j) all[row][lane * PACK + j] = own[j];
    __syncthreads();
    for (int c = threadIdx.x; c < LANES * PACK; c += 256) {
        const u64 channel = (u64)blockIdx.x * (LANES * PACK) + c;
        if (channel >= channels) break;
        A sum = all[0][c];
        for (int other = 1; other < ROWS; ++other) sum = join(sum, all[other][c]);
        partial[channel * pieces + blockIdx.y] = sum;
    }
}

typedef Pack<E, PACK> Packed;

extern "C" __global__ void __launch_bounds__(256) moments_last(
    const E* x, Moments* partial, u64 rows, u64 channels, u64 piece, u64 pieces
) {
    const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    const u64 channel = ((u64)blockIdx.x * LANES + lane) * PACK, first = blockIdx.y * piece;
    const u64 end = first + piece < rows ? first + piece : rows;
    Moments all[PACK];
#pragma unroll
    for (int j = 0; j < PACK; ++j) all[j] = { T(0), T(0), T(0) };
    // All channels of a thread have the same count, so one division suffices.
    T count = T(0);
    if (channel < channels) {
        u64 i = first + row;
        for (; i + (BATCH - 1) * ROWS < end; i += BATCH * ROWS) {
            Packed some[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) some[b] = *(const Packed*)(x + (i + b * ROWS) * channels + channel);
            const T share = T(BATCH) / (count + T(BATCH)), weight = count * share;
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                T own[BATCH];
#pragma unroll
                for (int b = 0; b < BATCH; ++b) own[b] = (T)widen(some[b].x[j]);
                const Moments batch = moments_of(own);
                const T apart = batch.mean - all[j].mean;
                all[j].mean += apart * share;
                all[j].squares += batch.squares + apart * apart * weight;
            }
            count += T(BATCH);
        }
        for (; i < end; i += ROWS) {
            const Packed one = *(const Packed*)(x + i * channels + channel);
            const T share = T(1) / (count + T(1)), weight = count * share;
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const T apart = (T)widen(one.x[j]) - all[j].mean;
                all[j].mean += apart * share;
                all[j].squares += apart * apart * weight;
            }
            count += T(1);
        }
    }
#pragma unroll
    for (int j = 0; j < PACK; ++j) all[j].count = count;
    to_piece(all, partial, channels, pieces);
}

// The offset of a pack of a channel; `pack` counts over outer and inner.
__device__ inline u64 place_of(I pack, I packs_inside, u64 channels, u64 channel) {
    const I outer = pack / packs_inside;
    return (((u64)outer * channels + channel) * packs_inside + (pack - outer * packs_inside)) * PACK;
}

extern "C" __global__ void __launch_bounds__(256) moments_first(
    const E* x, Moments* partial, u64 packs, u64 inside, u64 channels, u64 piece, u64 pieces
) {
    const u64 channel = blockIdx.x, first = blockIdx.y * piece;
    const u64 end = first + piece < packs ? first + piece : packs;
    Moments all = { T(0), T(0), T(0) };
    u64 i = first + threadIdx.x;
    for (; i + 3 * 256 < end; i += 4 * 256) {
        Packed some[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) some[b] = *(const Packed*)(x + place_of((I)(i + b * 256), (I)inside, channels, channel));
        T own[4 * PACK];
#pragma unroll
        for (int b = 0; b < 4; ++b)
#pragma unroll
            for (int j = 0; j < PACK; ++j) own[b * PACK + j] = (T)widen(some[b].x[j]);
        all = join(all, moments_of(own));
    }
    for (; i < end; i += 256) {
        const Packed one = *(const Packed*)(x + place_of((I)i, (I)inside, channels, channel));
        T own[PACK];
#pragma unroll
        for (int j = 0; j < PACK; ++j) own[j] = (T)widen(one.x[j]);
        all = join(all, moments_of(own));
    }
    all = over_block(all);
    if (threadIdx.x == 0) partial[channel * pieces + blockIdx.y] = all;
}

extern "C" __global__ void __launch_bounds__(256) finish_moments(
    const Moments* partial, T* mean, T* var, T* scale, u64 pieces, double eps
) {
    const u64 channel = blockIdx.x;
    Moments all = { T(0), T(0), T(0) };
    for (u64 i = threadIdx.x; i < pieces; i += 256) all = join(all, partial[channel * pieces + i]);
    all = over_block(all);
    if (threadIdx.x == 0) {
        const T variance = all.squares / all.count;
        mean[channel] = all.mean;
        var[channel] = variance;
        scale[channel] = T(1) / sqrt(variance + T(eps));
    }
}

typedef Pack<G, PACK> PackedG;

// The sums of g, and of g times the difference of x from its mean.
extern "C" __global__ void __launch_bounds__(256) sums_last(
    const G* g, const E* x, const T* mean, Sums* partial, u64 rows, u64 channels, u64 piece, u64 pieces
) {
    const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    const u64 channel = ((u64)blockIdx.x * LANES + lane) * PACK, first = blockIdx.y * piece;
    const u64 end = first + piece < rows ? first + piece : rows;
    Sums all[PACK];
#pragma unroll
    for (int j = 0; j < PACK; ++j) all[j] = { T(0), T(0) };
    if (channel < channels) {
        T center[PACK];
#pragma unroll
        for (int j = 0; j < PACK; ++j) center[j] = mean[channel + j];
        auto take = [&](const PackedG& a, const Packed& b) {
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const T own = (T)widen(a.x[j]);
                all[j].total += own;
                all[j].along += own * ((T)widen(b.x[j]) - center[j]);
            }
        };
        u64 i = first + row;
        for (; i + (BATCH / 2 - 1) * ROWS < end; i += BATCH / 2 * ROWS) {
            PackedG a[BATCH / 2];
            Packed b[BATCH / 2];
#pragma unroll
            for (int k = 0; k < BATCH / 2; ++k) {
                a[k] = *(const PackedG*)(g + (i + k * ROWS) * channels + channel);
                b[k] = *(const Packed*)(x + (i + k * ROWS) * channels + channel);
            }
#pragma unroll
            for (int k = 0; k < BATCH / 2; ++k) take(a[k], b[k]);
        }
        for (; i < end; i += ROWS)
            take(*(const PackedG*)(g + i * channels + channel), *(const Packed*)(x + i * channels + channel));
    }
    to_piece(all, partial, channels, pieces);
}

extern "C" __global__ void __launch_bounds__(256) sums_first(
    const G* g, const E* x, const T* mean, Sums* partial, u64 packs, u64 inside, u64 channels, u64 piece, u64 pieces
) {
    const u64 channel = blockIdx.x, first = blockIdx.y * piece;
    const u64 end = first + piece < packs ? first + piece : packs;
    const T center = mean[channel];
    Sums all = { T(0), T(0) };
    auto take = [&](const PackedG& a, const Packed& b) {
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            const T own = (T)widen(a.x[j]);
            all.total += own;
            all.along += own * ((T)widen(b.x[j]) - center);
        }
    };
    u64 i = first + threadIdx.x;
    for (; i + 256 < end; i += 2 * 256) {
        PackedG a[2];
        Packed b[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const u64 at = place_of((I)(i + k * 256), (I)inside, channels, channel);
            a[k] = *(const PackedG*)(g + at), b[k] = *(const Packed*)(x + at);
        }
#pragma unroll
        for (int k = 0; k < 2; ++k) take(a[k], b[k]);
    }
    for (; i < end; i += 256) {
        const u64 at = place_of((I)i, (I)inside, channels, channel);
        take(*(const PackedG*)(g + at), *(const Packed*)(x + at));
    }
    all = over_block(all);
    if (threadIdx.x == 0) partial[channel * pieces + blockIdx.y] = all;
}

// Both sums, the second times the scale; the mean of g; the factor of the difference from the mean; and the scale.
extern "C" __global__ void __launch_bounds__(256) finish_sums(
    const Sums* partial, const T* var, T* total, T* along, T* from_each, T* from_distance, T* scale, u64 pieces, double count, double eps
) {
    const u64 channel = blockIdx.x;
    Sums all = { T(0), T(0) };
    for (u64 i = threadIdx.x; i < pieces; i += 256) all = join(all, partial[channel * pieces + i]);
    all = over_block(all);
    if (threadIdx.x == 0) {
        const T own = T(1) / sqrt(var[channel] + T(eps));
        total[channel] = all.total;
        along[channel] = all.along * own;
        from_each[channel] = all.total / T(count);
        from_distance[channel] = all.along * own * own / T(count);
        scale[channel] = own;
    }
}
