// Writes the keys (blocks of y 0) and the values (1) of a token of each sequence into a cache, at positions on the device.
// E is the type of the elements.

struct Tokens {
    E* cache;      // [batch, heads, capacity, size]
    const E* from; // [batch, heads, size]
    i64 batch, head, element;
    u64 size;
};

extern "C" __global__ void __launch_bounds__(256) write_tokens(
    Tokens keys, Tokens values, const i64* positions, i64 position_step, u64 batches, u64 heads, u64 capacity
) {
    const Tokens t = blockIdx.y ? values : keys;
    const u64 all = batches * heads * t.size;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < all; i += (u64)gridDim.x * 256) {
        const u64 element = i % t.size, pair = i / t.size, batch = pair / heads, head = pair % heads;
        const i64 at = positions[(i64)batch * position_step];
        if (at < 0 || at >= (i64)capacity) continue;
        t.cache[(pair * capacity + at) * t.size + element] =
            t.from[(i64)batch * t.batch + (i64)head * t.head + (i64)element * t.element];
    }
}
