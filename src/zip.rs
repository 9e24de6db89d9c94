//! A `zip` of slices for loops that are vectorised. Without link-time optimisation the standard library's `zip` may be a function
//! call: its state is then in memory, and the loop is not vectorised.

use std::marker::PhantomData;

/// The pairs of the elements of two slices, up to the shorter length. Can be nested.
#[inline(always)]
pub(crate) fn zip<A: IntoLane, B: IntoLane>(a: A, b: B) -> Zip<A::Lane, B::Lane> {
    let (a, b) = (a.into_lane(), b.into_lane());
    let end = if a.len() < b.len() { a.len() } else { b.len() };
    Zip { a, b, next: 0, end }
}

/// Elements by index.
///
/// # Safety
/// [`get`](Lane::get) is valid for all indices below [`len`](Lane::len).
pub(crate) unsafe trait Lane {
    type Item;

    fn len(&self) -> usize;

    /// # Safety
    /// The index is below the length, and is passed only once.
    unsafe fn get(&mut self, number: usize) -> Self::Item;
}

/// Types that can be zipped.
pub(crate) trait IntoLane {
    type Lane: Lane;

    fn into_lane(self) -> Self::Lane;
}

pub(crate) struct Zip<A, B> {
    a: A,
    b: B,
    next: usize,
    end: usize,
}

impl<A: Lane, B: Lane> Iterator for Zip<A, B> {
    type Item = (A::Item, B::Item);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let number = self.next;
        if number >= self.end {
            return None;
        }
        self.next = number + 1;
        // SAFETY: the index is below the length of both, and is used only once.
        Some(unsafe { (self.a.get(number), self.b.get(number)) })
    }

    #[inline(always)]
    fn for_each<F: FnMut(Self::Item)>(mut self, mut f: F) {
        for number in self.next..self.end {
            // SAFETY: as above.
            f(unsafe { (self.a.get(number), self.b.get(number)) });
        }
    }
}

// SAFETY: both have elements up to the end; only those before `next` have been returned.
unsafe impl<A: Lane, B: Lane> Lane for Zip<A, B> {
    type Item = (A::Item, B::Item);

    #[inline(always)]
    fn len(&self) -> usize {
        self.end - self.next
    }

    #[inline(always)]
    unsafe fn get(&mut self, number: usize) -> Self::Item {
        let number = self.next + number;
        // SAFETY: the caller's promise.
        unsafe { (self.a.get(number), self.b.get(number)) }
    }
}

impl<A: Lane, B: Lane> IntoLane for Zip<A, B> {
    type Lane = Self;

    #[inline(always)]
    fn into_lane(self) -> Self {
        self
    }
}

// SAFETY: those of the slice.
unsafe impl<'a, T> Lane for &'a [T] {
    type Item = &'a T;

    #[inline(always)]
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    #[inline(always)]
    unsafe fn get(&mut self, number: usize) -> &'a T {
        // SAFETY: the caller's promise.
        unsafe { self.get_unchecked(number) }
    }
}

/// A slice whose elements are returned as mutable references, each once.
pub(crate) struct Mutable<'a, T> {
    first: *mut T,
    len: usize,
    of: PhantomData<&'a mut [T]>,
}

// SAFETY: those of the slice, which is borrowed for as long as they are.
unsafe impl<'a, T> Lane for Mutable<'a, T> {
    type Item = &'a mut T;

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    unsafe fn get(&mut self, number: usize) -> &'a mut T {
        // SAFETY: the caller's promise: no element is returned twice.
        unsafe { &mut *self.first.add(number) }
    }
}

impl<'a, T> IntoLane for &'a [T] {
    type Lane = &'a [T];

    #[inline(always)]
    fn into_lane(self) -> &'a [T] {
        self
    }
}

impl<'a, T> IntoLane for &'a mut [T] {
    type Lane = Mutable<'a, T>;

    #[inline(always)]
    fn into_lane(self) -> Mutable<'a, T> {
        Mutable { first: self.as_mut_ptr(), len: self.len(), of: PhantomData }
    }
}

impl<'a, T, const N: usize> IntoLane for &'a [T; N] {
    type Lane = &'a [T];

    #[inline(always)]
    fn into_lane(self) -> &'a [T] {
        self
    }
}

impl<'a, T, const N: usize> IntoLane for &'a mut [T; N] {
    type Lane = Mutable<'a, T>;

    #[inline(always)]
    fn into_lane(self) -> Mutable<'a, T> {
        self.as_mut_slice().into_lane()
    }
}

// SAFETY: those of the array.
unsafe impl<T: Copy, const N: usize> Lane for [T; N] {
    type Item = T;

    #[inline(always)]
    fn len(&self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn get(&mut self, number: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { *self.get_unchecked(number) }
    }
}

impl<T: Copy, const N: usize> IntoLane for [T; N] {
    type Lane = Self;

    #[inline(always)]
    fn into_lane(self) -> Self {
        self
    }
}

impl<'a, T> IntoLane for &'a Vec<T> {
    type Lane = &'a [T];

    #[inline(always)]
    fn into_lane(self) -> &'a [T] {
        self
    }
}

impl<'a, T> IntoLane for &'a mut Vec<T> {
    type Lane = Mutable<'a, T>;

    #[inline(always)]
    fn into_lane(self) -> Mutable<'a, T> {
        self.as_mut_slice().into_lane()
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::zip;

    #[test]
    fn pairs_of_the_shorter() {
        let (mut a, b, c) = ([1, 2, 3], vec![10, 20], [100, 200, 300, 400]);
        for ((a, &b), &c) in zip(zip(&mut a, &b), &c) {
            *a += b + c;
        }
        assert_eq!(a, [111, 222, 3]);
        let mut pairs = zip(&a, &b);
        assert_eq!(pairs.next(), Some((&111, &10)));
        let mut rest = Vec::new();
        pairs.for_each(|pair| rest.push(pair));
        assert_eq!(rest, [(&222, &20)]);
        let mut pairs = zip(&c, &c);
        pairs.next();
        let behind: Vec<i32> = zip(pairs, &a).map(|((x, _), y)| x - y).collect();
        assert_eq!(behind, [200 - 111, 300 - 222, 400 - 3]);
    }
}
