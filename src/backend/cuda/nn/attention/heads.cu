// Where the operands of attention lie: what all its kernels share.

// Steps, in elements, from one batch, head and row to the next; the elements of a row lie side by side.
struct Heads {
    long long batch, head, row;
    // Where the rows of a head begin.
    template <class Element> __device__ Element* find(Element* first, int at_batch, int at_head) const {
        return first + at_batch * batch + at_head * head;
    }
};
// The same of a mask; a step of 0 repeats what is there.
struct MaskSteps { long long batch, head, row, column; };
