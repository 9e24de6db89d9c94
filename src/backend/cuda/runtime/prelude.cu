// The prelude of every generated kernel. It is preceded by `typedef … T;`, the compute dtype, and `typedef … I;`, an
// unsigned type for positions.

typedef float f32;
typedef double f64;
typedef long long i64;
typedef int i32;
typedef short i16;
typedef signed char i8;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct boolean { u8 bits; };

// Conversion to the compute dtype. Half precision by PTX instructions, since the headers may be missing.
__device__ inline float widen(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
__device__ inline float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ inline u8 widen(boolean x) { return x.bits != 0; }
template <class X> __device__ inline X widen(X x) { return x; }

// Conversion to integers as by Rust's `as`: saturating, and 0 for NaN.
__device__ inline i64 whole(float x) { return x != x ? 0 : (i64)x; }
__device__ inline i64 whole(double x) { return x != x ? 0 : (i64)x; }
__device__ inline i64 whole(i64 x) { return x; }
__device__ inline u64 whole(u64 x) { return x; }
__device__ inline u64 natural(float x) { return x != x ? 0 : x < 0 ? (u64)(i64)x : (u64)x; }
__device__ inline u64 natural(double x) { return x != x ? 0 : x < 0 ? (u64)(i64)x : (u64)x; }
__device__ inline u64 natural(i64 x) { return (u64)x; }
__device__ inline u64 natural(u64 x) { return x; }

// Conversion from the compute dtype.
__device__ inline void narrow(f32& to, T x) { to = (f32)x; }
__device__ inline void narrow(f64& to, T x) { to = (f64)x; }
__device__ inline void narrow(f16& to, T x) {
    // An f64 is rounded once, not through f32.
    if (sizeof(T) == 8 && T(0.5) != T(0)) asm("cvt.rn.f16.f64 %0, %1;" : "=h"(to.bits) : "d"((double)x));
    else asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"((float)x));
}
__device__ inline void narrow(bf16& to, T x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"((float)x)); }
__device__ inline void narrow(boolean& to, T x) { to.bits = x != T(0); }
__device__ inline void narrow(i64& to, T x) { to = (i64)whole(x); }
__device__ inline void narrow(i32& to, T x) { to = (i32)whole(x); }
__device__ inline void narrow(i16& to, T x) { to = (i16)whole(x); }
__device__ inline void narrow(i8& to, T x) { to = (i8)whole(x); }
__device__ inline void narrow(u64& to, T x) { to = natural(x); }
__device__ inline void narrow(u32& to, T x) { to = (u32)whole(x); }
__device__ inline void narrow(u16& to, T x) { to = (u16)whole(x); }
__device__ inline void narrow(u8& to, T x) { to = (u8)whole(x); }

// Functions that CUDA does not have.
__device__ inline float divide(float a, float b) { return a / b; }
__device__ inline double divide(double a, double b) { return a / b; }
__device__ inline u64 divide(u64 a, u64 b) { return b == 0 ? 0 : a / b; }
__device__ inline i64 divide(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? (i64)(0 - (u64)a) : a / b; }
__device__ inline float power(float a, float b) { return powf(a, b); }
__device__ inline double power(double a, double b) { return pow(a, b); }
template <class X> __device__ inline X integer_power(X base, i64 exponent) {
    X result = 1, square = base;
    for (u64 left = exponent < 0 ? 0 - (u64)exponent : (u64)exponent; left > 0; left >>= 1) {
        if (left & 1) result *= square;
        square *= square;
    }
    return exponent < 0 ? divide((X)1, result) : result;
}
__device__ inline i64 power(i64 a, i64 b) { return integer_power<i64>(a, b); }
__device__ inline u64 power(u64 a, u64 b) {
    u64 result = 1;
    for (; b > 0; b >>= 1, a *= a) if (b & 1) result *= a;
    return result;
}
// NaN in either argument gives NaN.
template <class X> __device__ inline X larger(X a, X b) { return a > b || a != a ? a : b; }
template <class X> __device__ inline X smaller(X a, X b) { return a < b || a != a ? a : b; }
template <class X> __device__ inline X absolute(X x) { return x > X(0) ? x : X(0) - x; }
template <class X> __device__ inline X sign(X x) { return X(x > X(0)) - X(x < X(0)); }
template <class X> __device__ inline X logical_and(X a, X b) { return X(a != X(0) && b != X(0)); }
template <class X> __device__ inline X logical_or(X a, X b) { return X(a != X(0) || b != X(0)); }
template <class X> __device__ inline X logical_not(X x) { return X(x == X(0)); }
template <class X> __device__ inline X select(X c, X a, X b) { return c != X(0) ? a : b; }
template <class X> __device__ inline X eq(X a, X b) { return X(a == b); }
template <class X> __device__ inline X ne(X a, X b) { return X(a != b); }
template <class X> __device__ inline X lt(X a, X b) { return X(a < b); }
template <class X> __device__ inline X le(X a, X b) { return X(a <= b); }
template <class X> __device__ inline X gt(X a, X b) { return X(a > b); }
template <class X> __device__ inline X ge(X a, X b) { return X(a >= b); }
__device__ inline i64 shift_left(i64 a, i64 b) { return (u64)b < 64 ? (i64)((u64)a << b) : 0; }
__device__ inline u64 shift_left(u64 a, u64 b) { return b < 64 ? a << b : 0; }
__device__ inline i64 shift_right(i64 a, i64 b) { return a >> ((u64)b < 64 ? b : 63); }
__device__ inline u64 shift_right(u64 a, u64 b) { return b < 64 ? a >> b : a >> 63; }
template <class X> __device__ inline X gcd(X a, X b) {
    // The remainder of the minimum by -1 would overflow.
    while (b != 0) { X rest = b == (X)-1 ? 0 : a % b; a = b; b = rest; }
    return a > 0 ? a : 0 - a;
}
// e^-|x| cannot overflow, so the left tail is accurate down to the denormals.
__device__ inline float sigmoid(float x) { float e = expf(-fabsf(x)); return (x < 0 ? e : 1.0f) / (1.0f + e); }
__device__ inline double sigmoid(double x) { double e = exp(-fabs(x)); return (x < 0 ? e : 1.0) / (1.0 + e); }

template <class X> __device__ inline X mantissa(X x) { int e; return frexp(x, &e); }
template <class X> __device__ inline X exponent(X x) {
    int e = 0;
    if (x - x == X(0)) frexp(x, &e);
    return (X)e;
}

// Faster versions, accurate to 1e-5 or better, for results that are rounded to half precision.
namespace fast {
__device__ inline float power_of_two(float x) { float y; asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ inline float inverse(float x) { float y; asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ inline float exp(float x) { return power_of_two(x * 1.44269504f); }
__device__ inline float divide(float a, float b) {
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
__device__ inline float sigmoid(float x) { float e = exp(-fabsf(x)); return (x < 0 ? e : 1.0f) * inverse(1.0f + e); }
__device__ inline float tanh(float x) {
    // Near 0, where the difference below cancels: the first terms of the series.
    const float square = x * x;
    const float near = __fmaf_rn(__fmaf_rn(square, 0.13333334f, -0.33333334f) * square, x, x);
    const float far = 1.0f - 2.0f * inverse(1.0f + power_of_two(fabsf(x) * 2.88539008f));
    return square < 0.01f ? near : copysignf(far, x);
}
}
#define FAST_MATH using fast::exp; using fast::divide; using fast::sigmoid; using fast::tanh;

// Sizes and strides of the dimensions of a strided operand.
template <int R> struct Steps { i64 size[R], step[R]; };
template <int R> __device__ inline i64 position(I i, const Steps<R>& steps) {
    i64 at = 0;
#pragma unroll
    for (int r = R - 1; r > 0; --r) {
        I size = (I)steps.size[r], rest = i / size;
        at += (i64)(i - rest * size) * steps.step[r];
        i = rest;
    }
    return at + (i64)i * steps.step[0];
}

// Atomic addition and maximum, as PTX instructions without a result: `atomicAdd` and `atomicMax` with an unused result are a
// quarter slower.
__device__ inline void add_at(u64* at, u64 x) { asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" :: "l"(at), "l"(x) : "memory"); }
__device__ inline void add_at(f32* at, f32 x) { asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(at), "f"(x) : "memory"); }
__device__ inline void add_at(f64* at, f64 x) { asm volatile("red.relaxed.gpu.global.add.f64 [%0], %1;" :: "l"(at), "d"(x) : "memory"); }
__device__ inline void max_at(u64* at, u64 x) { asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" :: "l"(at), "l"(x) : "memory"); }
__device__ inline void max_at(u32* at, u32 x) { asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" :: "l"(at), "r"(x) : "memory"); }

// Adjacent elements that are read or written with one instruction.
template <class X, int V> struct alignas(sizeof(X) * V) Pack { X x[V]; };

// Kernels that are launched by `launch_overlapping` start before the one before has ended, where the GPU can do that. They call
// `await_previous` before they read or write anything that others write, or begin with `overlap`.

// Lets the next kernel start as soon as there is room for it.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the kernels before have ended and all that they wrote can be read.
__device__ inline void await_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void overlap() {
    let_next_start();
    await_previous();
}

// Brings a line of memory into the L2 cache, which is safe at any time: others' writes go through it.
__device__ inline void prefetch(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" :: "l"(from));
}
