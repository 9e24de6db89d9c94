//! A value that is borrowed, or owned together with others.
#![forbid(unsafe_code)]

use std::ops::Deref;
use std::sync::Arc;

/// A reference, or a counted one. With the second, what holds it has no lifetime: front ends in other languages need that.
#[derive(Debug)]
pub(crate) enum MaybeShared<'a, T: ?Sized> {
    Borrowed(&'a T),
    Shared(Arc<T>),
}

impl<T: ?Sized> Deref for MaybeShared<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            MaybeShared::Borrowed(value) => value,
            MaybeShared::Shared(value) => value,
        }
    }
}

// Not derived: the value need not be `Clone`.
impl<T: ?Sized> Clone for MaybeShared<'_, T> {
    fn clone(&self) -> Self {
        match self {
            MaybeShared::Borrowed(value) => MaybeShared::Borrowed(value),
            MaybeShared::Shared(value) => MaybeShared::Shared(value.clone()),
        }
    }
}
