//! Sorts that are compiled once, for lists of names, files and table rows. Each use of the standard library's sort costs a sixth
//! of a second of build time; only sorts of tensor elements are worth that.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Stable sort by a comparison.
pub(crate) fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let order = order_of(items.len(), &|a, b| compare(&items[a], &items[b]));
    permute(items, order);
}

/// Stable sort by a key.
pub(crate) fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// As [`sort_by_key`], for a few items, such as dimensions: without allocation.
pub(crate) fn sort_few_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && key(&items[at - 1]) > key(&items[at]) {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// A map of entries. Of entries with equal keys the last one wins. `collect` would sort them first.
pub(crate) fn map_of<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}

/// The indices below `count`, sorted by a comparison of indices.
fn order_of(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| compare(a, b));
    order
}

/// Moves item `order[i]` to position `i`, cycle by cycle.
fn permute<T>(items: &mut [T], mut order: Vec<usize>) {
    for first in 0..order.len() {
        let mut at = first;
        while order[at] != first {
            let next = std::mem::replace(&mut order[at], at);
            items.swap(at, next);
            at = next;
        }
        order[at] = at;
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use std::cmp::Reverse;

    /// Pairs of a number below 5 and the place where it stood.
    fn pairs(count: usize) -> Vec<(usize, usize)> {
        (0..count).map(|at| (at * at * 7 % 11 % 5, at)).collect()
    }

    #[test]
    fn sorts_are_those_of_the_standard_library() {
        for count in [0, 1, 2, 3, 7, 100] {
            let mut want = pairs(count);
            want.sort_by_key(|&(number, _)| Reverse(number));
            let (mut ours, mut few) = (pairs(count), pairs(count));
            sort_by_key(&mut ours, |&(number, _)| Reverse(number));
            sort_few_by_key(&mut few, |&(number, _)| Reverse(number));
            assert_eq!([&ours, &few], [&want, &want]);
        }
    }

    #[test]
    fn the_last_of_one_key_counts() {
        assert_eq!(map_of([("b", 1), ("a", 2), ("b", 3)]), BTreeMap::from([("a", 2), ("b", 3)]));
    }
}
