//! The evaluation of formulas on the CPU: in blocks of elements, function by function, with intermediate results in buffers that
//! stay in the cache.

use super::formula::{Formula, Inst, MOST_INPUTS};
use super::functions::Function;
use crate::zip::zip;
use crate::{DType, Element, Scalar};
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// The number of elements of a block.
const STRETCH: usize = 256;
/// The number of buffers on the stack. Longer formulas, which are rare, allocate theirs.
const ON_STACK: usize = 10;

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Input(usize),
    Buffer(usize),
    Output,
}

struct SlotCall {
    function: &'static Function,
    args: SmallVec<[Slot; 3]>,
    to: Slot,
}

/// A number that is the same for all elements.
enum BufferValue {
    Known(f64),
    Param(usize),
}

/// The calls of a formula in order, with the place of each result.
pub(super) struct Program {
    calls: Vec<SlotCall>,
    /// Buffers that are filled with one number.
    constants: Vec<BufferValue>,
    buffers: usize,
}

impl Program {
    fn new(formula: &Formula) -> Program {
        let steps = &formula.steps;
        let mut last_use: Vec<usize> = (0..steps.len()).collect();
        for (at, step) in steps.iter().enumerate() {
            if let Inst::Call(function, args) = step {
                args[..function.arity].iter().for_each(|&arg| last_use[arg] = at);
            }
        }
        let mut constants = Vec::new();
        let mut positions = vec![Slot::Output; steps.len()];
        for (position, step) in positions.iter_mut().zip(steps) {
            let constant = match *step {
                Inst::Input(k) => {
                    *position = Slot::Input(k);
                    continue;
                }
                Inst::Call(..) => continue,
                Inst::Const(value) => BufferValue::Known(value),
                Inst::Param(k) => BufferValue::Param(k),
            };
            *position = Slot::Buffer(constants.len());
            constants.push(constant);
        }
        let (mut calls, mut free, mut buffers) = (Vec::new(), Vec::new(), constants.len());
        for (at, step) in steps.iter().enumerate() {
            let Inst::Call(function, args) = step else { continue };
            let args = &args[..function.arity];
            let to = if at + 1 == steps.len() {
                Slot::Output
            } else {
                Slot::Buffer(free.pop().unwrap_or_else(|| {
                    buffers += 1;
                    buffers - 1
                }))
            };
            calls.push(SlotCall { function, args: args.iter().map(|&arg| positions[arg]).collect(), to });
            positions[at] = to;
            for (k, &arg) in args.iter().enumerate() {
                if let (true, Slot::Buffer(buffer), Inst::Call(..)) = (last_use[arg] == at, positions[arg], &steps[arg])
                    && !args[..k].contains(&arg)
                {
                    free.push(buffer);
                }
            }
        }
        Program { calls, constants, buffers }
    }
}

impl Formula {
    /// `y = formula(x)` for `n` elements of the compute dtype, for which there is a kernel.
    ///
    /// # Safety
    /// Each `x[k]` that is one of the formula's inputs is valid for `n` reads and `y` for `n` writes; an `x[k]` is equal to
    /// `y` or does not overlap it.
    #[inline]
    pub unsafe fn run(&self, compute: DType, params: &[Scalar], x: [*const u8; MOST_INPUTS], y: *mut u8, n: usize) {
        if let Some(kernel) = self.direct.and_then(|function| function.kernel(compute)) {
            // SAFETY: the caller's promise.
            return unsafe { kernel([x[0], x[1], x[2]], y, n) };
        }
        // SAFETY: the caller's promise.
        unsafe {
            match compute {
                DType::F32 => self.interpret::<f32>(params, x, y, n),
                DType::F64 => self.interpret::<f64>(params, x, y, n),
                DType::U64 => self.interpret::<u64>(params, x, y, n),
                _ => self.interpret::<i64>(params, x, y, n),
            }
        }
    }

    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(never)]
    unsafe fn interpret<C: Element>(&self, params: &[Scalar], x: [*const u8; MOST_INPUTS], y: *mut u8, n: usize) {
        let program = self.program.get_or_init(|| Program::new(self));
        let mut on_stack = [const { MaybeUninit::<C>::uninit() }; ON_STACK * STRETCH];
        let mut on_heap = Vec::new();
        let buffers = if program.buffers <= ON_STACK {
            on_stack.as_mut_ptr()
        } else {
            on_heap.reserve_exact(program.buffers * STRETCH);
            on_heap.as_mut_ptr()
        };
        let buffers: *mut C = MaybeUninit::<C>::slice_as_ptr(buffers);
        // SAFETY: there is room for one block in each of the buffers.
        unsafe { program.fill_constants::<C>(params, buffers, n.min(STRETCH)) };
        for start in (0..n).step_by(STRETCH) {
            // SAFETY: the caller's promise, for a part of the elements.
            unsafe {
                let offset = start * size_of::<C>();
                let x = x.map(|x| x.wrapping_add(offset));
                program.stretch::<C>(x, y.wrapping_add(offset), buffers, STRETCH.min(n - start));
            }
        }
    }
}

/// The start of a slice that may be uninitialised.
trait SliceStart<C> {
    fn slice_as_ptr(start: *mut MaybeUninit<C>) -> *mut C;
}

impl<C> SliceStart<C> for MaybeUninit<C> {
    fn slice_as_ptr(start: *mut MaybeUninit<C>) -> *mut C {
        start.cast()
    }
}

impl Program {
    /// # Safety
    /// `buffers` has room for one block in each of the program's buffers; `n` is at most the size of a block.
    unsafe fn fill_constants<C: Element>(&self, params: &[Scalar], buffers: *mut C, n: usize) {
        for (at, constant) in self.constants.iter().enumerate() {
            let value = match *constant {
                BufferValue::Known(value) => Scalar::F64(value),
                BufferValue::Param(k) => params.get(k).copied().unwrap_or(Scalar::F64(f64::NAN)),
            };
            let value = C::from_scalar(value);
            for i in 0..n {
                // SAFETY: the caller's promise.
                unsafe { buffers.add(at * STRETCH + i).write(value) };
            }
        }
    }

    /// # Safety
    /// As for [`Formula::run`], with the buffers of [`fill_constants`](Self::fill_constants).
    unsafe fn stretch<C: Element>(&self, x: [*const u8; MOST_INPUTS], y: *mut u8, buffers: *mut C, n: usize) {
        let position = |position: Slot| match position {
            Slot::Input(k) => x[k].cast_mut(),
            Slot::Buffer(at) => buffers.wrapping_add(at * STRETCH).cast::<u8>(),
            Slot::Output => y,
        };
        if self.calls.is_empty() {
            // The formula is an input or a constant.
            let from = if self.constants.is_empty() { x[0] } else { buffers.cast::<u8>().cast_const() };
            // SAFETY: both have room for `n` elements, and may be the same.
            return unsafe { y.copy_from(from, n * size_of::<C>()) };
        }
        for SlotCall { function, args, to } in &self.calls {
            let mut from = [std::ptr::null(); 3];
            for (from, &arg) in zip(&mut from, &args[..]) {
                *from = position(arg).cast_const();
            }
            if let Some(kernel) = function.kernel(C::DTYPE) {
                // SAFETY: every place has room for `n` elements. Arguments are inputs, constants or results of earlier calls;
                // the target is the output, which only the last call writes, or a buffer whose contents are not needed any more.
                unsafe { kernel(from, position(*to), n) };
            }
        }
    }
}
