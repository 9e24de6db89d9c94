// Backward, for sm_80 and later, in two kernels: each block has rows, 16 per warp, and loops over those of the other
// side

namespace backward {
constexpr int WARPS = D <= 64 ? 8 : 4, THREADS = WARPS * 32;
// Rows of a block, rows of a tile of the other side, and how many of these a product takes: its result must fit into
// registers.
constexpr int OWN = WARPS * 16, OTHER = D <= 64 ? 64 : 32, PART = 32;
}

// dK and dV: a block has OWN keys.
extern "C" __global__ void __launch_bounds__(backward::THREADS) attention_backward_keys(
    int heads, int queries, int keys, int padded, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, const Half* gradient, Heads sg, const float* lse, const float* deltas,
    Half* dk, Heads sdk, Half* dv, Heads sdv, const void* mask_at, MaskSteps sm
) {
    using namespace backward;
    extern __shared__ __align__(128) u8 space[];
    const u32 key_tile = shared_address(space), value_tile = key_tile + OWN * STEP;
    const u32 query_tiles = value_tile + OWN * STEP, gradient_tiles = query_tiles + 2 * OTHER * STEP;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int blocks = (keys + OWN - 1) / OWN, pair = blockIdx.x / blocks, first_key = (blockIdx.x % blocks) * OWN;
    const int batch = pair / heads, head = pair % heads, first_row = first_key + warp * 16;
    q = sq.find(q, batch, head);
    k = sk.find(k, batch, head);
    v = sv.find(v, batch, head);
    gradient = sg.find(gradient, batch, head);
    lse += (i64)pair * padded;
    deltas += (i64)pair * padded;
    const Mask mask(mask_at, sm, batch, head);
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;

    const int tiles = (queries + OTHER - 1) / OTHER, first_tile = CAUSAL ? first_key / OTHER : 0;
    fetch_rows<OWN, THREADS>(key_tile, k, sk.row, first_key, keys);
    fetch_rows<OWN, THREADS>(value_tile, v, sv.row, first_key, keys);
    auto fetch_tile = [&](int tile) {
        fetch_rows<OTHER, THREADS>(query_tiles + (tile & 1) * OTHER * STEP, q, sq.row, tile * OTHER, queries);
        fetch_rows<OTHER, THREADS>(gradient_tiles + (tile & 1) * OTHER * STEP, gradient, sg.row, tile * OTHER, queries);
    };
    if (first_tile < tiles) fetch_tile(first_tile);
    commit_fetches();

    float key_result[1][D / 8][4] = {}, value_result[1][D / 8][4] = {};
    for (int tile = first_tile; tile < tiles; ++tile) {
        if (tile + 1 < tiles) fetch_tile(tile + 1);
        commit_fetches();
        await_fetches<1>();
        __syncthreads();
        const u32 query_tile = query_tiles + (tile & 1) * OTHER * STEP;
        const u32 gradient_tile = gradient_tiles + (tile & 1) * OTHER * STEP;
#pragma unroll 1
        for (int part = 0; part < OTHER; part += PART) {
            const int first = tile * OTHER + part;
            // Keys are rows here and queries columns: the weights are then in the layout that the next products need.
            float weight[1][PART / 8][4], ds[1][PART / 8][4];
            each_with_each<1, PART>(weight, key_tile, warp * 16, query_tile, part);
            if (MASK || first_row + 16 > keys || (CAUSAL && first_row + 15 > first)) {
#pragma unroll
                for (int n = 0; n < PART / 8; ++n)
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int query = first + n * 8 + (lane & 3) * 2 + (c & 1);
                        const int key = first_row + (lane >> 2) + (c >> 1) * 8;
                        weight[0][n][c] = masked(weight[0][n][c], log_scale, query, key, queries, keys, mask);
                    }
            }
#pragma unroll
            for (int n = 0; n < PART / 8; ++n) {
                const float2 offset = *(const float2*)(lse + first + n * 8 + (lane & 3) * 2);
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    weight[0][n][c] = power_of_two(__fmaf_rn(weight[0][n][c], factor, c & 1 ? -offset.y : -offset.x));
            }
            weigh<1, PART>(value_result, weight, gradient_tile, part);
            each_with_each<1, PART>(ds, value_tile, warp * 16, gradient_tile, part);
#pragma unroll
            for (int n = 0; n < PART / 8; ++n) {
                const float2 delta = *(const float2*)(deltas + first + n * 8 + (lane & 3) * 2);
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    ds[0][n][c] = weight[0][n][c] * (ds[0][n][c] - (c & 1 ? delta.y : delta.x));
            }
            weigh<1, PART>(key_result, ds, query_tile, part);
        }
        __syncthreads();
    }
    put_rows(sdk.find(dk, batch, head), sdk.row, key_result[0], scale, first_row, keys);
    put_rows(sdv.find(dv, batch, head), sdv.row, value_result[0], 1.0f, first_row, keys);
}

// dQ: a block has OWN queries.
extern "C" __global__ void __launch_bounds__(backward::THREADS) attention_backward_queries(
    int heads, int queries, int keys, int padded, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, const Half* gradient, Heads sg, const float* lse, const float* deltas,
    Half* dq, Heads sdq, const void* mask_at, MaskSteps sm
) {
    using namespace backward;
    extern __shared__ __align__(128) u8 space[];
    const u32 query_tile = shared_address(space), gradient_tile = query_tile + OWN * STEP;
    const u32 key_tiles = gradient_tile + OWN * STEP, value_tiles = key_tiles + 2 * OTHER * STEP;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int blocks = (queries + OWN - 1) / OWN, pair = blockIdx.x / blocks;
    // The blocks with the most keys start first, so that the last ones to finish are short.
    const int first_query = (blocks - 1 - blockIdx.x % blocks) * OWN;
    const int batch = pair / heads, head = pair % heads, first_row = first_query + warp * 16;
    q = sq.find(q, batch, head);
    k = sk.find(k, batch, head);
    v = sv.find(v, batch, head);
    gradient = sg.find(gradient, batch, head);
    const Mask mask(mask_at, sm, batch, head);
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;
    float offset[2], delta[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const i64 row = (i64)pair * padded + first_row + (lane >> 2) + h * 8;
        offset[h] = lse[row];
        delta[h] = deltas[row];
    }

    const int seen = CAUSAL ? min(keys, first_query + OWN) : keys, tiles = (seen + OTHER - 1) / OTHER;
    fetch_rows<OWN, THREADS>(query_tile, q, sq.row, first_query, queries);
    fetch_rows<OWN, THREADS>(gradient_tile, gradient, sg.row, first_query, queries);
    auto fetch_tile = [&](int tile) {
        fetch_rows<OTHER, THREADS>(key_tiles + (tile & 1) * OTHER * STEP, k, sk.row, tile * OTHER, keys);
        fetch_rows<OTHER, THREADS>(value_tiles + (tile & 1) * OTHER * STEP, v, sv.row, tile * OTHER, keys);
    };
    fetch_tile(0);
    commit_fetches();

    float result[1][D / 8][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) fetch_tile(tile + 1);
        commit_fetches();
        await_fetches<1>();
        __syncthreads();
        const u32 key_tile = key_tiles + (tile & 1) * OTHER * STEP;
        const u32 value_tile = value_tiles + (tile & 1) * OTHER * STEP;
#pragma unroll 1
        for (int part = 0; part < OTHER; part += PART) {
            const int first = tile * OTHER + part;
            float weight[1][PART / 8][4], ds[1][PART / 8][4];
            each_with_each<1, PART>(weight, query_tile, warp * 16, key_tile, part);
            each_with_each<1, PART>(ds, gradient_tile, warp * 16, value_tile, part);
            if (MASK || first + PART > keys || (CAUSAL && first + PART - 1 > first_row)) {
#pragma unroll
                for (int n = 0; n < PART / 8; ++n)
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int key = first + n * 8 + (lane & 3) * 2 + (c & 1);
                        const int query = first_row + (lane >> 2) + (c >> 1) * 8;
                        weight[0][n][c] = masked(weight[0][n][c], log_scale, query, key, queries, keys, mask);
                    }
            }
#pragma unroll
            for (int n = 0; n < PART / 8; ++n)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const float exponent = __fmaf_rn(weight[0][n][c], factor, -offset[c >> 1]);
                    ds[0][n][c] = (ds[0][n][c] - delta[c >> 1]) * power_of_two(exponent);
                }
            weigh<1, PART>(result, ds, key_tile, part);
        }
        __syncthreads();
    }
    put_rows(sdq.find(dq, batch, head), sdq.row, result[0], scale, first_row, queries);
}
