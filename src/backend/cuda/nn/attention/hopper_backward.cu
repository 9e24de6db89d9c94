// Backward, for the Hopper generation
//
// A block has 128 keys, 64 a warpgroup, and goes over the tiles of queries that see them. It sums the gradients of its
// keys and values in registers. Its part of the gradients of the queries, its share, goes to a workspace, where the
// blocks of a head add theirs one after the other: those of later keys first, so that, with CAUSAL, blocks that begin
// together never wait for each other: each is at its own tile of queries.
//
// There is one block of threads a multiprocessor, and it takes such blocks of keys, the next that nobody has taken,
// until none is left. A block of keys waits only for ones taken earlier, so somebody always gets on.

namespace backward {
// Keys of a block, queries of a tile, and how many tiles of queries there are in shared memory.
constexpr int GROUPS = 2, THREADS = 384, BN = 128, BM = D == 64 ? 128 : 64, STAGES = 3;
// Bytes of the keys, of a tile of queries, of the slopes of a tile, and of a share.
constexpr int OWN = BN * D * 2, TILE = BM * D * 2, SLOPES = BN * BM * 2, SHARE = BM * D * 4;
// With 128 queries a tile, a warpgroup's part of a share takes the place of the slopes that only it read for it.
constexpr bool IN_PLACE = BM == 128;
// Threads that copy tiles, and the one that sends the gradients of queries.
constexpr int COPYING = 64, SENDER = 64;

// What lies where in shared memory. There are two tiles of slopes; after them comes room for a share, or, where shares
// take the place of slopes, for results.
struct Room {
    u32 key_tile, value_tile, slopes, extra, numbers;
    Ring<TILE> queries;
    u32 gradient_tiles;
    u32 slopes_full, slopes_empty, share_full, share_empty;
    Taken taken;
    __device__ Room(u32 space) {
        key_tile = (space + 1023) & ~1023u;
        value_tile = key_tile + OWN;
        queries.tiles = value_tile + OWN;
        gradient_tiles = queries.tiles + STAGES * TILE;
        slopes = gradient_tiles + STAGES * TILE;
        extra = slopes + 2 * SLOPES;
        numbers = extra + (IN_PLACE ? OWN : SHARE);
        queries.full = numbers + STAGES * BM * 8;
        queries.empty = queries.full + STAGES * 8;
        slopes_full = queries.empty + STAGES * 8;
        slopes_empty = slopes_full + 16;
        share_full = slopes_empty + 16;
        share_empty = share_full + 16;
        taken.at = share_empty + 8;
    }
    // By one thread, before anybody waits.
    __device__ void make_barriers() const {
        for (int s = 0; s < STAGES; ++s) {
            barrier_make(queries.full + s * 8, COPYING);
            barrier_make(queries.empty + s * 8, GROUPS * 4);
        }
        for (int s = 0; s < 2; ++s) {
            barrier_make(slopes_full + s * 8, GROUPS * 4);
            // By the sender of what lies there, or by those who read them.
            barrier_make(slopes_empty + s * 8, IN_PLACE ? 1 : GROUPS * 4);
            // Two, as after the last tile of a block two shares may wait to be sent.
            barrier_make(share_full + s * 8, GROUPS * 4);
        }
        barrier_make(share_empty, 1);
        // All warps that work, and the sender.
        taken.make_barriers(GROUPS * 4 + COPYING / 32 + 1);
        publish_barriers();
    }
    // Where the share of a turn is left.
    __device__ u32 share(int turn) const { return IN_PLACE ? slopes + (turn & 1) * SLOPES : extra; }
};

// The blocks of keys of all heads, one head after the other, and the tiles of queries of a head.
struct Items {
    int blocks, tiles, all;
    // Of a head, the later keys come first.
    __device__ int block_of(int item) const { return blocks - 1 - item % blocks; }
    // The first tile of queries that sees a block.
    __device__ int first_tile_of(int block) const { return CAUSAL ? min(tiles, block * BN / BM) : 0; }
};

// The threads that take blocks of keys, and fill tiles with the queries that see them: rows of queries and gradients,
// and the logarithm and the delta of each query.
__device__ __forceinline__ void copy_tiles(
    int heads, int queries, int padded, int pairs, const Half* q, Heads sq, const Half* gradient, Heads sg,
    const float* logarithms, const float* deltas, int* turns, const Room& room, const Items& items, int thread
) {
    Copies copies;
    int turn = 0, next = 0;
    // Behind the turns of all tiles lies the count of blocks taken by anybody.
    auto take = [&]() {
        if (thread == 0) next = atomicAdd(turns + (i64)pairs * items.tiles, 1);
    };
    take();
#pragma unroll 1
    for (int count = 0;; ++count) {
        copies.finish();
        if (thread == 0) room.taken.tell(count, next);
        __syncwarp();
        const int item = room.taken.look_up(count);
        warp_arrive(room.taken.known(count));
        if (item >= items.all) break;
        const int pair = item / items.blocks, batch = pair / heads, head = pair % heads;
        const int first_tile = items.first_tile_of(items.block_of(item));
        Rows<COPYING> query_rows(sq.find(q, batch, head), sq.row, first_tile * BM, queries, thread);
        Rows<COPYING> gradient_rows(sg.find(gradient, batch, head), sg.row, first_tile * BM, queries, thread);
        // Each thread copies four queries' numbers of one kind, where a tile has that many.
        const float* kind = thread < BM / 4 ? logarithms + thread * 4 : deltas + (thread - BM / 4) * 4;
        const float* numbers = kind + (i64)pair * padded + first_tile * BM;
#pragma unroll 1
        for (int tile = first_tile; tile < items.tiles; ++tile, ++turn, numbers += BM) {
            const int stage = turn % STAGES;
            copies.before(room.queries.empty_at(stage), (turn / STAGES & 1) ^ 1);
            query_rows.fetch_into<BM, BM>(room.queries.tile(stage));
            gradient_rows.fetch_into<BM, BM>(room.gradient_tiles + stage * TILE);
            if (thread < BM / 2) fetch(room.numbers + stage * BM * 8 + thread * 16, numbers, true);
            copies.after(room.queries.full_at(stage));
            // Now, as the answer takes a while.
            if (tile == items.tiles - 1) take();
        }
        if (first_tile == items.tiles) take();
    }
}

// Adds a share to the workspace, where those of `before` blocks come first.
__device__ __forceinline__ void add_share(float* to, u32 share, const int* whose, int before) {
    if (before == 0) {
        // There is nothing to add to yet.
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     ::"l"(to), "r"(share), "n"(SHARE) : "memory");
    } else {
        int now;
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(whose) : "memory");
        while (now != before);
        publish_far();
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                     ::"l"(to), "r"(share), "n"(SHARE) : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// The thread that sends shares, each in its turn.
__device__ __forceinline__ void send_shares(float* shares, int* turns, const Room& room, const Items& items) {
    int turn = 0;
#pragma unroll 1
    for (int count = 0;; ++count) {
        const int item = room.taken.look_up(count);
        barrier_arrive(room.taken.known(count));
        if (item >= items.all) break;
        const int pair = item / items.blocks, block = items.block_of(item), last_block = items.blocks - 1;
#pragma unroll 1
        for (int tile = items.first_tile_of(block); tile < items.tiles; ++tile, ++turn) {
            // How many blocks come before this one.
            const int before = (CAUSAL ? min(last_block, (tile * BM + BM - 1) / BN) : last_block) - block;
            int* whose = turns + (i64)pair * items.tiles + tile;
            float* to = shares + ((i64)pair * items.tiles + tile) * (BM * D);
            barrier_await(room.share_full + (turn & 1) * 8, turn >> 1 & 1);
            add_share(to, room.share(turn), whose, before);
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            barrier_arrive(IN_PLACE ? room.slopes_empty + (turn & 1) * 8 : room.share_empty);
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            publish_far();
            asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(whose), "r"(before + 1) : "memory");
        }
    }
}

// Numbers of the two columns, thus queries, that a thread has of a fragment.
__device__ inline float2 two_numbers(u32 at) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at) : "memory");
    return x;
}
// From scores to weights.
template <int N> __device__ inline void weights_of(float (&weight)[N][4], float factor, u32 logarithms) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const float2 offset = two_numbers(logarithms + n * 32);
#pragma unroll
        for (int c = 0; c < 4; ++c)
            weight[n][c] = power_of_two(__fmaf_rn(weight[n][c], factor, c & 1 ? -offset.y : -offset.x));
    }
}
// From the products of gradients and values to slopes.
template <int N> __device__ inline void slopes_of(float (&slope)[N][4], const float (&weight)[N][4], u32 deltas) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const float2 delta = two_numbers(deltas + n * 32);
#pragma unroll
        for (int c = 0; c < 4; ++c) slope[n][c] = weight[n][c] * (slope[n][c] - (c & 1 ? delta.y : delta.x));
    }
}
}

extern "C" __global__ void __launch_bounds__(backward::THREADS, 1) attention_backward(
    int heads, int queries, int keys, int padded, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, const Half* gradient, Heads sg, const float* logarithms, const float* deltas,
    Half* dk, Heads sdk, Half* dv, Heads sdv, float* shares, int* turns, const void* mask_at, MaskSteps sm, int pairs
) {
    using namespace backward;
    extern __shared__ u8 space[];
    const Room room(shared_address(space));
    // Names for what the lambdas below use.
    const u32 key_tile = room.key_tile, value_tile = room.value_tile, slopes = room.slopes;
    const u32 slopes_full = room.slopes_full, slopes_empty = room.slopes_empty;
    const int group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    const int blocks = (keys + BN - 1) / BN, tiles = (queries + BM - 1) / BM, all = blocks * pairs;
    const Items items = {blocks, tiles, all};
    if (threadIdx.x == 0) room.make_barriers();
    __syncthreads();

    if (group == GROUPS) {
        fewer_registers<24>();
        const int thread = threadIdx.x & 127;
        if (thread < COPYING)
            copy_tiles(
                heads, queries, padded, pairs, q, sq, gradient, sg, logarithms, deltas, turns, room, items, thread
            );
        else if (thread == SENDER)
            send_shares(shares, turns, room, items);
        return;
    }
    more_registers<240>();
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;
    // Keys and values these copy themselves.
    auto fetch_own = [&](int item) {
        if (item >= all) return;
        const int pair = item / blocks, batch = pair / heads, head = pair % heads;
        const int first_key = items.block_of(item) * BN;
        Rows<GROUPS * 128> key_rows(sk.find(k, batch, head), sk.row, first_key, keys, threadIdx.x);
        key_rows.fetch_into<BN, BN>(key_tile);
        Rows<GROUPS * 128> value_rows(sv.find(v, batch, head), sv.row, first_key, keys, threadIdx.x);
        value_rows.fetch_into<BN, BN>(value_tile);
        commit_fetches();
    };

    // The gradients of a tile's queries need the slopes of all 128 keys, so each warpgroup leaves its own in shared
    // memory, and the product is begun a tile later: warpgroups need not be at the same place, and the tensor cores
    // work for one while the other computes weights. Each has half of the product: 64 queries, or 64 columns.
    auto begin_share = [&](float (&query_share)[8][4], int turn, bool wanted) {
        const u32 slope_tile = slopes + (turn & 1) * SLOPES, half = group * BN * 128;
        const u32 left = slope_tile + (BM == 128 ? half : 0), right = key_tile + (BM == 128 ? 0 : half);
        if (wanted) barrier_await(slopes_full + (turn & 1) * 8, turn >> 1 & 1);
        begin_products();
#pragma unroll
        for (int s = 0; s < BN / 16; ++s) {
            const u64 a = descriptor(left, s * 2048, BN * 128), b = descriptor(right, s * 2048, BN * 128);
            multiply<1, 1>(query_share, a, b, s > 0);
        }
        commit_products();
    };
    // Leaves a share to the sender, as the threads have it: nobody needs it in another order until all are added.
    auto send_share = [&](float (&query_share)[8][4], int turn) {
        const u32 share = room.share(turn);
        if (IN_PLACE) {
            // All four warps have read the slopes.
            meet(2 + group, 128);
        } else {
            warp_arrive(slopes_empty + (turn & 1) * 8);
            barrier_await(room.share_empty, (turn & 1) ^ 1);
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float (&x)[4] = query_share[n];
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                         ::"r"(share + group * (SHARE / 2) + (n * 128 + (threadIdx.x & 127)) * 16),
                         "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
        }
        publish();
        warp_arrive(room.share_full + (turn & 1) * 8);
    };

    int turn = 0, item = room.taken.look_up(0);
    warp_arrive(room.taken.known(0));
    fetch_own(item);
#pragma unroll 1
    for (int count = 1;; ++count) {
        await_fetches<0>();
        publish();
        meet(1, GROUPS * 128);
        if (item >= all) break;
        const int pair = item / blocks, batch = pair / heads, head = pair % heads;
        const int block = items.block_of(item), first_tile = items.first_tile_of(block);
        const int own_key = block * BN + group * 64;
        const Mask mask(mask_at, sm, batch, head);
        float key_result[D / 8][4] = {}, value_result[D / 8][4] = {};
#pragma unroll 1
        for (int tile = first_tile; tile < tiles; ++tile, ++turn) {
            const int stage = turn % STAGES;
            const u32 query_tile = room.queries.tile(stage), gradient_tile = room.gradient_tiles + stage * TILE;
            const u32 slope_tile = slopes + (turn & 1) * SLOPES;
            const u32 numbers = room.numbers + stage * BM * 8 + (lane & 3) * 8;
            // Keys are rows here and queries columns: weights come out as the next products take them.
            float weight[BM / 8][4], slope[BM / 8][4];
            barrier_await(room.queries.full_at(stage), turn / STAGES & 1);
            begin_products();
            each_with_each(weight, key_tile + group * 64 * 128, BN, query_tile, BM);
            commit_products();
            each_with_each(slope, value_tile + group * 64 * 128, BN, gradient_tile, BM);
            commit_products();
            await_products<1>();
            hold(weight);
            if (MASK || own_key + 64 > keys || (CAUSAL && own_key + 63 > tile * BM))
                mask_scores<ROWS_ARE_KEYS>(weight, log_scale, own_key + warp * 16, tile * BM, queries, keys, mask);
            weights_of(weight, factor, numbers);
            await_products<0>();
            hold(slope);
            slopes_of(slope, weight, numbers + BM * 4);
            u32 weights[BM / 16][4], slope_pairs[BM / 16][4];
            pack(weights, weight);
            pack(slope_pairs, slope);
            hold(value_result);
            begin_products();
            weigh(value_result, weights, gradient_tile);
            commit_products();
            // Keys down and queries across. There are two such tiles: the one before may still be read.
            barrier_await(slopes_empty + (turn & 1) * 8, (turn >> 1 & 1) ^ 1);
#pragma unroll
            for (int s = 0; s < BM / 16; ++s) {
                const int row = group * 64 + warp * 16 + (lane & 15), chunk = s * 2 + (lane >> 4);
                const u32 (&x)[4] = slope_pairs[s];
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                             ::"r"(chunk_at(slope_tile + (chunk >> 3) * BN * 128, row, chunk & 7)),
                             "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
            }
            publish();
            warp_arrive(slopes_full + (turn & 1) * 8);
            hold(key_result);
            begin_products();
            weigh(key_result, slope_pairs, query_tile);
            commit_products();
            float query_share[8][4];
            // Before the first tile this is a product of nothing in particular, and goes nowhere.
            begin_share(query_share, turn - 1, tile > first_tile);
            await_products<1>();
            hold(value_result);
            hold(key_result);
            warp_arrive(room.queries.empty_at(stage));
            await_products<0>();
            hold(query_share);
            if (tile > first_tile) send_share(query_share, turn - 1);
        }
        if (first_tile < tiles) {
            float query_share[8][4];
            begin_share(query_share, turn - 1, true);
            await_products<0>();
            hold(query_share);
            send_share(query_share, turn - 1);
        }
        // Nobody reads keys, values and slopes any more: the next keys and values can come, and the results go through
        // where the slopes were, if no share lies there.
        meet(1, GROUPS * 128);
        item = room.taken.look_up(count);
        warp_arrive(room.taken.known(count));
        fetch_own(item);
        const u32 through = IN_PLACE ? room.extra + group * (OWN / 2) : slopes + group * SLOPES;
        put_rows(sdk.find(dk, batch, head), sdk.row, key_result, scale, through, 64, own_key, keys);
        __syncwarp();
        put_rows(sdv.find(dv, batch, head), sdv.row, value_result, 1.0f, through, 64, own_key, keys);
    }
}

// The gradients of the queries out of the workspace, where they lie as the threads of the products had them.
extern "C" __global__ void __launch_bounds__(256) attention_backward_finish(
    int heads, int queries, float scale, const float* shares, Half* dq, Heads sdq
) {
    using namespace backward;
    // A thread takes 8 columns of two rows, 8 apart: the numbers of four neighbours of a warp.
    constexpr int CHUNKS = D / 8, WORK = BM / 2 * CHUNKS, BLOCKS = WORK / 256;
    const int tiles = (queries + BM - 1) / BM;
    const int i = (blockIdx.x % BLOCKS) * 256 + threadIdx.x, chunk = i % CHUNKS, low = i / CHUNKS;
    const int tile = blockIdx.x / BLOCKS % tiles, pair = blockIdx.x / BLOCKS / tiles;
    const int row = low / 8 * 16 + low % 8;
    const int group = BM == 128 ? row / 64 : chunk / 8, thread = (row % 64) / 16 * 32 + row % 8 * 4;
    const float* half = shares + ((i64)pair * tiles + tile) * (BM * D) + group * (BM * D / 2);
    const float4* from = (const float4*)half + (chunk % 8) * 128 + thread;
    uint4 high, below;
    u32* up = &high.x;
    u32* down = &below.x;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float4 x = from[j];
        up[j] = two(x.x * scale, x.y * scale);
        down[j] = two(x.z * scale, x.w * scale);
    }
    dq += pair / heads * sdq.batch + pair % heads * sdq.head + chunk * 8;
    const int query = tile * BM + row;
    if (query < queries) *(uint4*)(dq + query * sdq.row) = high;
    if (query + 8 < queries) *(uint4*)(dq + (query + 8) * sdq.row) = below;
}
