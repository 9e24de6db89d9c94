//! Elements by index, by order and by value.
//!
//! - `gather`, `select`: reading by indices and masks. `along`, `scatter`: writing by indices.
//! - `sort`, `order`: sorting, the k largest, binary search.
//! - `sets`: distinct elements and membership.

files! { along gather order scatter select sets sort }
