// Backward, for the Hopper generation
//
// A block has 128 keys, 64 per warpgroup, and loops over the tiles of queries that attend to them. It accumulates dK
// and dV in registers. Its partial dQ goes to a workspace, to which the blocks of a head add in a
// fixed order by semaphores: those of later keys first, so that, with CAUSAL, blocks that start together do not wait
// for each other, because each is at a different tile of queries.
//
// The kernel is persistent: one thread block per multiprocessor takes blocks of keys from a global counter until none
// is left. A block of keys waits only for ones taken earlier, so there is no deadlock.

namespace backward {
// Keys of a block, queries of a tile, and the number of tiles of queries in shared memory.
constexpr int GROUPS = 2, THREADS = 384, BN = 128, BM = D == 64 ? 128 : 64, STAGES = 3;
// Bytes of the keys, of a tile of queries, of the dS of a tile, and of a partial dQ.
constexpr int OWN = BN * D * 2, TILE = BM * D * 2, DS_BYTES = BN * BM * 2, DQ_BYTES = BM * D * 4;
// With 128 queries per tile, a warpgroup's part of dQ overwrites the dS that only this warpgroup has read.
constexpr bool IN_PLACE = BM == 128;
// The number of producer threads, and the thread that stores dQ.
constexpr int COPYING = 64, SENDER = 64;

// The shared storage. There are two tiles of dS; after them comes room for a partial dQ, or, if dQ overwrites dS, for
// the results.
struct SharedStorage {
    u32 key_tile, value_tile, ds_smem, extra, numbers;
    Ring<TILE> queries;
    u32 gradient_tiles;
    u32 ds_full, ds_empty, dq_full, dq_empty;
    Scheduler scheduler;
    __device__ SharedStorage(u32 space) {
        key_tile = (space + 1023) & ~1023u;
        value_tile = key_tile + OWN;
        queries.tiles = value_tile + OWN;
        gradient_tiles = queries.tiles + STAGES * TILE;
        ds_smem = gradient_tiles + STAGES * TILE;
        extra = ds_smem + 2 * DS_BYTES;
        numbers = extra + (IN_PLACE ? OWN : DQ_BYTES);
        queries.full = numbers + STAGES * BM * 8;
        queries.empty = queries.full + STAGES * 8;
        ds_full = queries.empty + STAGES * 8;
        ds_empty = ds_full + 16;
        dq_full = ds_empty + 16;
        dq_empty = dq_full + 16;
        scheduler.at = dq_empty + 8;
    }
    // Called by one thread, before any thread waits.
    __device__ void make_barriers() const {
        for (int s = 0; s < STAGES; ++s) {
            barrier_make(queries.full + s * 8, COPYING);
            barrier_make(queries.empty + s * 8, GROUPS * 4);
        }
        for (int s = 0; s < 2; ++s) {
            barrier_make(ds_full + s * 8, GROUPS * 4);
            // Arrivals: the storing thread if dQ is there, else the warps that read dS.
            barrier_make(ds_empty + s * 8, IN_PLACE ? 1 : GROUPS * 4);
            // Two barriers, since after the last tile of a block two partial dQ may be pending.
            barrier_make(dq_full + s * 8, GROUPS * 4);
        }
        barrier_make(dq_empty, 1);
        // The consumer and producer warps, and the storing thread.
        scheduler.make_barriers(GROUPS * 4 + COPYING / 32 + 1);
        publish_barriers();
    }
    // The address of the partial dQ of a step.
    __device__ u32 partial_dq(int step) const { return IN_PLACE ? ds_smem + (step & 1) * DS_BYTES : extra; }
};

// The blocks of keys of all heads, head by head, and the tiles of queries of a head.
struct Items {
    int blocks, tiles, all;
    // Within a head, the later keys come first.
    __device__ int block_of(int item) const { return blocks - 1 - item % blocks; }
    // The first tile of queries that attends to a block of keys.
    __device__ int first_tile_of(int block) const { return CAUSAL ? min(tiles, block * BN / BM) : 0; }
};

// The producer threads: they take blocks of keys, and fill tiles with the queries that attend to them: rows of queries
// and dO, and the LSE and delta of each query.
__device__ __forceinline__ void copy_tiles(
    int heads, int queries, int padded, int pairs, const Half* q, Heads sq, const Half* gradient, Heads sg,
    const float* lse, const float* deltas, int* semaphores, const SharedStorage& storage, const Items& items, int thread
) {
    Copies copies;
    int step = 0, next = 0;
    // The global counter of blocks taken comes after the semaphores of all tiles.
    auto take = [&]() {
        if (thread == 0) next = atomicAdd(semaphores + (i64)pairs * items.tiles, 1);
    };
    take();
#pragma unroll 1
    for (int count = 0;; ++count) {
        copies.finish();
        if (thread == 0) storage.scheduler.announce(count, next);
        __syncwarp();
        const int item = storage.scheduler.look_up(count);
        warp_arrive(storage.scheduler.read(count));
        if (item >= items.all) break;
        const int pair = item / items.blocks, batch = pair / heads, head = pair % heads;
        const int first_tile = items.first_tile_of(items.block_of(item));
        Rows<COPYING> query_rows(sq.find(q, batch, head), sq.row, first_tile * BM, queries, thread);
        Rows<COPYING> gradient_rows(sg.find(gradient, batch, head), sg.row, first_tile * BM, queries, thread);
        // Each thread copies the LSE or the delta of four queries, if the tile has that many.
        const float* kind = thread < BM / 4 ? lse + thread * 4 : deltas + (thread - BM / 4) * 4;
        const float* numbers = kind + (i64)pair * padded + first_tile * BM;
#pragma unroll 1
        for (int tile = first_tile; tile < items.tiles; ++tile, ++step, numbers += BM) {
            const int stage = step % STAGES;
            copies.before(storage.queries.empty_at(stage), (step / STAGES & 1) ^ 1);
            query_rows.fetch_into<BM, BM>(storage.queries.tile(stage));
            gradient_rows.fetch_into<BM, BM>(storage.gradient_tiles + stage * TILE);
            if (thread < BM / 2) fetch(storage.numbers + stage * BM * 8 + thread * 16, numbers, true);
            copies.after(storage.queries.full_at(stage));
            // Early, to hide the latency of the atomic.
            if (tile == items.tiles - 1) take();
        }
        if (first_tile == items.tiles) take();
    }
}

// Adds a partial dQ to the workspace, after those of `before` blocks.
__device__ __forceinline__ void add_partial_dq(float* to, u32 partial_dq, const int* whose, int before) {
    if (before == 0) {
        // The first block stores instead of adding.
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     ::"l"(to), "r"(partial_dq), "n"(DQ_BYTES) : "memory");
    } else {
        int now;
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(whose) : "memory");
        while (now != before);
        publish_far();
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                     ::"l"(to), "r"(partial_dq), "n"(DQ_BYTES) : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// The thread that stores the partial dQ, each in its turn.
__device__ __forceinline__ void send_partial_dqs(
    float* partial_dqs, int* semaphores, const SharedStorage& storage, const Items& items
) {
    int step = 0;
#pragma unroll 1
    for (int count = 0;; ++count) {
        const int item = storage.scheduler.look_up(count);
        barrier_arrive(storage.scheduler.read(count));
        if (item >= items.all) break;
        const int pair = item / items.blocks, block = items.block_of(item), last_block = items.blocks - 1;
#pragma unroll 1
        for (int tile = items.first_tile_of(block); tile < items.tiles; ++tile, ++step) {
            // The number of blocks before this one.
            const int before = (CAUSAL ? min(last_block, (tile * BM + BM - 1) / BN) : last_block) - block;
            int* whose = semaphores + (i64)pair * items.tiles + tile;
            float* to = partial_dqs + ((i64)pair * items.tiles + tile) * (BM * D);
            barrier_await(storage.dq_full + (step & 1) * 8, step >> 1 & 1);
            add_partial_dq(to, storage.partial_dq(step), whose, before);
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            barrier_arrive(IN_PLACE ? storage.ds_empty + (step & 1) * 8 : storage.dq_empty);
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            publish_far();
            asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(whose), "r"(before + 1) : "memory");
        }
    }
}

// The numbers of the two columns (queries) that a thread has of a fragment.
__device__ inline float2 two_numbers(u32 at) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at) : "memory");
    return x;
}
// Turns scores into weights.
template <int N> __device__ inline void weights_of(float (&weight)[N][4], float factor, u32 lse) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const float2 offset = two_numbers(lse + n * 32);
#pragma unroll
        for (int c = 0; c < 4; ++c)
            weight[n][c] = power_of_two(__fmaf_rn(weight[n][c], factor, c & 1 ? -offset.y : -offset.x));
    }
}
// Computes dS from dP.
template <int N> __device__ inline void ds_of(float (&ds)[N][4], const float (&weight)[N][4], u32 deltas) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const float2 delta = two_numbers(deltas + n * 32);
#pragma unroll
        for (int c = 0; c < 4; ++c) ds[n][c] = weight[n][c] * (ds[n][c] - (c & 1 ? delta.y : delta.x));
    }
}
}

extern "C" __global__ void __launch_bounds__(backward::THREADS, 1) attention_backward(
    int heads, int queries, int keys, int padded, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, const Half* gradient, Heads sg, const float* lse, const float* deltas,
    Half* dk, Heads sdk, Half* dv, Heads sdv, float* partial_dqs, int* semaphores, const void* mask_at, MaskSteps sm, int pairs
) {
    using namespace backward;
    extern __shared__ u8 space[];
    const SharedStorage storage(shared_address(space));
    // Local names for the lambdas below.
    const u32 key_tile = storage.key_tile, value_tile = storage.value_tile, ds_smem = storage.ds_smem;
    const u32 ds_full = storage.ds_full, ds_empty = storage.ds_empty;
    const int group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    const int blocks = (keys + BN - 1) / BN, tiles = (queries + BM - 1) / BM, all = blocks * pairs;
    const Items items = {blocks, tiles, all};
    if (threadIdx.x == 0) storage.make_barriers();
    __syncthreads();

    if (group == GROUPS) {
        fewer_registers<24>();
        const int thread = threadIdx.x & 127;
        if (thread < COPYING)
            copy_tiles(
                heads, queries, padded, pairs, q, sq, gradient, sg, lse, deltas, semaphores, storage, items, thread
            );
        else if (thread == SENDER)
            send_partial_dqs(partial_dqs, semaphores, storage, items);
        return;
    }
    more_registers<240>();
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;
    // The consumers copy their keys and values themselves.
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

    // The dQ of a tile needs the dS of all 128 keys, so each warpgroup writes its dS to shared memory, and the product
    // starts a tile later: warpgroups need not be in lockstep, and one uses the tensor cores while the other computes
    // weights. Each computes half of the product: 64 queries, or 64 columns.
    auto begin_partial_dq = [&](float (&partial)[8][4], int step, bool wanted) {
        const u32 ds_tile = ds_smem + (step & 1) * DS_BYTES, half = group * BN * 128;
        const u32 left = ds_tile + (BM == 128 ? half : 0), right = key_tile + (BM == 128 ? 0 : half);
        if (wanted) barrier_await(ds_full + (step & 1) * 8, step >> 1 & 1);
        begin_products();
#pragma unroll
        for (int s = 0; s < BN / 16; ++s) {
            const u64 a = descriptor(left, s * 2048, BN * 128), b = descriptor(right, s * 2048, BN * 128);
            multiply<1, 1>(partial, a, b, s > 0);
        }
        commit_products();
    };
    // Passes a partial dQ to the storing thread, in the order of the fragments; it is rearranged after all are added.
    auto send_partial_dq = [&](float (&partial)[8][4], int step) {
        const u32 partial_dq = storage.partial_dq(step);
        if (IN_PLACE) {
            // All four warps have read dS.
            meet(2 + group, 128);
        } else {
            warp_arrive(ds_empty + (step & 1) * 8);
            barrier_await(storage.dq_empty, (step & 1) ^ 1);
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float (&x)[4] = partial[n];
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                         ::"r"(partial_dq + group * (DQ_BYTES / 2) + (n * 128 + (threadIdx.x & 127)) * 16),
                         "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
        }
        publish();
        warp_arrive(storage.dq_full + (step & 1) * 8);
    };

    int step = 0, item = storage.scheduler.look_up(0);
    warp_arrive(storage.scheduler.read(0));
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
        for (int tile = first_tile; tile < tiles; ++tile, ++step) {
            const int stage = step % STAGES;
            const u32 query_tile = storage.queries.tile(stage), gradient_tile = storage.gradient_tiles + stage * TILE;
            const u32 ds_tile = ds_smem + (step & 1) * DS_BYTES;
            const u32 numbers = storage.numbers + stage * BM * 8 + (lane & 3) * 8;
            // Keys are rows here and queries columns: the weights are then in the layout that the next products need.
            float weight[BM / 8][4], ds[BM / 8][4];
            barrier_await(storage.queries.full_at(stage), step / STAGES & 1);
            begin_products();
            each_with_each(weight, key_tile + group * 64 * 128, BN, query_tile, BM);
            commit_products();
            each_with_each(ds, value_tile + group * 64 * 128, BN, gradient_tile, BM);
            commit_products();
            await_products<1>();
            hold(weight);
            if (MASK || own_key + 64 > keys || (CAUSAL && own_key + 63 > tile * BM))
                mask_scores<ROWS_ARE_KEYS>(weight, log_scale, own_key + warp * 16, tile * BM, queries, keys, mask);
            weights_of(weight, factor, numbers);
            await_products<0>();
            hold(ds);
            ds_of(ds, weight, numbers + BM * 4);
            u32 weights[BM / 16][4], slope_pairs[BM / 16][4];
            pack(weights, weight);
            pack(slope_pairs, ds);
            hold(value_result);
            begin_products();
            weigh(value_result, weights, gradient_tile);
            commit_products();
            // Rows are keys and columns queries. There are two such tiles: the previous one may still be read.
            barrier_await(ds_empty + (step & 1) * 8, (step >> 1 & 1) ^ 1);
#pragma unroll
            for (int s = 0; s < BM / 16; ++s) {
                const int row = group * 64 + warp * 16 + (lane & 15), chunk = s * 2 + (lane >> 4);
                const u32 (&x)[4] = slope_pairs[s];
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                             ::"r"(chunk_at(ds_tile + (chunk >> 3) * BN * 128, row, chunk & 7)),
                             "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
            }
            publish();
            warp_arrive(ds_full + (step & 1) * 8);
            hold(key_result);
            begin_products();
            weigh(key_result, slope_pairs, query_tile);
            commit_products();
            float partial[8][4];
            // Before the first tile the result of this product is meaningless and discarded.
            begin_partial_dq(partial, step - 1, tile > first_tile);
            await_products<1>();
            hold(value_result);
            hold(key_result);
            warp_arrive(storage.queries.empty_at(stage));
            await_products<0>();
            hold(partial);
            if (tile > first_tile) send_partial_dq(partial, step - 1);
        }
        if (first_tile < tiles) {
            float partial[8][4];
            begin_partial_dq(partial, step - 1, true);
            await_products<0>();
            hold(partial);
            send_partial_dq(partial, step - 1);
        }
        // Keys, values and dS are no longer read: the next keys and values can be loaded, and the results go through
        // the memory of dS, unless dQ is there.
        meet(1, GROUPS * 128);
        item = storage.scheduler.look_up(count);
        warp_arrive(storage.scheduler.read(count));
        fetch_own(item);
        const u32 through = IN_PLACE ? storage.extra + group * (OWN / 2) : ds_smem + group * DS_BYTES;
        put_rows(sdk.find(dk, batch, head), sdk.row, key_result, scale, through, 64, own_key, keys);
        __syncwarp();
        put_rows(sdv.find(dv, batch, head), sdv.row, value_result, 1.0f, through, 64, own_key, keys);
    }
}

// Converts dQ from the workspace, which is in the order of the fragments.
extern "C" __global__ void __launch_bounds__(256) attention_backward_finish(
    int heads, int queries, float scale, const float* partial_dqs, Half* dq, Heads sdq
) {
    using namespace backward;
    // A thread processes 8 columns of two rows, 8 apart: the elements of four neighbouring lanes.
    constexpr int CHUNKS = D / 8, WORK = BM / 2 * CHUNKS, BLOCKS = WORK / 256;
    const int tiles = (queries + BM - 1) / BM;
    const int i = (blockIdx.x % BLOCKS) * 256 + threadIdx.x, chunk = i % CHUNKS, low = i / CHUNKS;
    const int tile = blockIdx.x / BLOCKS % tiles, pair = blockIdx.x / BLOCKS / tiles;
    const int row = low / 8 * 16 + low % 8;
    const int group = BM == 128 ? row / 64 : chunk / 8, thread = (row % 64) / 16 * 32 + row % 8 * 4;
    const float* half = partial_dqs + ((i64)pair * tiles + tile) * (BM * D) + group * (BM * D / 2);
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
