//! Indexing, sorting, selection by rank and sets.
//!
//! - `gather`, `select`: reading by indices and masks. `along`, `scatter`: writing by indices.
//! - `sort`, `order`: sorting, top-k, binary search.
//! - `sets`: distinct elements and membership.

files! { along gather order scatter select sets sort }
