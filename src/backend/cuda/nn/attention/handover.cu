// For the Hopper generation: hand-over between those who fill tiles and those who use them
//
// A barrier in shared memory passes from one phase to the next when as many have arrived as it was made for. Phases are
// told apart by 0 and 1, in turn.

__device__ inline void barrier_make(u32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Lets everybody see the barriers made.
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
// One arrival a warp, when all of its threads are done.
__device__ inline void warp_arrive(u32 barrier) {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) barrier_arrive(barrier);
}
// What ordinary instructions wrote into shared memory is seen by tensor cores and bulk copies. (Without `.shared::cta`
// this would wait for everything on its way to device memory too.)
__device__ inline void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// The same of device memory.
__device__ inline void publish_far() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// Of `threads` threads, those who meet wait until all have met or passed.
__device__ inline void meet(int which, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}
__device__ inline void pass(int which, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(which), "r"(threads) : "memory");
}
// A warpgroup that copies leaves registers to those that compute.
template <int N> __device__ inline void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// Tiles of BYTES bytes that are filled and used in turn, with two barriers each. Both sides count the tiles that come:
// with STAGES of them, the `count`th goes to stage count % STAGES. The phase of its barriers is count / STAGES & 1 for
// those who use it, and the other one for those who fill it, as the first time nobody has to give it back.
template <int BYTES> struct Ring {
    u32 tiles, full, empty;
    __device__ u32 tile(int stage) const { return tiles + stage * BYTES; }
    __device__ u32 full_at(int stage) const { return full + stage * 8; }
    __device__ u32 empty_at(int stage) const { return empty + stage * 8; }
};

// Pieces of work, which one thread takes and all warps get to know: two places in turn, with a barrier each for "it is
// there", and one for "everybody knows it". 40 bytes.
struct Taken {
    u32 at;
    __device__ u32 there(int count) const { return at + (count & 1) * 8; }
    __device__ u32 known(int count) const { return at + 16 + (count & 1) * 8; }
    __device__ u32 item(int count) const { return at + 32 + (count & 1) * 4; }
    __device__ void make_barriers(int readers) const {
        for (int s = 0; s < 2; ++s) {
            barrier_make(there(s), 1);
            barrier_make(known(s), readers);
        }
    }
    __device__ void tell(int count, int taken) const {
        barrier_await(known(count), (count >> 1 & 1) ^ 1);
        asm volatile("st.shared.s32 [%0], %1;" ::"r"(item(count)), "r"(taken) : "memory");
        barrier_arrive(there(count));
    }
    // The piece that comes `count`th here. Everybody looks it up once, and then arrives at `known`.
    __device__ int look_up(int count) const {
        int taken;
        barrier_await(there(count), count >> 1 & 1);
        asm volatile("ld.shared.s32 %0, [%1];" : "=r"(taken) : "r"(item(count)) : "memory");
        return taken;
    }
};

// The copying side: each thread tells that its part of a tile is there once it is, which it looks for when it would
// otherwise wait, or after it has asked for the next tile.
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

// Rows that go into tiles one after the other, by THREADS threads, eight of which take a row of a panel; rows from
// `end` on are zeros.
template <int THREADS> struct Rows {
    static constexpr int DOWN = THREADS / 8;
    const Half* at;
    i64 down;
    int left;
    u32 place;
    __device__ Rows(const Half* from, i64 step, int first, int end, int thread) {
        const int row = thread >> 3, chunk = thread & 7;
        at = from + (first + row) * step + chunk * 8;
        down = DOWN * step;
        left = end - first - row;
        place = chunk_at(0, row, chunk);
    }
    // The next COUNT rows, into a tile of ALL rows.
    template <int COUNT, int ALL> __device__ void fetch_into(u32 tile) {
#pragma unroll
        for (int i = 0; i < COUNT / DOWN; ++i) {
#pragma unroll
            for (int panel = 0; panel < D / 64; ++panel)
                fetch(tile + place + panel * ALL * 128 + i * DOWN * 128, at + panel * 64, i * DOWN < left);
            at += down;
            // One sum after the other: the compiler would keep every multiple of `down` in registers, which are few.
            asm volatile("" : "+l"(at));
        }
        left -= COUNT;
    }
};

// Writes the 64 rows of a warpgroup, times a number, through its own part of a tile of `rows` rows, which nobody uses
// any more: 16 bytes a thread, neighbours side by side.
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
