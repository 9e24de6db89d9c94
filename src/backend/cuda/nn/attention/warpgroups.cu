// For the Hopper generation: products of warpgroups (128 threads, 64 rows), with tiles in shared memory
//
// A tile is D / 64 panels of rows of 128 bytes. Chunk c of 16 bytes of row r is at position c ^ (r & 7), the 128-byte
// swizzle of the tensor cores. c[n] is a fragment of 8 columns: a thread has two neighbours of a row and two of the row
// 8 below.

__device__ inline u32 chunk_at(u32 panel, int row, int chunk) { return panel + row * 128 + ((chunk ^ (row & 7)) << 4); }
// The matrix descriptor of an operand: eight rows take 1024 bytes; `across` is the stride of panels, if a product needs
// more than one. The offset is a separate argument so that neighbouring descriptors differ by a constant.
__device__ inline u64 descriptor(u32 address, u32 offset, u32 across) {
    const u32 low = (address >> 4) + (offset >> 4) + (across >> 4 << 16), high = 1024 >> 4 | 1u << 30;
    return (u64)high << 32 | low;
}
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most LEFT of the committed groups are pending.
template <int LEFT> __device__ inline void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// A compiler barrier for reads and writes of these registers.
template <int N> __device__ inline void hold(float (&c)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; ++n) asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}

// The placeholders of 32 and of 64 accumulators in an instruction, and the accumulators.
#define TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TEXT_32 TEXT_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TEXT_48 TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TEXT_64 TEXT_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUM_4(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define SUM_16(n) SUM_4(n), SUM_4(n + 1), SUM_4(n + 2), SUM_4(n + 3)
#define SUM_32(n) SUM_16(n), SUM_16(n + 4)
#define SUM_64(n) SUM_32(n), SUM_32(n + 8)

// c (+)= a b, over 16 of the inner dimension; if `add` is false, c is overwritten. TRANSPOSED: the inner dimension of
// that operand is along the columns of its tile instead of the rows.
template <int TRANSPOSED_A, int TRANSPOSED_B> __device__ inline void multiply(float (&c)[8][4], u64 a, u64 b, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." HALF "." HALF
                 " {" TEXT_32 "}, %32, %33, p, 1, 1, %35, %36; }"
                 : SUM_32(0) : "l"(a), "l"(b), "r"(add), "n"(TRANSPOSED_A), "n"(TRANSPOSED_B));
}
template <int TRANSPOSED_A, int TRANSPOSED_B> __device__ inline void multiply(float (&c)[16][4], u64 a, u64 b, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." HALF "." HALF
                 " {" TEXT_64 "}, %64, %65, p, 1, 1, %67, %68; }"
                 : SUM_64(0) : "l"(a), "l"(b), "r"(add), "n"(TRANSPOSED_A), "n"(TRANSPOSED_B));
}
// The left operand in registers, the right one transposed.
__device__ inline void multiply(float (&c)[8][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." HALF "." HALF
                 " {" TEXT_32 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : SUM_32(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ inline void multiply(float (&c)[16][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." HALF "." HALF
                 " {" TEXT_64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : SUM_64(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// c = left * right^T, with 64 rows of the left tile and the 8 N rows of the right one. `left` and `right` are the
// numbers of rows of the tiles.
template <int N>
__device__ inline void each_with_each(float (&c)[N][4], u32 left_at, int left, u32 right_at, int right) {
#pragma unroll
    for (int s = 0; s < D / 16; ++s) {
        const u64 a = descriptor(left_at, (s >> 2) * left * 128 + (s & 3) * 32, 16);
        const u64 b = descriptor(right_at, (s >> 2) * right * 128 + (s & 3) * 32, 16);
        multiply<0, 0>(c, a, b, s > 0);
    }
}
// c += weights * tile, with 64 rows and 16 K columns of weights, and the 16 K rows of the tile.
template <int K> __device__ inline void weigh(float (&c)[D / 8][4], const u32 (&weights)[K][4], u32 tile) {
#pragma unroll
    for (int s = 0; s < K; ++s) multiply(c, weights[s], descriptor(tile, s * 16 * 128, K * 16 * 128));
}
// Converts the result of a product to the left operand of the next one.
template <int N> __device__ inline void pack(u32 (&to)[N / 2][4], const float (&c)[N][4]) {
#pragma unroll
    for (int s = 0; s < N / 2; ++s) {
        to[s][0] = two(c[2 * s][0], c[2 * s][1]);
        to[s][1] = two(c[2 * s][2], c[2 * s][3]);
        to[s][2] = two(c[2 * s + 1][0], c[2 * s + 1][1]);
        to[s][3] = two(c[2 * s + 1][2], c[2 * s + 1][3]);
    }
}
