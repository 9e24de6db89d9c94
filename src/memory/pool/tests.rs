use super::*;

/// A system of `capacity` bytes that checks the pool's calls. Its segments are adjacent, to test that they are not joined.
pub(crate) struct Fake {
    capacity: usize,
    next: usize,
    mapped: BTreeMap<usize, usize>,
}

impl Fake {
    pub(crate) const fn new(capacity: usize) -> Fake {
        Fake { capacity, next: SEGMENT_STEP, mapped: BTreeMap::new() }
    }
}

impl System for Fake {
    const ALIGNMENT: usize = 64;

    fn map(&mut self, bytes: usize) -> Option<usize> {
        assert_eq!(bytes % SEGMENT_STEP, 0);
        if bytes > self.free_bytes()? {
            return None;
        }
        let address = self.next;
        self.next += bytes;
        self.mapped.insert(address, bytes);
        Some(address)
    }

    fn unmap(&mut self, address: usize, bytes: usize) {
        assert_eq!(self.mapped.remove(&address), Some(bytes));
    }

    fn free_bytes(&self) -> Option<usize> {
        Some(self.capacity - self.mapped.values().sum::<usize>())
    }
}

fn pool(capacity: usize) -> Pool<Fake> {
    Pool::new(Fake::new(capacity))
}

fn get(pool: &mut Pool<Fake>, bytes: usize) -> Block {
    let block = pool.allocate(0, bytes).unwrap_or_else(|| panic!("no room for {bytes}"));
    assert!(block.bytes >= bytes && block.address.is_multiple_of(64), "{block:?}");
    block
}

/// Checks the invariants of `pool.rs`.
fn check(pool: &Pool<Fake>) {
    let mut covered = 0;
    for (&start, segment) in &pool.segments {
        let (mut at, mut before_free) = (start, false);
        while at < start + segment.bytes {
            let node = &pool.nodes[&at];
            assert_eq!(node.segment, start);
            assert!(!(node.free && before_free), "two free neighbours at {at}");
            assert_eq!(pool.free[segment.kind as usize].contains(&(segment.lane, node.bytes, at)), node.free);
            before_free = node.free;
            at += node.bytes;
            covered += 1;
        }
        assert_eq!(at, start + segment.bytes);
    }
    assert_eq!(covered, pool.nodes.len());
    assert_eq!(pool.nodes.values().filter(|n| n.free).count(), pool.free.iter().map(BTreeSet::len).sum::<usize>());
    assert_eq!(pool.held, pool.segments.values().map(|s| s.bytes).sum::<usize>());
    assert_eq!(pool.held, pool.system.mapped.values().sum::<usize>());
    assert_eq!(pool.used, pool.nodes.values().filter(|n| !n.free).map(|n| n.bytes).sum::<usize>());
}

#[cotangent_macros::unit_test]
fn blocks_split_and_join_again_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut pool = pool(SEGMENT_STEP);
        let blocks = [100, 1000, 10_000].map(|bytes| get(&mut pool, bytes));
        assert_eq!(blocks.map(|b| b.bytes), [128, 1024, 10_048]);
        assert_eq!((pool.used(), pool.nodes.len()), (11_200, 4));
        for i in order {
            pool.release(blocks[i]);
            check(&pool);
        }
        assert_eq!((pool.used(), pool.nodes.len(), pool.system_allocations()), (0, 1, 1));
    }
}

#[cotangent_macros::unit_test]
fn blocks_of_touching_segments_do_not_join() {
    let mut pool = pool(2 * SEGMENT_STEP);
    let blocks = [MIB; 4].map(|bytes| get(&mut pool, bytes));
    blocks.into_iter().for_each(|block| pool.release(block));
    check(&pool);
    assert_eq!((pool.segments.len(), pool.nodes.len()), (2, 2));
}

#[cotangent_macros::unit_test]
fn a_block_serves_its_own_lane_only() {
    let mut pool = pool(4 * SEGMENT_STEP);
    let first = get(&mut pool, 1000);
    pool.release(first);
    let other = pool.allocate(1, 1000).map(|block| (block.address, block));
    assert!(
        other.is_some_and(|(address, _)| address != first.address),
        "what the first lane gave back is still its own"
    );
    check(&pool);
    assert_eq!(get(&mut pool, 1000).address, first.address);
    if let Some((address, block)) = other {
        pool.release(block);
        assert_eq!(pool.allocate(1, 1000).map(|block| block.address), Some(address));
    }
    check(&pool);
}

#[cotangent_macros::unit_test]
fn the_best_fit_is_taken() {
    let mut pool = pool(SEGMENT_STEP);
    let [large, _a, small, _b] = [4096, 64, 1024, 64].map(|bytes| get(&mut pool, bytes));
    pool.release(large);
    pool.release(small);
    assert_eq!(get(&mut pool, 1000).address, small.address);
    assert_eq!(get(&mut pool, 1000).address, large.address);
}

#[cotangent_macros::unit_test]
fn a_block_much_larger_than_the_request_is_kept() {
    let mut pool = pool(1 << 30);
    let block = get(&mut pool, 30 * MIB);
    pool.release(block);
    // 30 MiB for 20 would waste 10, and the rest of 10 could serve no request of its kind.
    let other = get(&mut pool, 20 * MIB);
    assert_ne!(other.address, block.address);
    // For 28 it is not much too large, and goes out whole.
    assert_eq!(get(&mut pool, 28 * MIB), block);
    assert_eq!(pool.used(), 50 * MIB);
    // A block that leaves a usable rest is split.
    let wide = get(&mut pool, 60 * MIB);
    pool.release(wide);
    assert_eq!(get(&mut pool, 20 * MIB), Block { address: wide.address, bytes: 20 * MIB });
    check(&pool);
}

#[cotangent_macros::unit_test]
fn small_medium_and_large_do_not_share_segments() {
    let mut pool = pool(1 << 30);
    let blocks = [64, MIB + 1, 16 * MIB + 1].map(|bytes| get(&mut pool, bytes));
    assert_eq!(pool.held(), 2 * MIB + 32 * MIB + 18 * MIB);
    blocks.into_iter().for_each(|block| pool.release(block));
    assert_eq!(pool.nodes.len(), 3);
    pool.empty_cache();
    check(&pool);
    assert_eq!((pool.held(), pool.system_allocations()), (0, 3));
}

#[cotangent_macros::unit_test]
fn an_exhausted_pool_flushes_and_tries_again() {
    let mut pool = pool(64 * MIB);
    let large = get(&mut pool, 40 * MIB);
    pool.release(large);
    assert_eq!(pool.allocate(0, 60 * MIB), None);
    assert_eq!(pool.held(), 40 * MIB);
    let block = pool.allocate_flushing(0, 60 * MIB).expect("64 MiB after the flush");
    assert_eq!(pool.held(), 60 * MIB);
    assert_eq!(pool.allocate_flushing(0, 40 * MIB), None);
    check(&pool);
    pool.release(block);
}

#[cotangent_macros::unit_test]
fn where_a_shared_segment_does_not_fit_a_smaller_one_is_taken() {
    let mut pool = pool(6 * MIB);
    get(&mut pool, 3 * MIB);
    assert_eq!(pool.held(), 4 * MIB);
    assert_eq!(pool.allocate_flushing(0, 3 * MIB), None);
}

#[cotangent_macros::unit_test]
fn a_segment_in_use_survives_the_flush() {
    let mut pool = pool(1 << 30);
    let [kept, gone] = [64, 128].map(|bytes| get(&mut pool, bytes));
    pool.release(gone);
    pool.empty_cache();
    check(&pool);
    assert_eq!((pool.held(), pool.used()), (SEGMENT_STEP, 64));
    pool.release(kept);
    pool.empty_cache();
    assert_eq!((pool.held(), pool.segments.len(), pool.nodes.len()), (0, 0, 0));
}

#[cotangent_macros::unit_test]
fn the_limit_holds_and_bounds_what_is_free() {
    let mut pool = pool(1 << 30);
    pool.set_limit(Some(40 * MIB));
    let block = get(&mut pool, 20 * MIB);
    assert_eq!(pool.free_bytes(), Some(20 * MIB));
    assert_eq!(pool.allocate_flushing(0, 21 * MIB), None);
    pool.release(block);
    assert!(pool.allocate_flushing(0, 40 * MIB).is_some_and(|b| b.bytes == 40 * MIB));
    assert_eq!(pool.held(), 40 * MIB);
    pool.set_limit(None);
    let block = get(&mut pool, 100 * MIB);
    pool.release(block);
    pool.set_limit(Some(100 * MIB));
    assert_eq!(pool.held(), 40 * MIB, "what is cached beyond a new limit goes back");
}

#[cotangent_macros::unit_test]
fn requests_for_nothing_and_for_everything() {
    let mut pool = pool(1 << 30);
    let block = get(&mut pool, 0);
    pool.release(block);
    assert_eq!((pool.held(), pool.system_allocations(), pool.nodes.len()), (0, 0, 0));
    for bytes in [usize::MAX, usize::MAX / 2, usize::MAX / 4, isize::MAX as usize - SEGMENT_STEP] {
        assert_eq!(pool.allocate_flushing(0, bytes), None);
    }
}

#[cotangent_macros::unit_test]
fn random_requests_never_overlap_and_all_join_in_the_end() {
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut pool = pool(400 * MIB);
    // The model: address -> bytes of all that is handed out.
    let mut live = BTreeMap::new();
    let steps = if cfg!(miri) { 300 } else { 20_000 };
    for step in 0..steps {
        if random(100) < 52 || live.is_empty() {
            // Sizes of all magnitudes up to 64 MiB.
            let magnitude = random(27);
            let bytes = 1 + random(1 << magnitude);
            if let Some(block) = pool.allocate_flushing(0, bytes) {
                assert!(block.bytes >= bytes && block.address.is_multiple_of(64));
                let before = live.range(..block.address).next_back().map_or(0, |(a, b)| a + b);
                let after = live.range(block.address..).next().map_or(usize::MAX, |(&a, _)| a);
                assert!(before <= block.address && block.address + block.bytes <= after, "overlap");
                assert!(block.bytes <= (bytes + bytes / 8).next_multiple_of(64), "{bytes} in {block:?}");
                live.insert(block.address, block.bytes);
            }
        } else {
            let nth = random(live.len());
            let (&address, &bytes) = live.iter().nth(nth).expect("nth < len");
            live.remove(&address);
            pool.release(Block { address, bytes });
        }
        assert_eq!(pool.used(), live.values().sum::<usize>());
        if step % 64 == 0 {
            check(&pool);
        }
    }
    for (address, bytes) in live {
        pool.release(Block { address, bytes });
    }
    check(&pool);
    assert_eq!(pool.nodes.len(), pool.segments.len());
    pool.empty_cache();
    assert_eq!((pool.held(), pool.used(), pool.nodes.len()), (0, 0, 0));
}
