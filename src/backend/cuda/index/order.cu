// The order of elements, given by their bits: ORDER is 0 for unsigned integers, 1 for signed integers, 2 for floats.

#ifdef ORDER
#define ONES (sizeof(E) == 8 ? ~0ull : (1ull << (sizeof(E) * 8)) - 1)

// The element as an unsigned integer in that order. NaN comes last, and -0 equals 0.
__device__ inline u64 sort_key(E x) {
    const int width = sizeof(E) * 8;
    const u64 sign = 1ull << (width - 1);
    u64 own = (u64)x;
    if (ORDER == 0) return own;
    if (ORDER == 1) return own ^ sign;
    // NaN: all exponent bits and a mantissa bit.
    const u64 infinity = width == 64 ? 0x7ff0000000000000ull : width == 32 ? 0x7f800000ull : HALF_INFINITY;
    if ((own & ~sign) > infinity) return ONES;
    if (own == sign) own = 0;
    return (own & sign ? ~own : own | sign) & ONES;
}

// Whether the element can be recovered from its key: there are several NaNs and two zeros.
__device__ inline bool is_known(u64 key) { return ORDER != 2 || key != ONES && key != 1ull << (sizeof(E) * 8 - 1); }
__device__ inline E element_of(u64 key) {
    const u64 sign = 1ull << (sizeof(E) * 8 - 1);
    if (ORDER == 0) return (E)key;
    return (E)(ORDER == 1 || key & sign ? key ^ sign : ~key);
}
#endif
