// Forward, for the Hopper generation
//
// A persistent kernel: one block per multiprocessor takes work items from a global counter until none is left. Three or
// two consumer warpgroups have 64 queries each. One producer warpgroup copies keys and values, including those of the
// next item while the consumers finish the current one.

namespace forward {
constexpr int GROUPS = D == 64 && !MASK ? 3 : 2, THREADS = (GROUPS + 1) * 128;
// Queries of a block, keys of a tile, and the number of tiles of keys, and of values, in shared memory.
constexpr int BM = GROUPS * 64, BN = 128, STAGES = D == 64 ? 3 : 2;
// Bytes of a tile, and of the queries of a warpgroup.
constexpr int TILE = BN * D * 2, OWN = 64 * D * 2;
// Bytes of keys and values that stay in the L2 cache.
constexpr int CACHED = 32 << 20;

// The shared storage.
struct SharedStorage {
    u32 queries, out;
    Ring<TILE> keys, values;
    Scheduler scheduler;
    __device__ SharedStorage(u32 space) {
        queries = (space + 1023) & ~1023u;
        out = queries + GROUPS * OWN;
        keys.tiles = out + GROUPS * OWN;
        values.tiles = keys.tiles + STAGES * TILE;
        keys.full = values.tiles + STAGES * TILE;
        keys.empty = keys.full + STAGES * 8;
        values.full = keys.empty + STAGES * 8;
        values.empty = values.full + STAGES * 8;
        scheduler.at = values.empty + STAGES * 8;
    }
    // Called by one thread, before any thread waits.
    __device__ void make_barriers() const {
        for (int s = 0; s < STAGES; ++s) {
            barrier_make(keys.full + s * 8, 128);
            barrier_make(keys.empty + s * 8, GROUPS * 4);
            barrier_make(values.full + s * 8, 128);
            barrier_make(values.empty + s * 8, GROUPS * 4);
        }
        // All warps.
        scheduler.make_barriers(THREADS / 32);
        publish_barriers();
    }
};

// A work item of BM queries. Items are ordered by groups of heads whose keys and values fit in the cache, and within a
// group those with the most keys first, so that the last items are short.
struct Work {
    int pair, first_query, tiles;
    __device__ Work(int item, int pairs, int queries, int keys) {
        const int blocks = (queries + BM - 1) / BM;
        const int together = max(1, min(pairs, (int)(CACHED / ((i64)keys * D * 4))));
        const int first = item / (together * blocks) * together;
        const int rest = item - first * blocks, width = min(together, pairs - first);
        pair = first + rest % width;
        first_query = (blocks - 1 - rest / width) * BM;
        const int seen = CAUSAL ? min(keys, first_query + BM) : keys;
        tiles = (seen + BN - 1) / BN;
    }
};

// Takes the next work item. Every block takes one item past the end, and the last to do so resets the counter to 0 for
// the next kernel.
__device__ inline int take(int* count, int all) {
    const int item = atomicAdd(count, 1);
    if (item == all + (int)gridDim.x - 1) *count = 0;
    return item;
}

// The producer warpgroup: takes work items, and fills tiles of keys and values for them.
__device__ __forceinline__ void copy_tiles(
    int heads, int queries, int keys, int pairs, const Half* k, Heads sk, const Half* v, Heads sv,
    const SharedStorage& storage, int* count, int all
) {
    const int thread = threadIdx.x & 127;
    Copies copies;
    // Tiles are counted over all work items.
    int done = 0, next = thread == 0 ? take(count, all) : 0;
#pragma unroll 1
    for (int round = 0;; ++round) {
        copies.finish();
        if (thread == 0) storage.scheduler.announce(round, next);
        __syncwarp();
        const int item = storage.scheduler.look_up(round);
        warp_arrive(storage.scheduler.read(round));
        if (item >= all) break;
        const Work work(item, pairs, queries, keys);
        const int batch = work.pair / heads, head = work.pair % heads;
        Rows<128> key_rows(sk.find(k, batch, head), sk.row, 0, keys, thread);
        Rows<128> value_rows(sv.find(v, batch, head), sv.row, 0, keys, thread);
        // The keys of a tile are copied before the values of the previous tile, in the order of use.
#pragma unroll 1
        for (int tile = 0; tile <= work.tiles; ++tile) {
            if (tile < work.tiles) {
                const int position = done + tile, stage = position % STAGES;
                copies.before(storage.keys.empty_at(stage), (position / STAGES & 1) ^ 1);
                key_rows.fetch_into<BN, BN>(storage.keys.tile(stage));
                copies.after(storage.keys.full_at(stage));
                // Early, to hide the latency of the atomic.
                if (tile == work.tiles - 1 && thread == 0) next = take(count, all);
            }
            if (tile > 0) {
                const int position = done + tile - 1, stage = position % STAGES;
                copies.before(storage.values.empty_at(stage), (position / STAGES & 1) ^ 1);
                value_rows.fetch_into<BN, BN>(storage.values.tile(stage));
                copies.after(storage.values.full_at(stage));
            }
        }
        done += work.tiles;
    }
}

// Ping-pong scheduling: warpgroups start products in turn, and some use the tensor cores while others compute the
// softmax.
__device__ inline void take_turn(int group) { meet(8 + group, 256); }
__device__ inline void pass_turn(int group) { pass(8 + (group + 1) % GROUPS, 256); }

// Tiles that only other warpgroups use are awaited and released, and turns are passed on.
__device__ __forceinline__ void pass_over(const SharedStorage& storage, int done, int first, int tiles, int group) {
#pragma unroll 1
    for (int tile = first; tile < tiles; ++tile) {
        const int position = done + tile, stage = position % STAGES;
        if (tile > 0) take_turn(group), pass_turn(group);
        barrier_await(storage.keys.full_at(stage), position / STAGES & 1);
        warp_arrive(storage.keys.empty_at(stage));
        barrier_await(storage.values.full_at(stage), position / STAGES & 1);
        warp_arrive(storage.values.empty_at(stage));
    }
}
}

extern "C" __global__ void __launch_bounds__(forward::THREADS, 1) attention_forward(
    int heads, int queries, int keys, float scale, const Half* q, Heads sq, const Half* k, Heads sk,
    const Half* v, Heads sv, Half* out, Heads so, float* sums, const void* mask_at, MaskSteps sm, int pairs,
    int* count
) {
    using namespace forward;
    extern __shared__ u8 space[];
    const SharedStorage storage(shared_address(space));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, thread = threadIdx.x & 127;
    const int all = (queries + BM - 1) / BM * pairs;
    if (threadIdx.x == 0) storage.make_barriers();
    __syncthreads();

    if (group == GROUPS) {
        fewer_registers<GROUPS == 3 ? 32 : 40>();
        copy_tiles(heads, queries, keys, pairs, k, sk, v, sv, storage, count, all);
        return;
    }
    more_registers<GROUPS == 3 ? 160 : 232>();
    const u32 own_queries = storage.queries + group * OWN, own_out = storage.out + group * OWN;
    const float log_scale = scale * LOG2E, factor = MASK ? 1.0f : log_scale;
    // Gets the next work item. Each warpgroup copies its own queries.
    auto begin = [&](int round) {
        const int item = storage.scheduler.look_up(round);
        warp_arrive(storage.scheduler.read(round));
        if (item >= all) return item;
        const Work work(item, pairs, queries, keys);
        const int batch = work.pair / heads, head = work.pair % heads, first = work.first_query + group * 64;
        Rows<128>(sq.find(q, batch, head), sq.row, first, queries, thread).fetch_into<64, 64>(own_queries);
        commit_fetches();
        return item;
    };
    if (group == GROUPS - 1) pass_turn(group);

    // Tiles are counted over all work items.
    int done = 0, item = begin(0);
#pragma unroll 1
    for (int round = 1; item < all; ++round) {
        const Work work(item, pairs, queries, keys);
        const int batch = work.pair / heads, head = work.pair % heads, tiles = work.tiles;
        const int first_row = work.first_query + group * 64, row0 = first_row + warp * 16 + (lane >> 2);
        // This warpgroup may need fewer tiles than the block.
        const int own_tiles = first_row >= queries ? 0 : CAUSAL ? min(tiles, (first_row + 64 + BN - 1) / BN) : tiles;
        const Mask mask(mask_at, sm, batch, head);
        float result[D / 8][4] = {}, score[BN / 8][4], most[2] = {NOTHING, NOTHING}, total[2] = {}, shrink[2];
        u32 weight[BN / 16][4];
        await_fetches<0>();
        publish();
        meet(1 + group, 128);

        // Turns scores into weights; `shrink` rescales the previous results.
        auto weights_of = [&](int tile) {
            if (MASK || (tile + 1) * BN > keys || (CAUSAL && (tile + 1) * BN > first_row))
                mask_scores<ROWS_ARE_QUERIES>(score, log_scale, first_row + warp * 16, tile * BN, queries, keys, mask);
#pragma unroll
            for (int h = 0; h < 2; ++h) shrink[h] = soften(score, h, factor, most[h], total[h]);
        };

        if (own_tiles > 0) {
            const int first_stage = done % STAGES;
            barrier_await(storage.keys.full_at(first_stage), done / STAGES & 1);
            begin_products();
            each_with_each(score, own_queries, 64, storage.keys.tile(first_stage), BN);
            commit_products();
            await_products<0>();
            hold(score);
            warp_arrive(storage.keys.empty_at(first_stage));
            weights_of(0);
            pack(weight, score);
            // The next scores are computed while these weights multiply the values.
#pragma unroll 1
            for (int tile = 1; tile < own_tiles; ++tile) {
                const int position = done + tile, stage = position % STAGES, before = (position - 1) % STAGES;
                barrier_await(storage.keys.full_at(stage), position / STAGES & 1);
                take_turn(group);
                hold(score);
                begin_products();
                each_with_each(score, own_queries, 64, storage.keys.tile(stage), BN);
                commit_products();
                barrier_await(storage.values.full_at(before), (position - 1) / STAGES & 1);
                hold(result);
                begin_products();
                weigh(result, weight, storage.values.tile(before));
                commit_products();
                pass_turn(group);
                await_products<1>();
                hold(score);
                warp_arrive(storage.keys.empty_at(stage));
                weights_of(tile);
                await_products<0>();
                hold(result);
                warp_arrive(storage.values.empty_at(before));
#pragma unroll
                for (int h = 0; h < 2; ++h) scale_row(result, h, shrink[h]);
                pack(weight, score);
            }
            const int last = done + own_tiles - 1, last_stage = last % STAGES;
            barrier_await(storage.values.full_at(last_stage), last / STAGES & 1);
            hold(result);
            begin_products();
            weigh(result, weight, storage.values.tile(last_stage));
            commit_products();
            await_products<0>();
            hold(result);
            warp_arrive(storage.values.empty_at(last_stage));
        }
        pass_over(storage, done, own_tiles, tiles, group);
        done += tiles;
        // All warps of the group have finished reading its queries.
        meet(1 + group, 128);
        item = begin(round);
        const i64 start = (i64)work.pair * queries;
#pragma unroll
        for (int h = 0; h < 2; ++h)
            finish_row(result, h, factor, most[h], total[h], sums, start, row0 + h * 8, queries);
        // Every warp has its own part of that tile.
        __syncwarp();
        put_rows(so.find(out, batch, head), so.row, result, 1.0f, own_out, 64, first_row, queries);
    }
}
