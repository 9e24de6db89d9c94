// Reports of what is found wrong while a kernel runs.

// What the CPU reads when it next waits for the GPU: the operation that met a wrong index first.
struct Fault { u64 op; i64 index, size; };

__device__ inline bool outside(i64 index, i64 size, u64 op, u32* taken, Fault* fault) {
    if ((u64)index < (u64)size) return false;
    if (atomicExch(taken, 1u) == 0) {
        fault->index = index, fault->size = size;
        __threadfence_system();
        fault->op = op;
    }
    return true;
}

