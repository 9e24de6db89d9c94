// Forward, by ordinary arithmetic

// Reductions over the eight lanes that share a row.
__device__ inline T largest_of_row(T x) {
#pragma unroll
    for (int step = 1; step < 8; step *= 2) x = fmax(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
__device__ inline T sum_of_row(T x) {
#pragma unroll
    for (int step = 1; step < 8; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// Turns exponents into weights, relative to the largest exponent of each row so far, `most`, and adds them to this
// lane's `total`. The previous `result` is rescaled, since `most` may have grown.
__device__ inline void soften(Products& score, T (&most)[ROWS], T (&total)[ROWS], Sums<E>& result) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        T largest = most[i];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) largest = fmax(largest, score[i][j]);
        largest = largest_of_row(largest);
        // A row without visible keys so far has no largest exponent; 0 is used instead.
        const T offset = largest == nothing() ? T(0) : largest;
        const T shrink = exp(most[i] - offset);
        most[i] = largest;
        T sum = 0;
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            score[i][j] = exp(score[i][j] - offset);
            sum += score[i][j];
        }
        total[i] = fma(total[i], shrink, sum);
#pragma unroll
        for (int e = 0; e < Tile<E>::EACH; ++e) result[i][e] *= shrink;
    }
}

// A block has OWN queries. There is one tile each for keys and for values: the next keys are loaded while the values
// are summed, the next values while the scores are computed.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_tiles_forward(
    int heads, int queries, int keys, T scale, const X* q, Heads sq, const X* k, Heads sk, const X* v, Heads sv,
    X* out, Heads so, T* sums, const T* mask_at, MaskSteps sm
) {
    extern __shared__ __align__(16) u8 space[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    T* const query_tile = (T*)space;
    T* const key_tile = query_tile + OWN * Tile<D>::STEP;
    T* const value_tile = key_tile + OTHER * Tile<D>::STEP;
    T* const weights = value_tile + OTHER * Tile<E>::STEP + warp * WARP_ROWS * WEIGHT_STEP;
    const T* const own_queries = query_tile + warp * WARP_ROWS * Tile<D>::STEP;
    const int blocks = (queries + OWN - 1) / OWN, pair = blockIdx.x / blocks;
    // The blocks with the most keys start first, so that the last ones to finish are short.
    const int first_query = (blocks - 1 - blockIdx.x % blocks) * OWN, first_row = first_query + warp * WARP_ROWS;
    const int batch = pair / heads, head = pair % heads;
    k = sk.find(k, batch, head);
    v = sv.find(v, batch, head);
    const Mask mask(mask_at, sm, batch, head);

    fetch_rows<OWN, D>(query_tile, sq.find(q, batch, head), sq.row, first_query, queries);
    fetch_rows<OTHER, D>(key_tile, k, sk.row, 0, keys);
    Sums<E> result = {};
    T most[ROWS], total[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; ++i) most[i] = nothing();

    const int seen = CAUSAL ? min(keys, first_query + OWN) : keys;
    for (int first_key = 0; first_key < seen; first_key += OTHER) {
        const bool reaches = in_reach<OWN_QUERIES>(first_row, first_key, queries, keys);
        // The keys have arrived, and the previous values are no longer read.
        await_fetches();
        __syncthreads();
        fetch_rows<OTHER, E>(value_tile, v, sv.row, first_key, keys);
        if (reaches) {
            Products score;
            each_with_each<D>(score, own_queries, key_tile);
            to_exponents<OWN_QUERIES>(score, scale, first_row, first_key, queries, keys, mask);
            soften(score, most, total, result);
            put_weights(weights, score);
        }
        // The values have arrived, and the keys are no longer read.
        await_fetches();
        __syncthreads();
        if (first_key + OTHER < seen) fetch_rows<OTHER, D>(key_tile, k, sk.row, first_key + OTHER, keys);
        if (reaches) weigh<E>(result, weights, value_tile);
    }

#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = first_row + i * 4 + (lane >> 3);
        const T sum = sum_of_row(total[i]);
        // A query without visible keys gives zeros.
        const T inverse = sum == 0 ? T(0) : T(1) / sum;
        if ((lane & 7) == 0 && row < queries)
            sums[(i64)pair * queries + row] = sum == 0 ? nothing() : most[i] + log(sum);
#pragma unroll
        for (int e = 0; e < Tile<E>::EACH; ++e) result[i][e] *= inverse;
    }
    put_rows<E>(so.find(out, batch, head), so.row, result, T(1), first_row, queries);
}
