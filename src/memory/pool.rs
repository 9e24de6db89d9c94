//! The bookkeeping of the caching allocator.
//!
//! Addresses are plain integers here and are never dereferenced, so this file needs no `unsafe` and works for any device: a
//! [`System`] provides the memory.
//!
//! The system provides *segments*, which are split into *blocks*. Invariants:
//!
//! 1. The blocks of a segment are adjacent and cover it exactly.
//! 2. No two adjacent blocks of a segment are free (`release` joins them at once).
//! 3. A block is in its kind's `free` set exactly when it is marked free.
//! 4. A segment serves one *lane*: one stream of a GPU, whose order makes it safe to hand out a block again as soon as it is
//!    released. The CPU has one lane.
//! 5. `held` is the sum of all segments, `used` the sum of all blocks that are not free.

use std::collections::{BTreeMap, BTreeSet};

const MIB: usize = 1 << 20;
/// Segments are multiples of this, the size of a huge page.
pub(crate) const SEGMENT_STEP: usize = 2 * MIB;
/// A block may be handed out whole when it is larger than the request by at most this part of the request.
const WASTE_PART: usize = 8;

/// The source of a pool's memory.
pub(crate) trait System {
    /// What every mapped address and every block is a multiple of; a power of two.
    const ALIGNMENT: usize;

    /// Whether released memory is cached. If not, every block is mapped and unmapped separately and has exactly the requested size,
    /// so that a sanitizer detects accesses beyond it and after its release.
    const CACHED: bool = true;

    /// Takes `bytes` (a multiple of [`SEGMENT_STEP`] if memory is cached) from the system and returns their address, which is not 0;
    /// `None` if the system refuses.
    fn map(&mut self, bytes: usize) -> Option<usize>;

    /// Returns to the system what one call of `map` returned. Only the pool calls this, once for each mapping and after its last
    /// block was released.
    fn unmap(&mut self, address: usize, bytes: usize);

    /// The free bytes of the system, if known.
    fn free_bytes(&self) -> Option<usize>;
}

/// A range of addresses that the pool has handed out. A request for 0 bytes gets a block of 0 bytes, which the pool does not
/// track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// Requests of very different sizes do not share segments: otherwise a long-lived small tensor would fragment a large range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizeClass {
    /// Up to 1 MiB, in shared segments of 2 MiB.
    Small,
    /// Up to 16 MiB, in shared segments of 32 MiB.
    Medium,
    /// The rest, in segments of their size.
    Large,
}

impl SizeClass {
    const SMALL_MAX: usize = MIB;
    const MEDIUM_MAX: usize = 16 * MIB;

    fn of(bytes: usize) -> SizeClass {
        if bytes <= Self::SMALL_MAX {
            SizeClass::Small
        } else if bytes <= Self::MEDIUM_MAX {
            SizeClass::Medium
        } else {
            SizeClass::Large
        }
    }

    /// The smallest request of this kind. A block is split only if the rest is at least this large.
    fn smallest(self, alignment: usize) -> usize {
        match self {
            SizeClass::Small => alignment,
            SizeClass::Medium => Self::SMALL_MAX + alignment,
            SizeClass::Large => Self::MEDIUM_MAX + alignment,
        }
    }

    /// The preferred segment size for a request of `exact` bytes, which is a multiple of [`SEGMENT_STEP`].
    fn segment(self, exact: usize) -> usize {
        match self {
            SizeClass::Medium => 32 * MIB,
            SizeClass::Small | SizeClass::Large => exact,
        }
    }
}

struct Segment {
    bytes: usize,
    kind: SizeClass,
    lane: u8,
}

struct Node {
    bytes: usize,
    /// The address of the segment: blocks of two adjacent segments must not be joined.
    segment: usize,
    free: bool,
}

/// A caching allocator over one [`System`]: best fit, with splitting and joining of blocks.
pub(crate) struct Pool<S> {
    system: S,
    segments: BTreeMap<usize, Segment>,
    nodes: BTreeMap<usize, Node>,
    /// Free blocks by kind, as (lane, bytes, address): best fit first, and the lowest address among equals.
    free: [BTreeSet<(u8, usize, usize)>; 3],
    held: usize,
    used: usize,
    limit: Option<usize>,
    system_allocations: u64,
}

impl<S: System> Pool<S> {
    pub(crate) const fn new(system: S) -> Self {
        Pool {
            system,
            segments: BTreeMap::new(),
            nodes: BTreeMap::new(),
            free: [const { BTreeSet::new() }; 3],
            held: 0,
            used: 0,
            limit: None,
            system_allocations: 0,
        }
    }

    /// Bytes held from the system.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Bytes of the blocks handed out.
    #[cfg(feature = "samples")]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// The number of segments that were taken from the system.
    pub(crate) fn system_allocations(&self) -> u64 {
        self.system_allocations
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Limits `held` from now on. Memory cached beyond the limit is returned to the system.
    pub(crate) fn set_limit(&mut self, limit: Option<usize>) {
        self.limit = limit;
        if limit.is_some_and(|limit| self.held > limit) {
            self.empty_cache();
        }
    }

    /// The bytes that can still be allocated: the free bytes of the system, bounded by the limit.
    pub(crate) fn free_bytes(&self) -> Option<usize> {
        let room = self.limit.map(|limit| limit.saturating_sub(self.held));
        match (self.system.free_bytes(), room) {
            (Some(free), Some(room)) => Some(free.min(room)),
            (free, room) => free.or(room),
        }
    }

    /// A block from the cache, or else from a new segment. If neither is possible, the cache is kept.
    pub(crate) fn allocate(&mut self, lane: u8, bytes: usize) -> Option<Block> {
        if bytes == 0 {
            return Some(Block { address: S::ALIGNMENT, bytes: 0 });
        }
        // Beyond this bound the roundings below could overflow.
        if bytes > isize::MAX as usize - SEGMENT_STEP {
            return None;
        }
        if !S::CACHED {
            return self.map_alone(bytes);
        }
        let bytes = bytes.next_multiple_of(S::ALIGNMENT);
        let kind = SizeClass::of(bytes);
        let (size, address) = match self.best_fit(lane, kind, bytes) {
            Some(found) => found,
            None => self.grow(lane, kind, bytes)?,
        };
        Some(self.take(lane, kind, address, size, bytes))
    }

    /// As [`allocate`](Self::allocate), but if that fails, the cache is emptied and the request is retried.
    pub(crate) fn allocate_flushing(&mut self, lane: u8, bytes: usize) -> Option<Block> {
        self.allocate(lane, bytes).or_else(|| {
            self.empty_cache();
            self.allocate(lane, bytes)
        })
    }

    /// Takes back a block that this pool handed out.
    pub(crate) fn release(&mut self, block: Block) {
        if block.bytes == 0 {
            return;
        }
        if !S::CACHED {
            (self.held, self.used) = (self.held - block.bytes, self.used - block.bytes);
            return self.system.unmap(block.address, block.bytes);
        }
        let node = self.nodes.get(&block.address).filter(|node| !node.free);
        let found = node.and_then(|n| Some((n.segment, self.segments.get(&n.segment)?)));
        let Some((segment, &Segment { kind, lane, .. })) = found else {
            // Cannot happen: a block has one owner, which releases it once.
            debug_assert!(false, "released {block:?}, which is not handed out");
            return;
        };
        self.used -= block.bytes;
        let free = &mut self.free[kind as usize];
        let Block { mut address, mut bytes } = block;
        // Invariant 1: within a segment the adjacent blocks are the nodes before and after, by address.
        let joins = |node: &Node| node.free && node.segment == segment;
        if let Some((&next, node)) = self.nodes.range(address + 1..).next()
            && joins(node)
        {
            free.remove(&(lane, node.bytes, next));
            bytes += node.bytes;
            self.nodes.remove(&next);
        }
        if let Some((&previous, node)) = self.nodes.range(..address).next_back()
            && joins(node)
        {
            free.remove(&(lane, node.bytes, previous));
            bytes += node.bytes;
            self.nodes.remove(&address);
            address = previous;
        }
        free.insert((lane, bytes, address));
        self.nodes.insert(address, Node { bytes, segment, free: true });
    }

    /// A block that is not part of a segment.
    fn map_alone(&mut self, bytes: usize) -> Option<Block> {
        if self.limit.is_some_and(|limit| self.held.saturating_add(bytes) > limit) {
            return None;
        }
        let address = self.system.map(bytes)?;
        self.system_allocations += 1;
        (self.held, self.used) = (self.held + bytes, self.used + bytes);
        Some(Block { address, bytes })
    }

    /// Returns every completely free segment to the system.
    pub(crate) fn empty_cache(&mut self) {
        let Pool { system, segments, nodes, free, held, .. } = self;
        segments.retain(|&address, segment| {
            // By invariant 1 a block of the size of its segment is the whole segment.
            let whole = nodes.get(&address).is_some_and(|node| node.free && node.bytes == segment.bytes);
            if whole {
                nodes.remove(&address);
                free[segment.kind as usize].remove(&(segment.lane, segment.bytes, address));
                *held -= segment.bytes;
                system.unmap(address, segment.bytes);
            }
            !whole
        });
    }

    /// The smallest free block that is not much larger than the request, or else the smallest that leaves a usable rest. A block
    /// between the two would waste memory, and is kept for a larger request.
    fn best_fit(&self, lane: u8, kind: SizeClass, bytes: usize) -> Option<(usize, usize)> {
        let free = &self.free[kind as usize];
        let own = |&&(owner, ..): &&(u8, usize, usize)| owner == lane;
        let smallest_from =
            |least: usize| free.range((lane, least, 0)..).next().filter(own).map(|&(_, size, address)| (size, address));
        smallest_from(bytes)
            .filter(|&(size, _)| size <= bytes + bytes / WASTE_PART)
            .or_else(|| smallest_from(bytes + kind.smallest(S::ALIGNMENT)))
    }

    /// Adds a segment that can serve the request: of the preferred size of its kind, or else just large enough.
    fn grow(&mut self, lane: u8, kind: SizeClass, bytes: usize) -> Option<(usize, usize)> {
        let exact = bytes.next_multiple_of(SEGMENT_STEP);
        let preferred = kind.segment(exact);
        let smaller = (exact != preferred).then_some(exact);
        for size in std::iter::once(preferred).chain(smaller) {
            if self.limit.is_some_and(|limit| self.held.saturating_add(size) > limit) {
                continue;
            }
            if let Some(address) = self.system.map(size) {
                debug_assert!(address != 0 && address.is_multiple_of(S::ALIGNMENT));
                self.system_allocations += 1;
                self.held += size;
                self.segments.insert(address, Segment { bytes: size, kind, lane });
                self.nodes.insert(address, Node { bytes: size, segment: address, free: true });
                self.free[kind as usize].insert((lane, size, address));
                return Some((size, address));
            }
        }
        None
    }

    /// Hands out the free block of `size` bytes at `address`, and splits off a usable rest.
    fn take(&mut self, lane: u8, kind: SizeClass, address: usize, size: usize, bytes: usize) -> Block {
        let rest = size - bytes;
        let split = rest >= kind.smallest(S::ALIGNMENT);
        let bytes = if split { bytes } else { size };
        let free = &mut self.free[kind as usize];
        free.remove(&(lane, size, address));
        let mut segment = address;
        if let Some(node) = self.nodes.get_mut(&address) {
            (node.bytes, node.free, segment) = (bytes, false, node.segment);
        }
        if split {
            free.insert((lane, rest, address + bytes));
            self.nodes.insert(address + bytes, Node { bytes: rest, segment, free: true });
        }
        self.used += bytes;
        Block { address, bytes }
    }
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
pub(super) mod tests;
