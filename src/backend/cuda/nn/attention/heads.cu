// The layout of the operands of attention, shared by all its kernels.

// Strides of batch, head and row, in elements; the elements of a row are contiguous.
struct Heads {
    long long batch, head, row;
    // The first row of a head.
    template <class Element> __device__ Element* find(Element* first, int at_batch, int at_head) const {
        return first + at_batch * batch + at_head * head;
    }
};
// The strides of a mask; 0 broadcasts.
struct MaskSteps { long long batch, head, row, column; };
