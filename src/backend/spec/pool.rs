//! The parameters of pooling kernels.

/// The windows along one dimension of `size` elements: window `o` has the elements from `⌊(o · num + start) / den⌋` to
/// `⌊(o · num + end) / den⌋`, exclusive, in steps of `step`, clipped to the dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    pub size: usize,
    /// The number of windows.
    pub count: usize,
    pub num: i64,
    pub den: i64,
    pub start: i64,
    pub end: i64,
    pub step: i64,
}

impl Windows {
    /// `kernel` elements, `dilation` apart, from `o · stride - pad` on.
    pub fn regular(size: usize, count: usize, kernel: usize, stride: usize, pad: usize, dilation: usize) -> Windows {
        let (stride, pad, span) = (stride as i64, pad as i64, ((kernel - 1) * dilation + 1) as i64);
        Windows { size, count, num: stride, den: 1, start: -pad, end: span - pad, step: dilation as i64 }
    }

    /// Adaptive pooling: the whole dimension in `count` windows of about the same size.
    pub fn adaptive(size: usize, count: usize) -> Windows {
        let (num, den) = (size as i64, count as i64);
        Windows { size, count, num, den, start: 0, end: num + den - 1, step: 1 }
    }

    /// One window over a dimension of size 1.
    pub fn single() -> Windows {
        Windows::regular(1, 1, 1, 1, 0, 1)
    }

    /// For each element the range of windows that may contain it: all that do, and with a step also others.
    pub fn inverse(&self) -> Windows {
        let Windows { size, count, num, den, start, end, .. } = *self;
        // Window o contains i if (o num + start) / den < i + 1 and (o num + end) / den >= i + 1, both before rounding down.
        Windows {
            size: count,
            count: size,
            num: den,
            den: num,
            start: den - end + num - 1,
            end: den - start + num - 1,
            step: 1,
        }
    }

    /// Whether a window may be empty: if the dilation exceeds the size of the dimension, all elements of a window may be in the
    /// padding.
    pub fn may_be_empty(&self) -> bool {
        let several = self.end - self.start > 1;
        self.count > 0 && (self.size == 0 || several && self.step > self.size as i64)
    }

    /// The first element of a window, and the number of its elements.
    pub fn at(&self, o: usize) -> (usize, usize) {
        let position = |offset: i64| (o as i64 * self.num + offset).div_euclid(self.den);
        let (mut first, end) = (position(self.start), position(self.end).min(self.size as i64));
        if first < 0 {
            first += (-first + self.step - 1) / self.step * self.step;
        }
        (first as usize, (end - first + self.step - 1).max(0) as usize / self.step as usize)
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn windows_that_may_be_empty_are_known() {
        // With 3 elements a window over -1 and 3.
        let padded = Windows::regular(3, 1, 2, 1, 1, 4);
        assert_eq!((padded.at(0).1, padded.may_be_empty()), (0, true));
        assert!(Windows::adaptive(0, 2).may_be_empty() && !Windows::adaptive(3, 2).may_be_empty());
        for (size, kernel, stride, pad, dilation) in
            [(3, 2, 1, 1, 3), (5, 3, 2, 1, 2), (1, 1, 1, 0, 9), (4, 4, 3, 2, 1)]
        {
            let count = (size + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
            let windows = Windows::regular(size, count, kernel, stride, pad, dilation);
            assert!(!windows.may_be_empty() && (0..count).all(|o| windows.at(o).1 > 0), "{windows:?}");
        }
    }

    #[test]
    fn the_inverse_names_the_windows_of_each_element() {
        let mut all: Vec<Windows> = vec![Windows::adaptive(7, 3), Windows::adaptive(3, 7), Windows::adaptive(5, 5)];
        for (size, kernel, stride, pad) in [(7, 3, 2, 1), (8, 2, 2, 0), (5, 2, 3, 1), (9, 4, 1, 2)] {
            all.push(Windows::regular(size, (size + 2 * pad - kernel) / stride + 1, kernel, stride, pad, 1));
        }
        for windows in all {
            let inverse = windows.inverse();
            for i in 0..windows.size {
                let (first, count) = inverse.at(i);
                for o in 0..windows.count {
                    let (start, len) = windows.at(o);
                    let has = (start..start + len).contains(&i);
                    assert_eq!((first..first + count).contains(&o), has, "{windows:?}: {i} in {o}");
                }
            }
        }
    }

    #[test]
    fn what_lies_outside_is_not_in_a_window() {
        // Windows over -2, 0, 2 and 1, 3, 5.
        let windows = Windows::regular(5, 2, 3, 3, 2, 2);
        assert_eq!((windows.at(0), windows.at(1)), ((0, 2), (1, 2)));
    }
}
