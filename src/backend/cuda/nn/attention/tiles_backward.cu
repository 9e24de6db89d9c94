// Backward, by ordinary arithmetic, in two kernels: over keys for dK and dV, over queries for dQ. Both recompute P

// For every query: its delta, and its LSE, or plus infinity if it has no visible keys, which gives weights of 0. One
// warp processes a row; all heads together have `rows`.
extern "C" __global__ void __launch_bounds__(256) attention_tiles_prepare(
    int heads, int queries, int rows, const X* gradient, Heads sg, const X* out, Heads so, const T* sums,
    T* lse, T* deltas
) {
    const int lane = threadIdx.x & 31;
    const i64 at = (i64)blockIdx.x * 8 + (threadIdx.x >> 5);
    if (at >= rows) return;
    const int pair = (int)at / queries, row = (int)at % queries, batch = pair / heads, head = pair % heads;
    const X* const g = sg.find(gradient, batch, head) + row * sg.row;
    const X* const y = so.find(out, batch, head) + row * so.row;
    T sum = 0;
#pragma unroll
    for (int e = 0; e < E; e += 32)
        if (e + lane < E) sum = fma((T)widen(g[e + lane]), (T)widen(y[e + lane]), sum);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane != 0) return;
    deltas[at] = sum;
    lse[at] = sums[at] == nothing() ? everything() : sums[at];
}

// dK and dV: a block has OWN keys. A null address is not written to. The next dO is loaded while dS is used, the next
// queries while dO is multiplied with the values.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_tiles_backward_keys(
    int heads, int queries, int keys, T scale, const X* q, Heads sq, const X* k, Heads sk, const X* v,
    Heads sv, const X* gradient, Heads sg, const T* lse, const T* deltas, X* dk, Heads sdk, X* dv, Heads sdv,
    const T* mask_at, MaskSteps sm
) {
    extern __shared__ __align__(16) u8 space[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    T* const key_tile = (T*)space;
    T* const value_tile = key_tile + OWN * Tile<D>::STEP;
    T* const query_tile = value_tile + OWN * Tile<E>::STEP;
    T* const gradient_tile = query_tile + OTHER * Tile<D>::STEP;
    T* const weights = gradient_tile + OTHER * Tile<E>::STEP + warp * WARP_ROWS * WEIGHT_STEP;
    const T* const own_keys = key_tile + warp * WARP_ROWS * Tile<D>::STEP;
    const T* const own_values = value_tile + warp * WARP_ROWS * Tile<E>::STEP;
    const int blocks = (keys + OWN - 1) / OWN, pair = blockIdx.x / blocks;
    const int first_key = blockIdx.x % blocks * OWN, first_row = first_key + warp * WARP_ROWS;
    const int batch = pair / heads, head = pair % heads;
    q = sq.find(q, batch, head);
    gradient = sg.find(gradient, batch, head);
    lse += (i64)pair * queries;
    deltas += (i64)pair * queries;
    const Mask mask(mask_at, sm, batch, head);

    const int start = CAUSAL ? first_key / OTHER * OTHER : 0;
    fetch_rows<OWN, D>(key_tile, sk.find(k, batch, head), sk.row, first_key, keys);
    fetch_rows<OWN, E>(value_tile, sv.find(v, batch, head), sv.row, first_key, keys);
    if (start < queries) fetch_rows<OTHER, E>(gradient_tile, gradient, sg.row, start, queries);
    Sums<D> key_result = {};
    Sums<E> value_result = {};
    for (int first_query = start; first_query < queries; first_query += OTHER) {
        const bool reaches = in_reach<OWN_KEYS>(first_row, first_query, queries, keys);
        Products weight, ds;
        T offset[COLUMNS], delta[COLUMNS];
        // dO has arrived, and the previous queries are no longer read.
        await_fetches();
        __syncthreads();
        fetch_rows<OTHER, D>(query_tile, q, sq.row, first_query, queries);
        if (reaches) {
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                const int query = first_query + j * 8 + (lane & 7);
                // Queries beyond the last get weights of 0.
                offset[j] = query < queries ? lse[query] : everything();
                delta[j] = query < queries ? deltas[query] : T(0);
            }
            each_with_each<E>(ds, own_values, gradient_tile);
        }
        // The queries have arrived.
        await_fetches();
        __syncthreads();
        if (reaches) {
            each_with_each<D>(weight, own_keys, query_tile);
            to_exponents<OWN_KEYS>(weight, scale, first_row, first_query, queries, keys, mask);
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j) {
                    weight[i][j] = exp(weight[i][j] - offset[j]);
                    ds[i][j] = weight[i][j] * (ds[i][j] - delta[j]);
                }
            put_weights(weights, weight);
            __syncwarp();
            weigh<E>(value_result, weights, gradient_tile);
            __syncwarp();
            put_weights(weights, ds);
        }
        // dO is no longer read, and dS is written.
        __syncthreads();
        if (first_query + OTHER < queries)
            fetch_rows<OTHER, E>(gradient_tile, gradient, sg.row, first_query + OTHER, queries);
        if (reaches) weigh<D>(key_result, weights, query_tile);
    }
    // Completes fetches that no query has waited for.
    await_fetches();
    if (dk) put_rows<D>(sdk.find(dk, batch, head), sdk.row, key_result, scale, first_row, keys);
    if (dv) put_rows<E>(sdv.find(dv, batch, head), sdv.row, value_result, T(1), first_row, keys);
}

// dQ: a block has OWN queries. The next keys are loaded during the product of dO and the values, the next values later.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_tiles_backward_queries(
    int heads, int queries, int keys, T scale, const X* q, Heads sq, const X* k, Heads sk, const X* v,
    Heads sv, const X* gradient, Heads sg, const T* lse, const T* deltas, X* dq, Heads sdq, const T* mask_at,
    MaskSteps sm
) {
    extern __shared__ __align__(16) u8 space[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    T* const query_tile = (T*)space;
    T* const gradient_tile = query_tile + OWN * Tile<D>::STEP;
    T* const key_tile = gradient_tile + OWN * Tile<E>::STEP;
    T* const value_tile = key_tile + OTHER * Tile<D>::STEP;
    T* const ds_smem = value_tile + OTHER * Tile<E>::STEP + warp * WARP_ROWS * WEIGHT_STEP;
    const T* const own_queries = query_tile + warp * WARP_ROWS * Tile<D>::STEP;
    const T* const own_gradients = gradient_tile + warp * WARP_ROWS * Tile<E>::STEP;
    const int blocks = (queries + OWN - 1) / OWN, pair = blockIdx.x / blocks;
    // The blocks with the most keys start first, so that the last ones to finish are short.
    const int first_query = (blocks - 1 - blockIdx.x % blocks) * OWN, first_row = first_query + warp * WARP_ROWS;
    const int batch = pair / heads, head = pair % heads;
    k = sk.find(k, batch, head);
    v = sv.find(v, batch, head);
    const Mask mask(mask_at, sm, batch, head);
    T offset[ROWS], delta[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int query = first_row + i * 4 + (lane >> 3);
        offset[i] = query < queries ? lse[(i64)pair * queries + query] : everything();
        delta[i] = query < queries ? deltas[(i64)pair * queries + query] : T(0);
    }

    fetch_rows<OWN, D>(query_tile, sq.find(q, batch, head), sq.row, first_query, queries);
    fetch_rows<OWN, E>(gradient_tile, sg.find(gradient, batch, head), sg.row, first_query, queries);
    fetch_rows<OTHER, E>(value_tile, v, sv.row, 0, keys);
    Sums<D> result = {};
    const int seen = CAUSAL ? min(keys, first_query + OWN) : keys;
    for (int first_key = 0; first_key < seen; first_key += OTHER) {
        const bool reaches = in_reach<OWN_QUERIES>(first_row, first_key, queries, keys);
        Products weight, ds;
        // The values have arrived, and the previous keys are no longer read.
        await_fetches();
        __syncthreads();
        fetch_rows<OTHER, D>(key_tile, k, sk.row, first_key, keys);
        if (reaches) each_with_each<E>(ds, own_gradients, value_tile);
        // The keys have arrived, and the values are no longer read.
        await_fetches();
        __syncthreads();
        if (first_key + OTHER < seen) fetch_rows<OTHER, E>(value_tile, v, sv.row, first_key + OTHER, keys);
        if (reaches) {
            each_with_each<D>(weight, own_queries, key_tile);
            to_exponents<OWN_QUERIES>(weight, scale, first_row, first_key, queries, keys, mask);
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j)
                    ds[i][j] = exp(weight[i][j] - offset[i]) * (ds[i][j] - delta[i]);
            put_weights(ds_smem, ds);
            __syncwarp();
            weigh<D>(result, ds_smem, key_tile);
        }
    }
    put_rows<D>(sdq.find(dq, batch, head), sdq.row, result, scale, first_row, queries);
}
