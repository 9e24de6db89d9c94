// Writes the keys and values of a token of each sequence into a cache, at positions on the device, as they are, or rotated by angles.
// E is the type of the elements, V that of the angles.

struct Tokens {
    E* to;         // Contiguous: a cache [batch, heads, capacity, size], or queries [batch, heads, size].
    const E* from; // [batch, heads, size]
    i64 batch, head, element;
    u64 size;
};

// Where a sequence's token goes; negative if that is outside of the cache.
__device__ inline i64 place(const i64* positions, i64 step, u64 batch, u64 pair, u64 capacity, u64 size) {
    const i64 at = positions[(i64)batch * step];
    return at < 0 || at >= (i64)capacity ? -1 : (i64)((pair * capacity + (u64)at) * size);
}

#ifndef ROTATE
// Blocks of y are the keys (0) and the values (1).
extern "C" __global__ void __launch_bounds__(256) write_tokens(
    Tokens keys, Tokens values, const i64* positions, i64 step, u64 batches, u64 heads, u64 capacity
) {
    overlap();
    const Tokens t = blockIdx.y ? values : keys;
    const u64 all = batches * heads * t.size;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < all; i += (u64)gridDim.x * 256) {
        const u64 element = i % t.size, pair = i / t.size, batch = pair / heads, head = pair % heads;
        const i64 to = place(positions, step, batch, pair, capacity, t.size);
        if (to >= 0) t.to[to + element] = t.from[(i64)batch * t.batch + (i64)head * t.head + (i64)element * t.element];
    }
}
#else
// Blocks of y are the queries (0), the keys (1), whose pairs of elements, half a head apart, are rotated, and the values (2).
extern "C" __global__ void __launch_bounds__(256) rotate_tokens(
    Tokens queries, Tokens keys, Tokens values, const V* cos, const V* sin, i64 angle_step, const i64* positions, i64 step,
    u64 batches, u64 query_heads, u64 heads, u64 capacity
) {
    overlap();
    const Tokens t = blockIdx.y == 0 ? queries : blockIdx.y == 1 ? keys : values;
    const u64 own = blockIdx.y == 0 ? query_heads : heads, half = t.size / 2, all = batches * own * half;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < all; i += (u64)gridDim.x * 256) {
        const u64 k = i % half, pair = i / half, batch = pair / own, head = pair % own;
        const i64 start = blockIdx.y == 0 ? (i64)(pair * t.size) : place(positions, step, batch, pair, capacity, t.size);
        if (start < 0) continue;
        const E* from = t.from + (i64)batch * t.batch + (i64)head * t.head;
        const E first = from[(i64)k * t.element], second = from[(i64)(k + half) * t.element];
        E* to = t.to + start + k;
        if (blockIdx.y == 2) {
            to[0] = first, to[half] = second;
            continue;
        }
        const T a = (T)widen(first), b = (T)widen(second);
        const T c = (T)widen(cos[(i64)batch * angle_step + (i64)k]), s = (T)widen(sin[(i64)batch * angle_step + (i64)k]);
        narrow(to[0], a * c - b * s);
        narrow(to[half], b * c + a * s);
    }
}
#endif
