// Error reports of running kernels.

// Read by the CPU at the next synchronisation: the operation that first found an index out of range.
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

// An indexed dimension; with `from_end` negative indices count from its end.
struct Dimension {
    i64 size;
    u64 from_end;
    __device__ i64 counted(i64 index) const { return from_end && index < 0 ? index + size : index; }
};

// As above, for an index that is wrapped first.
__device__ inline bool outside(i64& index, const Dimension& dimension, u64 op, u32* taken, Fault* fault) {
    const i64 given = index;
    index = dimension.counted(given);
    return (u64)index >= (u64)dimension.size && outside(given, dimension.size, op, taken, fault);
}
