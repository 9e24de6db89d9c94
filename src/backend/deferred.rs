//! Deferred elementwise operations: a chain of them goes through memory once.
//!
//! The cost of an operation on a large tensor is the memory traffic of its operands and its result, not the arithmetic. So its
//! result is at first only a [`Step`]: the kernel, and handles to the operands. When the values are needed, that step and all
//! pending steps behind it are computed together, tile by tile in the cache (`cpu::elementwise::chain`). An intermediate result
//! is written to memory if a backward pass will read it. A handle alone is not a reason to write it, since in Rust the
//! temporaries of a statement live to its end. Such a result stays pending, if this takes no more memory than its values. If it
//! is computed a second time it is written, so nothing is computed more than twice.
//!
//! Arguments are checked when the operation is called; later only memory can run out.
//!
//! Chains keep their operands alive, so their length is bounded ([`MOST_STEPS`], [`MOST_OPERANDS`]).
//!
//! Threads: the thread that computes a chain takes its steps one by one, the youngest first. A thread that needs a taken step
//! waits until it is computed, or put back after a failure. A thread that waits for a step holds only younger ones, which
//! prevents deadlocks.

use super::View;
use super::cpu::elementwise::chain;
use super::cpu::runtime::threads::GRAIN;
use super::spec::Kernel;
use crate::backend::events;
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Result, Scalar, interrupt};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The number of elements below which an operation is not deferred: its operands stay in the cache anyway.
pub(crate) const WORTHWHILE: usize = if cfg!(debug_assertions) { 16 } else { GRAIN };
/// The maximum length of a chain. A longer one is computed first.
const MOST_STEPS: usize = 32;
/// The maximum number of tensors of the result's size that a chain keeps alive.
const MOST_OPERANDS: usize = 4;

/// An operand of a step: a storage under a layout with the step's shape.
pub(crate) struct Input {
    pub storage: Storage,
    pub layout: Layout,
    pub dtype: DType,
}

/// A deferred operation. Its result is contiguous.
pub(crate) struct Step {
    /// For messages.
    pub op: &'static str,
    pub kernel: Kernel,
    /// The compute dtype of the kernel.
    pub compute: DType,
    pub dtype: DType,
    pub device: Device,
    pub numel: usize,
    pub inputs: SmallVec<[Input; 3]>,
}

impl Step {
    /// A storage for the result, with the contents deferred.
    ///
    /// # Errors
    /// If memory runs out while operands that cannot be part of the chain are computed.
    pub fn defer(mut self) -> Result<Storage> {
        self.compute = self.compute.compute_dtype();
        for input in &self.inputs {
            if input.storage.pending().is_some_and(|deferred| !deferred.joins(&self, input)) {
                input.storage.materialize()?;
            }
        }
        let (steps, operands) = self.extent();
        if steps > MOST_STEPS || operands.len() > MOST_OPERANDS {
            let pending: SmallVec<[&Storage; 3]> =
                self.inputs.iter().map(|input| &input.storage).filter(|storage| storage.pending().is_some()).collect();
            materialize(&pending)?;
        }
        let bytes = self.numel * self.dtype.size();
        events::note_deferred();
        Ok(Storage::deferred(self, bytes))
    }

    /// An upper bound of the number of steps of the chain up to this one, and the tensors of its size that it keeps alive.
    fn extent(&self) -> (usize, SmallVec<[usize; MOST_OPERANDS]>) {
        let (mut steps, mut operands) = (1_usize, SmallVec::new());
        for input in &self.inputs {
            let own = [input.storage.id()];
            let behind = match input.storage.pending() {
                Some(deferred) if deferred.number.is_some() => &[],
                Some(deferred) => {
                    steps = steps.saturating_add(deferred.steps);
                    &deferred.operands[..]
                }
                // A broadcast operand is small.
                None if input.storage.bytes() >= self.numel * input.dtype.size() => &own,
                None => &[],
            };
            for &id in behind {
                if !operands.contains(&id) {
                    operands.push(id);
                }
            }
        }
        (steps, operands)
    }
}

/// One kernel of a chain.
pub(crate) struct ChainPart<'a> {
    pub kernel: &'a Kernel,
    pub operands: SmallVec<[ChainOperand<'a>; 3]>,
    pub dtype: DType,
    /// Memory for the result, if it is written.
    pub to: Option<*mut u8>,
}

/// An operand of a part.
pub(crate) enum ChainOperand<'a> {
    /// The result of an earlier part.
    Part(usize),
    /// Elements in memory, under a layout with as many elements as the chain.
    Memory(View<'a>),
}

/// The state of a storage whose contents are deferred.
pub(crate) struct Deferred {
    memory: OnceLock<Storage>,
    /// `None` once there is memory, and while a thread computes it.
    step: Mutex<Option<Box<Step>>>,
    /// Notified when there is memory, or the step was put back.
    changed: Condvar,
    /// The creation order: operands are older than the results.
    age: u64,
    numel: usize,
    compute: DType,
    dtype: DType,
    steps: usize,
    operands: SmallVec<[usize; MOST_OPERANDS]>,
    /// The value of all elements, if it is the same.
    number: Option<Scalar>,
    /// Whether it is known to be read later.
    needed: AtomicBool,
    /// Whether it was computed as part of another chain, and not written.
    recomputed: AtomicBool,
}

impl Deferred {
    pub fn new(step: Step) -> Deferred {
        static AGE: AtomicU64 = AtomicU64::new(0);
        let (steps, operands) = step.extent();
        Deferred {
            memory: OnceLock::new(),
            age: AGE.fetch_add(1, Ordering::Relaxed),
            numel: step.numel,
            compute: step.compute,
            dtype: step.dtype,
            steps,
            operands,
            number: if let Kernel::Number(number) = step.kernel { Some(number) } else { None },
            step: Mutex::new(Some(Box::new(step))),
            changed: Condvar::new(),
            needed: AtomicBool::new(false),
            recomputed: AtomicBool::new(false),
        }
    }

    /// Marks it as needed: it is written when it is first computed.
    #[inline]
    pub fn mark_needed(&self) {
        self.needed.store(true, Ordering::Relaxed);
    }

    /// The computed contents.
    #[inline]
    pub fn memory(&self) -> Option<&Storage> {
        self.memory.get()
    }

    /// Whether this can be computed in one chain with a step that reads it: elementwise, in the same compute dtype. A number can
    /// join any chain.
    fn joins(&self, step: &Step, input: &Input) -> bool {
        if self.number.is_some() {
            return true;
        }
        let in_order = input.layout.is_contiguous() && input.layout.offset() == 0;
        in_order && self.numel == step.numel && self.compute == step.compute && self.dtype == input.dtype
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Step>>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the step, for the caller to compute; `None` if it is computed already.
    fn take(&self) -> Option<Box<Step>> {
        let mut step = self.lock();
        while self.memory.get().is_none() {
            if let Some(step) = step.take() {
                return Some(step);
            }
            step = self.changed.wait(step).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn put_back(&self, step: Box<Step>) {
        *self.lock() = Some(step);
        self.changed.notify_all();
    }

    fn finish(&self, memory: Storage) {
        // The lock prevents a waiter from missing the notification between its check and its wait.
        let _step = self.lock();
        // Only the thread that took the step gets here.
        let _ = self.memory.set(memory);
        self.changed.notify_all();
    }
}

/// A step that this thread computes. Other threads wait for it.
struct ClaimedStep {
    storage: Storage,
    step: Box<Step>,
    /// The memory for its result, if it is written.
    memory: Option<Storage>,
    outcome: Outcome,
}

/// The steps that this thread computes. Steps that are not [done](Self::done) when this is dropped, after an error or a panic, are put
/// back: other threads may wait for them.
struct ClaimedSteps(Vec<ClaimedStep>);

impl ClaimedSteps {
    fn done(mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(ClaimedStep::done);
    }
}

impl Drop for ClaimedSteps {
    fn drop(&mut self) {
        self.0.drain(..).for_each(ClaimedStep::put_back);
    }
}

/// What happens to a step when its chain is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Its result is written.
    Written,
    /// It stays pending.
    Pending,
    /// It stays pending as an operand of a step that is [`Pending`](Outcome::Pending).
    PendingOperand,
    /// Nothing refers to it any more.
    Dropped,
}

/// Computes `wanted` and the pending steps that they depend on, in as few passes as possible.
///
/// # Errors
/// If memory runs out. Then everything that was pending is still pending.
#[inline(never)]
pub(crate) fn materialize(wanted: &[&Storage]) -> Result<()> {
    let mut claimed = take_chain(wanted);
    while let Some(last) = claimed.0.last() {
        // Only steps with the same number of elements and the same compute dtype can share a pass.
        let (numel, compute) = (last.step.numel, last.step.compute);
        let alike = |claimed: &mut ClaimedStep| claimed.step.numel == numel && claimed.step.compute == compute;
        let mut chain = ClaimedSteps(claimed.0.extract_if(.., alike).collect());
        compute_chain(&mut chain.0, wanted, evaluate)?;
        chain.done();
    }
    Ok(())
}

/// Computes the pending `watched` for a reduction: `pass` gets the parts of the chain, evaluates them, and folds the result of the
/// last one. Like any intermediate result it is written if it is needed later. Returns false without calling `pass` if nothing is
/// pending, or if its dtype or compute dtype is not `dtype`.
///
/// # Errors
/// As [`materialize`].
pub(crate) fn fold(watched: &Storage, dtype: DType, pass: impl FnOnce(&[ChainPart<'_>]) -> Result<()>) -> Result<bool> {
    if watched.pending().is_none_or(|deferred| deferred.compute != dtype || deferred.dtype != dtype) {
        return Ok(false);
    }
    let mut chain = take_chain(&[watched]);
    if chain.0.is_empty() {
        return Ok(false);
    }
    // The whole chain is computed in one pass, otherwise it would not have been deferred. The youngest step is last.
    compute_chain(&mut chain.0, &[], |_, parts| pass(parts))?;
    chain.done();
    Ok(true)
}

impl ClaimedStep {
    fn put_back(self) {
        if let Some(deferred) = self.storage.pending() {
            deferred.put_back(self.step);
        }
    }

    fn done(self) {
        match (self.outcome, self.storage.pending(), self.memory) {
            (Outcome::Written, Some(deferred), Some(memory)) => deferred.finish(memory),
            (Outcome::Pending, Some(deferred), _) => {
                deferred.recomputed.store(true, Ordering::Relaxed);
                deferred.put_back(self.step);
            }
            (Outcome::PendingOperand, Some(deferred), _) => deferred.put_back(self.step),
            _ => (),
        }
    }
}

/// Takes the pending steps that `wanted` depend on; operands come before their results.
fn take_chain(wanted: &[&Storage]) -> ClaimedSteps {
    let mut waiting = BTreeMap::new();
    let add = |waiting: &mut BTreeMap<u64, Storage>, storage: &Storage| {
        if let Some(deferred) = storage.pending() {
            waiting.entry(deferred.age).or_insert_with(|| storage.clone());
        }
    };
    wanted.iter().for_each(|storage| add(&mut waiting, storage));
    let mut claimed = ClaimedSteps(Vec::new());
    while let Some((_, storage)) = waiting.pop_last() {
        if let Some(step) = storage.pending().and_then(Deferred::take) {
            // Numbers are copied and not claimed: they may be part of many chains.
            let pending = |input: &&Input| input.storage.pending().is_some_and(|deferred| deferred.number.is_none());
            step.inputs.iter().filter(pending).for_each(|input| add(&mut waiting, &input.storage));
            claimed.0.push(ClaimedStep { storage, step, memory: None, outcome: Outcome::Dropped });
        }
    }
    claimed.0.reverse();
    claimed
}

/// Sets the outcomes of the steps of a chain.
fn decide(chain: &mut [ClaimedStep], wanted: &[&Storage]) {
    let mut held = ChainHandles::default();
    for (at, claimed) in chain.iter().enumerate() {
        held.positions.insert(claimed.storage.id(), at);
        held.count(&claimed.storage);
        claimed.step.inputs.iter().for_each(|input| held.count(&input.storage));
    }
    for at in (0..chain.len()).rev() {
        let ClaimedStep { storage, step, outcome, .. } = &chain[at];
        let asked = wanted.iter().any(|wanted| wanted.ptr_eq(storage));
        let outcome = match storage.pending() {
            Some(deferred) if !asked && held.is_held(storage) => {
                let due = deferred.needed.load(Ordering::Relaxed) || deferred.recomputed.load(Ordering::Relaxed);
                let small = || !super::is_recording(step.device) && held.kept_alive_by(chain, at) <= 1;
                if !due && small() { Outcome::Pending } else { Outcome::Written }
            }
            Some(_) if !asked => *outcome,
            _ => Outcome::Written,
        };
        chain[at].outcome = outcome;
        if matches!(outcome, Outcome::Pending | Outcome::PendingOperand) {
            let behind = |input: &Input| held.positions.get(&input.storage.id()).copied();
            let behind: SmallVec<[usize; 3]> = chain[at].step.inputs.iter().filter_map(behind).collect();
            behind.into_iter().for_each(|input| chain[input].outcome = Outcome::PendingOperand);
        }
    }
}

/// The handles that a chain itself holds: one to each claimed step, and those to the operands of its steps.
#[derive(Default)]
struct ChainHandles {
    handles: BTreeMap<usize, usize>,
    /// The positions in the chain of the steps of storages.
    positions: BTreeMap<usize, usize>,
}

impl ChainHandles {
    fn count(&mut self, storage: &Storage) {
        *self.handles.entry(storage.id()).or_default() += 1;
    }

    /// Whether there are handles outside of the chain.
    fn is_held(&self, storage: &Storage) -> bool {
        self.handles.get(&storage.id()).is_none_or(|&inside| storage.handles() > inside)
    }

    /// The number of operands of the size of the result that only this step would keep alive, if it stayed pending.
    fn kept_alive_by(&self, chain: &[ClaimedStep], at: usize) -> usize {
        let (mut stack, mut seen, mut kept) = (vec![at], Vec::new(), 0);
        while let Some(at) = stack.pop() {
            for input in &chain[at].step.inputs {
                let id = input.storage.id();
                if seen.contains(&id) {
                    continue;
                }
                seen.push(id);
                match self.positions.get(&id) {
                    Some(&behind) => stack.push(behind),
                    None if input.storage.pending().is_some() || self.is_held(&input.storage) => (),
                    None => kept += usize::from(input.storage.bytes() >= chain[at].step.numel * input.dtype.size()),
                }
            }
        }
        kept
    }
}

/// Computes steps of one size and compute dtype with `pass`. Nothing is changed if this fails.
fn compute_chain(
    chain: &mut [ClaimedStep],
    wanted: &[&Storage],
    pass: impl FnOnce(&Step, &[ChainPart<'_>]) -> Result<()>,
) -> Result<()> {
    let scope = events::enter_chain(|| chain.iter().map(|claimed| claimed.step.op).collect());
    let done = run_chain(chain, wanted, pass);
    events::leave(scope);
    done
}

fn run_chain(
    chain: &mut [ClaimedStep],
    wanted: &[&Storage],
    pass: impl FnOnce(&Step, &[ChainPart<'_>]) -> Result<()>,
) -> Result<()> {
    decide(chain, wanted);
    for ClaimedStep { storage, step, memory, outcome } in chain.iter_mut() {
        if *outcome == Outcome::Written {
            *memory = Some(Storage::new(step.op, step.device, storage.bytes())?);
        }
    }
    let targets: Vec<_> = chain.iter_mut().map(|claimed| claimed.memory.as_mut().and_then(Storage::get_mut)).collect();
    let numbers = numbers(chain);
    let mut positions: BTreeMap<usize, usize> = BTreeMap::new();
    let mut parts: Vec<ChainPart<'_>> = Vec::with_capacity(chain.len() + numbers.len());
    for (id, kernel, dtype) in &numbers {
        positions.insert(*id, parts.len());
        parts.push(ChainPart { kernel, operands: SmallVec::new(), dtype: *dtype, to: None });
    }
    for (ClaimedStep { storage, step, .. }, to) in chain.iter().zip(targets) {
        let operands = step.inputs.iter().map(|input| match positions.get(&input.storage.id()) {
            Some(&at) => ChainOperand::Part(at),
            None => ChainOperand::Memory(View { storage: &input.storage, layout: &input.layout, dtype: input.dtype }),
        });
        let operands = operands.collect();
        positions.insert(storage.id(), parts.len());
        parts.push(ChainPart { kernel: &step.kernel, operands, dtype: step.dtype, to });
    }
    chain.last().map_or(Ok(()), |ClaimedStep { step, .. }| pass(step, &parts))
}

fn evaluate(last: &Step, parts: &[ChainPart<'_>]) -> Result<()> {
    match last.device {
        Device::Cpu => interrupt::caught(last.op, || {
            chain::compute(last.compute, last.numel, parts);
            Ok(())
        }),
        #[cfg(feature = "cuda")]
        Device::Cuda(n) => super::cuda::elementwise::chain::compute(last.op, n, last.compute, last.numel, parts),
        #[cfg(not(feature = "cuda"))]
        Device::Cuda(n) => Err(super::no_cuda(last.op, n)),
    }
}

/// The pending numbers that the steps of a chain read, as kernels, with the ids of their storages. They are in the order in which
/// they are read, and not in the order of the ids, which are addresses. So equal chains give equal programs, which are compiled
/// once.
fn numbers(chain: &[ClaimedStep]) -> Vec<(usize, Kernel, DType)> {
    let mut all: Vec<(usize, Kernel, DType)> = Vec::new();
    for input in chain.iter().flat_map(|claimed| &claimed.step.inputs) {
        let Some(number) = input.storage.pending().and_then(|pending| pending.number) else { continue };
        let id = input.storage.id();
        let known =
            all.iter().any(|(other, ..)| *other == id) || chain.iter().any(|claimed| claimed.storage.id() == id);
        if !known {
            all.push((id, Kernel::Number(number), input.dtype));
        }
    }
    all
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn deferred_values_can_cross_threads() {
        fn assert_send_sync<T: Send + Sync>() {}
        assert_send_sync::<Deferred>();
    }

    #[test]
    fn a_panic_leaves_what_was_pending_to_the_next_reader() -> Result<()> {
        let x = crate::Tensor::ones([WORTHWHILE])?.add(1.0)?;
        assert!(x.storage().pending().is_some());
        let fold = || fold(x.storage(), DType::F32, |_| std::panic::panic_any("on purpose"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(fold)).is_err());
        // Before, this waited for ever.
        assert_eq!(x.to_vec::<f32>()?[..2], [2.0, 2.0]);
        Ok(())
    }
}
