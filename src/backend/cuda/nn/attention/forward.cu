// Forward, for sm_80 and later

namespace forward {
// A warp has M * 16 queries; a block has BM queries and processes BN keys at a time.
constexpr int M = D <= 64 && !MASK ? 2 : 1, WARPS = 8 / M, THREADS = WARPS * 32;
constexpr int BM = M * 16 * WARPS, BN = D <= 96 ? 64 : 32;
}

// A block has BM queries and loops over keys and values in tiles of BN, double-buffered in shared memory.
extern "C" __global__ void __launch_bounds__(forward::THREADS) attention_forward(
    int heads, int queries, int keys, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, Half* out, Heads so, float* sums, const void* mask_at, MaskSteps sm
) {
    using namespace forward;
    extern __shared__ __align__(128) u8 space[];
    const u32 query_tile = shared_address(space), key_tiles = query_tile + BM * STEP;
    const u32 value_tiles = key_tiles + 2 * BN * STEP;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int blocks = (queries + BM - 1) / BM, pair = blockIdx.x / blocks;
    // The blocks with the most keys start first, so that the last ones to finish are short.
    const int first_query = (blocks - 1 - blockIdx.x % blocks) * BM;
    const int batch = pair / heads, head = pair % heads, first_row = first_query + warp * M * 16;
    q = sq.find(q, batch, head);
    k = sk.find(k, batch, head);
    v = sv.find(v, batch, head);
    out = so.find(out, batch, head);
    const Mask mask(mask_at, sm, batch, head);
    const int seen = CAUSAL ? min(keys, first_query + BM) : keys, tiles = (seen + BN - 1) / BN;

    fetch_rows<BM, THREADS>(query_tile, q, sq.row, first_query, queries);
    fetch_rows<BN, THREADS>(key_tiles, k, sk.row, 0, keys);
    commit_fetches();
    fetch_rows<BN, THREADS>(value_tiles, v, sv.row, 0, keys);
    commit_fetches();

    float result[M][D / 8][4] = {}, most[M][2], total[M][2] = {};
#pragma unroll
    for (int m = 0; m < M; ++m) most[m][0] = most[m][1] = NOTHING;
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;

    for (int tile = 0; tile < tiles; ++tile) {
        const u32 key_tile = key_tiles + (tile & 1) * BN * STEP, value_tile = value_tiles + (tile & 1) * BN * STEP;
        // These keys have arrived, and the previous ones are no longer read.
        await_fetches<1>();
        __syncthreads();
        if (tile + 1 < tiles)
            fetch_rows<BN, THREADS>(key_tiles + ((tile + 1) & 1) * BN * STEP, k, sk.row, (tile + 1) * BN, keys);
        commit_fetches();

        float score[M][BN / 8][4];
        each_with_each<M, BN>(score, query_tile, warp * M * 16, key_tile, 0);
        if (MASK || (tile + 1) * BN > keys || (CAUSAL && (tile + 1) * BN > first_row)) {
#pragma unroll
            for (int m = 0; m < M; ++m)
                mask_scores<ROWS_ARE_QUERIES>(score[m], log_scale, first_row + m * 16, tile * BN, queries, keys, mask);
        }
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                scale_row(result[m], h, soften(score[m], h, factor, most[m][h], total[m][h]));

        // The same for values.
        await_fetches<1>();
        __syncthreads();
        if (tile + 1 < tiles)
            fetch_rows<BN, THREADS>(value_tiles + ((tile + 1) & 1) * BN * STEP, v, sv.row, (tile + 1) * BN, keys);
        commit_fetches();
        weigh<M, BN>(result, score, value_tile, 0);
    }
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = first_row + m * 16 + (lane >> 2) + h * 8;
            finish_row(result[m], h, factor, most[m][h], total[m][h], sums, (i64)pair * queries, row, queries);
        }
        put_rows(out, so.row, result[m], 1.0f, first_row + m * 16, queries);
    }
}
