// For the Hopper generation: synchronization of the producers and consumers of tiles
//
// A barrier in shared memory completes a phase when its expected number of arrivals is reached. Phases have parity 0
// and 1 alternately.

__device__ inline void barrier_make(u32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes the initialized barriers visible.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline bool barrier_passed(u32 barrier, u32 phase) {
    u32 passed;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(passed) : "r"(barrier), "r"(phase) : "memory");
    return passed;
}
__device__ inline void barrier_await(u32 barrier, u32 phase) { while (!barrier_passed(barrier, phase)) {} }
// One arrival per warp, when all of its threads are done.
__device__ inline void warp_arrive(u32 barrier) {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) barrier_arrive(barrier);
}
// Makes ordinary writes to shared memory visible to tensor cores and bulk copies. (Without `.shared::cta` this would
// also wait for pending writes to device memory.)
__device__ inline void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// The same for device memory.
__device__ inline void publish_far() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// A named barrier of `threads` threads: `meet` arrives and waits, `pass` arrives without waiting.
__device__ inline void meet(int which, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}
__device__ inline void pass(int which, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(which), "r"(threads) : "memory");
}
// The producer warpgroup leaves registers to the consumers.
template <int N> __device__ inline void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// A ring buffer of tiles of BYTES bytes, with two barriers each. Producers and consumers count tiles: with STAGES of
// them, tile `count` goes to stage count % STAGES. The parity of its barriers is count / STAGES & 1 for consumers, and
// the other one for producers, since the stage is free the first time.
template <int BYTES> struct Ring {
    u32 tiles, full, empty;
    __device__ u32 tile(int stage) const { return tiles + stage * BYTES; }
    __device__ u32 full_at(int stage) const { return full + stage * 8; }
    __device__ u32 empty_at(int stage) const { return empty + stage * 8; }
};

// The scheduler's broadcast: one thread takes work items and announces them to all warps. There are two slots
// alternately, each with a barrier for "written" and one for "read by all". 40 bytes.
struct Scheduler {
    u32 at;
    __device__ u32 written(int count) const { return at + (count & 1) * 8; }
    __device__ u32 read(int count) const { return at + 16 + (count & 1) * 8; }
    __device__ u32 item(int count) const { return at + 32 + (count & 1) * 4; }
    __device__ void make_barriers(int readers) const {
        for (int s = 0; s < 2; ++s) {
            barrier_make(written(s), 1);
            barrier_make(read(s), readers);
        }
    }
    __device__ void announce(int count, int taken) const {
        barrier_await(read(count), (count >> 1 & 1) ^ 1);
        asm volatile("st.shared.s32 [%0], %1;" ::"r"(item(count)), "r"(taken) : "memory");
        barrier_arrive(written(count));
    }
    // Work item number `count` of this block. Each warp looks it up once, and then arrives at `read`.
    __device__ int look_up(int count) const {
        int taken;
        barrier_await(written(count), count >> 1 & 1);
        asm volatile("ld.shared.s32 %0, [%1];" : "=r"(taken) : "r"(item(count)) : "memory");
        return taken;
    }
};

// The producer: each thread signals that its part of a tile has arrived, at the latest before it waits for a free stage
// or after it has issued the copies of the next tile.
struct Copies {
    u32 pending = 0;
    __device__ void before(u32 empty, u32 phase) {
        if (barrier_passed(empty, phase)) return;
        finish();
        barrier_await(empty, phase);
    }
    __device__ void after(u32 full) {
        commit_fetches();
        if (pending) {
            await_fetches<1>();
            publish();
            barrier_arrive(pending);
        }
        pending = full;
    }
    __device__ void finish() {
        if (!pending) return;
        await_fetches<0>();
        publish();
        barrier_arrive(pending);
        pending = 0;
    }
};

// Rows copied to consecutive tiles by THREADS threads, eight for a row of a panel; rows from `end` on are zeros.
template <int THREADS> struct Rows {
    static constexpr int DOWN = THREADS / 8;
    const Half* at;
    i64 down;
    int left;
    u32 position;
    __device__ Rows(const Half* from, i64 step, int first, int end, int thread) {
        const int row = thread >> 3, chunk = thread & 7;
        at = from + (first + row) * step + chunk * 8;
        down = DOWN * step;
        left = end - first - row;
        position = chunk_at(0, row, chunk);
    }
    // Copies the next COUNT rows to a tile of ALL rows.
    template <int COUNT, int ALL> __device__ void fetch_into(u32 tile) {
#pragma unroll
        for (int i = 0; i < COUNT / DOWN; ++i) {
#pragma unroll
            for (int panel = 0; panel < D / 64; ++panel)
                fetch(tile + position + panel * ALL * 128 + i * DOWN * 128, at + panel * 64, i * DOWN < left);
            at += down;
            // Sequential additions: otherwise the compiler keeps every multiple of `down` in registers.
            asm volatile("" : "+l"(at));
        }
        left -= COUNT;
    }
};

// Writes the 64 rows of a warpgroup, times a factor, through its part of a tile of `rows` rows that is no longer in
// use: coalesced, with 16 bytes per thread.
__device__ inline void put_rows(
    Half* to, i64 step, const float (&c)[D / 8][4], float factor, u32 tile, int rows, int first, int end
) {
    const int lane = threadIdx.x & 31, warp_row = (threadIdx.x >> 5 & 3) * 16;
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        const u32 at = chunk_at(tile + (n >> 3) * rows * 128, warp_row + (lane & 15), (n & 7) + (lane >> 4));
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                     "r"(two(c[n][0] * factor, c[n][1] * factor)), "r"(two(c[n][2] * factor, c[n][3] * factor)),
                     "r"(two(c[n + 1][0] * factor, c[n + 1][1] * factor)),
                     "r"(two(c[n + 1][2] * factor, c[n + 1][3] * factor)) : "memory");
    }
    __syncwarp();
    constexpr int CHUNKS = D / 8, ROWS = 32 / CHUNKS;
#pragma unroll
    for (int i = 0; i < 16 / ROWS; ++i) {
        const int row = warp_row + i * ROWS + lane / CHUNKS, chunk = lane % CHUNKS;
        uint4 x;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(chunk_at(tile + (chunk >> 3) * rows * 128, row, chunk & 7)) : "memory");
        if (first + row < end) *(uint4*)(to + (first + row) * step + chunk * 8) = x;
    }
}
