//! The parameters of convolution kernels.

use smallvec::SmallVec;

/// A convolution over three dimensions; with fewer dimensions the leading sizes are 1. With `G` groups its input is
/// `[batch, G · c_in, input..]`, its weight `[G · c_out, c_in, kernel..]` and its output `[batch, G · c_out, output..]`:
///
/// `output[o] = Σ_k weight[k] · input[o · stride + k · dilation - pad]`, with 0 outside of the input.
///
/// The padding after the last element follows from the size of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conv {
    pub batch: usize,
    pub groups: usize,
    pub c_in: usize,
    pub c_out: usize,
    pub input: [usize; 3],
    pub output: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub pad: [usize; 3],
    pub dilation: [usize; 3],
    /// Whether f32 operands may be rounded to TF32, which a GPU multiplies faster.
    pub tf32: bool,
}

impl Conv {
    /// Whether it is a matrix product: each output position reads only the input at that position.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1; 3] && self.stride == [1; 3] && self.pad == [0; 3] && self.input == self.output
    }
}

/// An element of the kernel along one dimension, and the position that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tap {
    /// Its index in the kernel.
    pub at: usize,
    /// The offset from the position of the result, times a step.
    pub offset: isize,
}

/// Results along one dimension with the same read pattern: those at `first`, `first + every`, .. . The `i`-th of them reads the
/// source at `i · step + offset` for each tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub first: usize,
    pub every: usize,
    pub count: usize,
    pub step: usize,
    pub taps: SmallVec<[Tap; 8]>,
}

impl Phase {
    /// How the output of a convolution reads its input.
    pub fn of_output(conv: &Conv, dim: usize) -> Phase {
        let offset = |k: usize| (k * conv.dilation[dim]) as isize - conv.pad[dim] as isize;
        let taps = (0..conv.kernel[dim]).map(|at| Tap { at, offset: offset(at) }).collect();
        Phase { first: 0, every: 1, count: conv.output[dim], step: conv.stride[dim], taps }
    }

    /// How the gradient of the input reads that of the output: with a stride `s` there are up to `s` kinds of positions, each with its
    /// part of the kernel. Positions that no output has read are in none.
    pub fn of_input(conv: &Conv, dim: usize) -> Vec<Phase> {
        let (stride, size) = (conv.stride[dim], conv.input[dim]);
        let mut all: Vec<Phase> = Vec::new();
        for at in 0..conv.kernel[dim] {
            let shift = conv.pad[dim] as isize - (at * conv.dilation[dim]) as isize;
            let first = shift.wrapping_neg().rem_euclid(stride as isize) as usize;
            if first >= size {
                continue;
            }
            let tap = Tap { at, offset: (first as isize + shift) / stride as isize };
            match all.iter_mut().find(|phase| phase.first == first) {
                Some(phase) => phase.taps.push(tap),
                None => {
                    let (count, taps) = ((size - first).div_ceil(stride), SmallVec::from_slice(&[tap]));
                    all.push(Phase { first, every: stride, count, step: 1, taps });
                }
            }
        }
        all
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    /// The forward and backward patterns contain the same pairs of inputs and outputs, each once.
    #[test]
    fn both_sides_meet_the_same_pairs() {
        for (size, kernel, stride, pad, dilation) in
            [(7, 3, 1, 1, 1), (8, 3, 2, 1, 1), (9, 2, 3, 0, 2), (5, 4, 4, 2, 1), (6, 3, 5, 4, 3), (4, 1, 2, 0, 1)]
        {
            let output = (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
            let three = |x| [1, 1, x];
            let conv = Conv {
                batch: 1,
                groups: 1,
                c_in: 1,
                c_out: 1,
                input: three(size),
                output: three(output),
                kernel: three(kernel),
                stride: three(stride),
                pad: [0, 0, pad],
                dilation: three(dilation),
                tf32: false,
            };
            let pairs = |phase: &Phase, limit: usize| {
                let mut all = Vec::new();
                for i in 0..phase.count {
                    for tap in &phase.taps {
                        let source = (i * phase.step) as isize + tap.offset;
                        if (0..limit as isize).contains(&source) {
                            all.push((phase.first + i * phase.every, source as usize, tap.at));
                        }
                    }
                }
                all
            };
            let mut forward: Vec<_> =
                pairs(&Phase::of_output(&conv, 2), size).into_iter().map(|(o, i, k)| (i, o, k)).collect();
            let mut backward: Vec<_> =
                Phase::of_input(&conv, 2).iter().flat_map(|phase| pairs(phase, output)).collect();
            forward.sort_unstable();
            backward.sort_unstable();
            assert_eq!(forward, backward, "{conv:?}");
        }
    }
}
