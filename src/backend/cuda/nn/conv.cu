// Convolutions as implicit matrix products, whose operands are gathered on the fly. All tensors are contiguous. With
// `p` the problem:
//   x is (batch, groups * c_in, input), w (groups * c_out, c_in, kernel), y (batch, groups * c_out, output).
//
// KIND is 0 for y from x and w, 1 for the gradient of x from that of y and w, 2 for the gradient of w from x and that of y.
// The sizes of the kernel (KD, KH, KW) and the strides (SD, SH, SW) are compile-time constants, since they are
// divisors. S is a signed index type.

struct Problem { i64 batch, groups, c_in, c_out, input[3], output[3], pad[3], dilation[3]; };

#define KERNEL ((S)KD * KH * KW)
#define TILE 64
#define STEP 16

__device__ inline T load(const E* x, u64 at) { return (T)widen(x[at]); }
__device__ inline S positions(const i64* sizes) { return (S)(sizes[0] * sizes[1] * sizes[2]); }

// The flat index of the input that an output reads for a kernel element; -1 if it is padding.
__device__ inline i64 source(const Problem& p, S d, S h, S w, S element) {
    const S kd = element / (KH * KW), kh = element / KW % KH, kw = element % KW;
    const S y = d * SD + kd * (S)p.dilation[0] - (S)p.pad[0];
    const S z = h * SH + kh * (S)p.dilation[1] - (S)p.pad[1];
    const S x = w * SW + kw * (S)p.dilation[2] - (S)p.pad[2];
    const bool inside = y >= 0 && y < p.input[0] && z >= 0 && z < p.input[1] && x >= 0 && x < p.input[2];
    return inside ? ((i64)y * p.input[1] + z) * p.input[2] + x : -1;
}

// The flat index of the output that reads an input for a kernel element; -1 if there is none.
__device__ inline i64 reader(const Problem& p, S d, S h, S w, S element) {
    const S kd = element / (KH * KW), kh = element / KW % KH, kw = element % KW;
    const S y = d + (S)p.pad[0] - kd * (S)p.dilation[0];
    const S z = h + (S)p.pad[1] - kh * (S)p.dilation[1];
    const S x = w + (S)p.pad[2] - kw * (S)p.dilation[2];
    if (y < 0 || z < 0 || x < 0 || y % SD != 0 || z % SH != 0 || x % SW != 0) return -1;
    const S a = y / SD, b = z / SH, c = x / SW;
    const bool inside = a < p.output[0] && b < p.output[1] && c < p.output[2];
    return inside ? ((i64)a * p.output[1] + b) * p.output[2] + c : -1;
}

// Three coordinates.
struct Index3 { S d, h, w; };
__device__ inline Index3 index_of(S at, const i64* sizes) {
    const S width = (S)sizes[2], height = (S)sizes[1], row = at / width;
    return { row / height, row % height, at % width };
}

// The numbers of rows and columns, and the inner size, of a group's product.
__device__ inline u64 rows_of(const Problem& p) { return KIND == 1 ? p.c_in : p.c_out; }
__device__ inline u64 columns_of(const Problem& p) {
    if (KIND == 2) return p.c_in * KERNEL;
    return (u64)p.batch * (KIND == 1 ? positions(p.input) : positions(p.output));
}
__device__ inline u64 inner_of(const Problem& p) {
    if (KIND == 2) return (u64)p.batch * positions(p.output);
    return (KIND == 1 ? p.c_out : p.c_in) * KERNEL;
}

// The flat index of a result: in (batch, channels, positions), or in (rows, columns) of the weight.
__device__ inline u64 target(const Problem& p, u64 group, u64 row, u64 column) {
    if (KIND == 2) return (group * p.c_out + row) * (p.c_in * KERNEL) + column;
    const u64 all = KIND == 1 ? positions(p.input) : positions(p.output), own = KIND == 1 ? p.c_in : p.c_out;
    return (column / all * p.groups * own + group * own + row) * all + column % all;
}

// An element of the left operand.
__device__ inline T left(const Problem& p, const E* a, u64 group, u64 row, u64 k) {
    if (KIND == 0) return load(a, (group * p.c_out + row) * (p.c_in * KERNEL) + k);
    if (KIND == 1) return load(a, ((group * p.c_out + k / KERNEL) * p.c_in + row) * KERNEL + k % KERNEL);
    const u64 all = positions(p.output);
    return load(a, ((k / all * p.groups + group) * p.c_out + row) * all + k % all);
}

// An element of the right operand, whose column or inner index is already split into coordinates.
__device__ inline T right(const Problem& p, const E* b, u64 group, u64 batch, Index3 at, u64 channel, S element) {
    const i64 position = KIND == 1 ? reader(p, at.d, at.h, at.w, element) : source(p, at.d, at.h, at.w, element);
    if (position < 0) return T(0);
    const u64 all = KIND == 1 ? positions(p.output) : positions(p.input), own = KIND == 1 ? p.c_out : p.c_in;
    return load(b, ((batch * p.groups + group) * own + channel) * all + position);
}

// A block computes a tile of the results of a group, over a part of the inner dimension.
extern "C" __global__ void __launch_bounds__(256) tiles(
    const E* a, const E* b, const T* bias, E* y, T* partial, Problem p, u64 splits, u64 length
) {
    __shared__ T left_tile[STEP][TILE + 1], right_tile[STEP][TILE + 1];
    const u64 rows = rows_of(p), columns = columns_of(p), inner = inner_of(p);
    const u64 high = (rows + TILE - 1) / TILE, wide = (columns + TILE - 1) / TILE;
    u64 block = blockIdx.x;
    const u64 row0 = block % high * TILE;
    block /= high;
    const u64 column0 = block % wide * TILE;
    block /= wide;
    const u64 split = block % splits, group = block / splits;
    const u64 begin = split * length, end = begin + length < inner ? begin + length : inner;
    const int thread = threadIdx.x, tx = thread % 16, ty = thread / 16;
    // The right operand loaded by this thread: one column in each step or, for the weight, four columns at one
    // position.
    const u64 column = column0 + thread % TILE;
    u64 batch = 0;
    Index3 at = { 0, 0, 0 };
    if (KIND != 2) {
        const i64* sizes = KIND == 1 ? p.input : p.output;
        const u64 all = positions(sizes);
        batch = column / all;
        at = index_of((S)(column % all), sizes);
    }
    T sums[4][4] = {};
    for (u64 k0 = begin; k0 < end; k0 += STEP) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u64 row = row0 + ty + 16 * i, k = k0 + tx;
            left_tile[tx][ty + 16 * i] = row < rows && k < end ? left(p, a, group, row, k) : T(0);
        }
        if (KIND == 2) {
            const u64 k = k0 + tx, all = positions(p.output);
            const u64 own = k / all;
            const Index3 here = index_of((S)(k % all), p.output);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u64 c = column0 + ty + 16 * i;
                const bool inside = c < columns && k < end;
                right_tile[tx][ty + 16 * i] = inside ? right(p, b, group, own, here, c / KERNEL, (S)(c % KERNEL)) : T(0);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int step = thread / TILE + 4 * i;
                const u64 k = k0 + step;
                const bool inside = column < columns && k < end;
                right_tile[step][thread % TILE] = inside ? right(p, b, group, batch, at, k / KERNEL, (S)(k % KERNEL)) : T(0);
            }
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
            T own[4], others[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) own[i] = left_tile[k][ty * 4 + i], others[i] = right_tile[k][tx + 16 * i];
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sums[i][j] += own[i] * others[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            const u64 row = row0 + ty * 4 + i, c = column0 + tx + 16 * j;
            if (row >= rows || c >= columns) continue;
            const u64 to = target(p, group, row, c);
            if (KIND == 2) partial[split * p.groups * rows * columns + to] = sums[i][j];
            else narrow(y[to], sums[i][j] + (bias ? bias[group * rows + row] : T(0)));
        }
    }
}

// Adds the parts in order.
extern "C" __global__ void __launch_bounds__(256) add_parts(const T* partial, E* y, u64 n, u64 splits) {
    const u64 all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        T sum = T(0);
        for (u64 split = 0; split < splits; ++split) sum += partial[split * n + i];
        narrow(y[i], sum);
    }
}

// Groups of few channels: a thread computes one result; for the weight, a block does.
extern "C" __global__ void __launch_bounds__(256) direct(
    const E* a, const E* b, const T* bias, E* y, Problem p, u64 n
) {
    const u64 rows = rows_of(p), inner = KIND == 1 ? p.c_out : p.c_in;
    const i64* sizes = KIND == 1 ? p.input : p.output;
    const u64 places_each = positions(sizes), all = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += all) {
        const u64 channel = i / places_each % (p.groups * rows), batch = i / places_each / (p.groups * rows);
        const u64 group = channel / rows, row = channel % rows;
        const Index3 at = index_of((S)(i % places_each), sizes);
        T sum = bias ? bias[channel] : T(0);
        for (u64 c = 0; c < inner; ++c)
            for (S element = 0; element < KERNEL; ++element)
                sum += left(p, a, group, row, c * KERNEL + element) * right(p, b, group, batch, at, c, element);
        narrow(y[i], sum);
    }
}

extern "C" __global__ void __launch_bounds__(256) direct_weight(const E* a, const E* b, E* y, Problem p, u64 n) {
    __shared__ T sums[256];
    for (u64 i = blockIdx.x; i < n; i += gridDim.x) {
        const u64 columns = p.c_in * KERNEL, row = i / columns % p.c_out, group = i / columns / p.c_out;
        const u64 all = positions(p.output), inner = (u64)p.batch * all, channel = i % columns / KERNEL;
        const S element = (S)(i % KERNEL);
        T sum = T(0);
        for (u64 k = threadIdx.x; k < inner; k += 256) {
            const Index3 at = index_of((S)(k % all), p.output);
            sum += left(p, a, group, row, k) * right(p, b, group, k / all, at, channel, element);
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int half = 128; half > 0; half /= 2) {
            if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) narrow(y[i], sums[0]);
        __syncthreads();
    }
}
