//! Elementwise operations that are deferred, so that a chain of them goes through memory once.
//!
//! An operation on a large tensor costs what it takes to bring its operands in and its result out, not the arithmetic
//! between. So its result is at first only a [`Step`]: the kernel, and handles to the operands. When someone wants the
//! bytes, that step and all the pending ones behind it are computed together, tile by tile in the cache (`cpu::elementwise::chain`).
//! A result between is written to memory if a backward pass will read it. A handle alone says little: in Rust the
//! temporaries of a statement live to its end. What only has that is left as it was, a step, where this takes no more
//! memory than its bytes would; if it comes by again it is written, so that nothing is computed more than twice.
//!
//! What is refused is refused when the operation is called; later only memory can run out.
//!
//! Chains keep their operands alive, so their length is bounded ([`MOST_STEPS`], [`MOST_OPERANDS`]).
//!
//! Threads: whoever computes a chain takes the steps out one by one, the youngest first. Whoever finds one taken waits
//! until it is computed, or put back after a failure. A thread that waits for a step holds only younger ones, so that no
//! two can wait for each other.

use super::View;
use super::cpu::elementwise::chain;
use super::cpu::runtime::convert::compute_dtype;
use super::cpu::runtime::threads::GRAIN;
use super::spec::Kernel;
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Result, Scalar, interrupt, profile};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Elements below which an operation is done at once: its operands stay in the cache anyway.
pub(crate) const WORTHWHILE: usize = if cfg!(debug_assertions) { 16 } else { GRAIN };
/// A chain that would become longer is computed up to there.
const MOST_STEPS: usize = 32;
/// Tensors of the result's size that a chain may keep alive.
const MOST_OPERANDS: usize = 4;

/// What a step reads: a storage under a layout of the step's shape.
pub(crate) struct Input {
    pub storage: Storage,
    pub layout: Layout,
    pub dtype: DType,
}

/// An operation that is deferred. Its result is contiguous.
pub(crate) struct Step {
    /// For messages.
    pub op: &'static str,
    pub kernel: Kernel,
    /// Of the inputs' common type, which the kernel is run for; on the CPU f32 or f64.
    pub compute: DType,
    pub dtype: DType,
    pub device: Device,
    pub numel: usize,
    pub inputs: SmallVec<[Input; 3]>,
}

impl Step {
    /// The storage for its result, with a promise instead of contents.
    ///
    /// # Errors
    /// If memory runs out while operands are computed that cannot be part of the chain.
    pub fn defer(mut self) -> Result<Storage> {
        self.compute = compute_dtype(self.compute);
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
        profile::note_deferred();
        Ok(Storage::deferred(self, bytes))
    }

    /// How many steps, at most, a chain up to this one has, and the tensors of its size that it keeps alive.
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
                // What is broadcast is small.
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
    /// Fresh memory for all of the result, if it is kept.
    pub to: Option<*mut u8>,
}

/// What a part reads.
pub(crate) enum ChainOperand<'a> {
    /// The result of an earlier part.
    Part(usize),
    /// Elements in memory, under a layout with as many elements as the chain.
    Memory(View<'a>),
}

/// The state of a storage whose contents are deferred.
pub(crate) struct Deferred {
    memory: OnceLock<Storage>,
    /// Gone when there is memory, and while a thread computes it.
    step: Mutex<Option<Box<Step>>>,
    /// Told when there is memory, or the step is back.
    changed: Condvar,
    /// Operands are older than what is computed of them.
    age: u64,
    numel: usize,
    compute: DType,
    dtype: DType,
    steps: usize,
    operands: SmallVec<[usize; MOST_OPERANDS]>,
    /// What all elements are, if they are one number.
    number: Option<Scalar>,
    /// Whether somebody is known to read it later.
    needed: AtomicBool,
    /// Whether it was computed on the way to something else, and not written.
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

    /// Tells that it will be read: it is written when it is first computed.
    #[inline]
    pub fn mark_needed(&self) {
        self.needed.store(true, Ordering::Relaxed);
    }

    /// The computed contents.
    #[inline]
    pub fn memory(&self) -> Option<&Storage> {
        self.memory.get()
    }

    /// Whether this can be computed together with a step that reads it: element for element, in the same type. A number
    /// goes with everything.
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

    /// The step, for the caller to compute; `None` if there is nothing to do any more.
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
        // The lock keeps a waiter from missing the call between its look and its sleep.
        let _step = self.lock();
        // Only who has taken the step gets here.
        let _ = self.memory.set(memory);
        self.changed.notify_all();
    }
}

/// A step taken for computation.
struct Taken {
    storage: Storage,
    step: Box<Step>,
    /// Where its result goes, if it is kept.
    memory: Option<Storage>,
    disposition: Disposition,
}

/// Steps taken for computation. Those that are not [done](Self::done) when it is dropped, after an error or a panic, are
/// put back: other threads may wait for them.
struct TakenSteps(Vec<Taken>);

impl TakenSteps {
    fn done(mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(Taken::done);
    }
}

impl Drop for TakenSteps {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Taken::put_back);
    }
}

/// What becomes of a step once its chain is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disposition {
    /// Its result was written.
    Written,
    /// It is pending as before.
    Left,
    /// As [`Left`](Disposition::Left), for the sake of a step that is.
    Needed,
    /// Nobody has it.
    Gone,
}

/// Computes what is pending of `wanted` and of what it is made from, in as few passes as it takes.
///
/// # Errors
/// If memory runs out; everything that was pending still is.
#[inline(never)]
pub(crate) fn materialize(wanted: &[&Storage]) -> Result<()> {
    let mut taken = take_chain(wanted);
    while let Some(last) = taken.0.last() {
        // Only what has as many elements, and is computed in the same type, can share a pass.
        let (numel, compute) = (last.step.numel, last.step.compute);
        let alike = |taken: &mut Taken| taken.step.numel == numel && taken.step.compute == compute;
        let mut chain = TakenSteps(taken.0.extract_if(.., alike).collect());
        compute_chain(&mut chain.0, wanted, evaluate)?;
        chain.done();
    }
    Ok(())
}

/// Computes what is pending of `watched`, for a look at its elements: `pass` gets the parts of the chain, evaluates them,
/// and sees the result of the last one go by. It is written if somebody will read it later, as any result
/// between is. False, and `pass` was not called, if nothing is pending, or if it is not both computed in and of the type
/// `dtype`.
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
    // All of it is computed in one pass, or it would not have been deferred; the youngest comes last.
    compute_chain(&mut chain.0, &[], |_, parts| pass(parts))?;
    chain.done();
    Ok(true)
}

impl Taken {
    fn put_back(self) {
        if let Some(deferred) = self.storage.pending() {
            deferred.put_back(self.step);
        }
    }

    fn done(self) {
        match (self.disposition, self.storage.pending(), self.memory) {
            (Disposition::Written, Some(deferred), Some(memory)) => deferred.finish(memory),
            (Disposition::Left, Some(deferred), _) => {
                deferred.recomputed.store(true, Ordering::Relaxed);
                deferred.put_back(self.step);
            }
            (Disposition::Needed, Some(deferred), _) => deferred.put_back(self.step),
            _ => (),
        }
    }
}

/// Takes the pending steps behind `wanted`; operands come before what is made of them.
fn take_chain(wanted: &[&Storage]) -> TakenSteps {
    let mut waiting = BTreeMap::new();
    let add = |waiting: &mut BTreeMap<u64, Storage>, storage: &Storage| {
        if let Some(deferred) = storage.pending() {
            waiting.entry(deferred.age).or_insert_with(|| storage.clone());
        }
    };
    wanted.iter().for_each(|storage| add(&mut waiting, storage));
    let mut taken = TakenSteps(Vec::new());
    while let Some((_, storage)) = waiting.pop_last() {
        if let Some(step) = storage.pending().and_then(Deferred::take) {
            // Numbers are not taken but copied: they belong to many chains.
            let pending = |input: &&Input| input.storage.pending().is_some_and(|deferred| deferred.number.is_none());
            step.inputs.iter().filter(pending).for_each(|input| add(&mut waiting, &input.storage));
            taken.0.push(Taken { storage, step, memory: None, disposition: Disposition::Gone });
        }
    }
    taken.0.reverse();
    taken
}

/// Decides what becomes of the steps of a chain.
fn decide(chain: &mut [Taken], wanted: &[&Storage]) {
    let mut inside = Inside::default();
    for (at, taken) in chain.iter().enumerate() {
        inside.places.insert(taken.storage.id(), at);
        inside.count(&taken.storage);
        taken.step.inputs.iter().for_each(|input| inside.count(&input.storage));
    }
    for at in (0..chain.len()).rev() {
        let Taken { storage, step, disposition, .. } = &chain[at];
        let asked = wanted.iter().any(|wanted| wanted.ptr_eq(storage));
        let disposition = match storage.pending() {
            Some(deferred) if !asked && inside.is_held(storage) => {
                let due = deferred.needed.load(Ordering::Relaxed) || deferred.recomputed.load(Ordering::Relaxed);
                let small = || !super::is_recording(step.device) && inside.kept_alive_by(chain, at) <= 1;
                if !due && small() { Disposition::Left } else { Disposition::Written }
            }
            Some(_) if !asked => *disposition,
            _ => Disposition::Written,
        };
        chain[at].disposition = disposition;
        if matches!(disposition, Disposition::Left | Disposition::Needed) {
            let behind = |input: &Input| inside.places.get(&input.storage.id()).copied();
            let behind: SmallVec<[usize; 3]> = chain[at].step.inputs.iter().filter_map(behind).collect();
            behind.into_iter().for_each(|input| chain[input].disposition = Disposition::Needed);
        }
    }
}

/// The handles that a chain has itself: one to each step taken, and those to the operands of its steps.
#[derive(Default)]
struct Inside {
    handles: BTreeMap<usize, usize>,
    /// Where in the chain the steps of storages are.
    places: BTreeMap<usize, usize>,
}

impl Inside {
    fn count(&mut self, storage: &Storage) {
        *self.handles.entry(storage.id()).or_default() += 1;
    }

    /// Whether somebody besides the chain has a handle.
    fn is_held(&self, storage: &Storage) -> bool {
        self.handles.get(&storage.id()).is_none_or(|&inside| storage.handles() > inside)
    }

    /// How many operands as large as its result nobody would keep but this step, if it were left.
    fn kept_alive_by(&self, chain: &[Taken], at: usize) -> usize {
        let (mut stack, mut seen, mut kept) = (vec![at], Vec::new(), 0);
        while let Some(at) = stack.pop() {
            for input in &chain[at].step.inputs {
                let id = input.storage.id();
                if seen.contains(&id) {
                    continue;
                }
                seen.push(id);
                match self.places.get(&id) {
                    Some(&behind) => stack.push(behind),
                    None if input.storage.pending().is_some() || self.is_held(&input.storage) => (),
                    None => kept += usize::from(input.storage.bytes() >= chain[at].step.numel * input.dtype.size()),
                }
            }
        }
        kept
    }
}

/// Has `pass` compute steps of one size and compute dtype. Nothing has changed if this fails.
fn compute_chain(
    chain: &mut [Taken],
    wanted: &[&Storage],
    pass: impl FnOnce(&Step, &[ChainPart<'_>]) -> Result<()>,
) -> Result<()> {
    let scope = profile::enter_chain(|| chain.iter().map(|taken| taken.step.op).collect());
    let done = run_chain(chain, wanted, pass);
    profile::leave(scope);
    done
}

fn run_chain(
    chain: &mut [Taken],
    wanted: &[&Storage],
    pass: impl FnOnce(&Step, &[ChainPart<'_>]) -> Result<()>,
) -> Result<()> {
    decide(chain, wanted);
    for Taken { storage, step, memory, disposition } in chain.iter_mut() {
        if *disposition == Disposition::Written {
            *memory = Some(Storage::new(step.op, step.device, storage.bytes())?);
        }
    }
    let targets: Vec<_> = chain.iter_mut().map(|taken| taken.memory.as_mut().and_then(Storage::get_mut)).collect();
    let numbers = numbers(chain);
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    let mut parts: Vec<ChainPart<'_>> = Vec::with_capacity(chain.len() + numbers.len());
    for (id, kernel, dtype) in &numbers {
        places.insert(*id, parts.len());
        parts.push(ChainPart { kernel, operands: SmallVec::new(), dtype: *dtype, to: None });
    }
    for (Taken { storage, step, .. }, to) in chain.iter().zip(targets) {
        let operands = step.inputs.iter().map(|input| match places.get(&input.storage.id()) {
            Some(&at) => ChainOperand::Part(at),
            None => ChainOperand::Memory(View { storage: &input.storage, layout: &input.layout, dtype: input.dtype }),
        });
        let operands = operands.collect();
        places.insert(storage.id(), parts.len());
        parts.push(ChainPart { kernel: &step.kernel, operands, dtype: step.dtype, to });
    }
    chain.last().map_or(Ok(()), |Taken { step, .. }| pass(step, &parts))
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

/// The numbers that the steps of a chain read and that nobody has written down, as kernels, with the identities of their
/// storages. They are in the order in which they are read, and not in that of the identities, which are addresses: the same
/// chain is the same program every time, and is compiled once.
fn numbers(chain: &[Taken]) -> Vec<(usize, Kernel, DType)> {
    let mut all: Vec<(usize, Kernel, DType)> = Vec::new();
    for input in chain.iter().flat_map(|taken| &taken.step.inputs) {
        let Some(number) = input.storage.pending().and_then(|pending| pending.number) else { continue };
        let id = input.storage.id();
        let known = all.iter().any(|(other, ..)| *other == id) || chain.iter().any(|taken| taken.storage.id() == id);
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
