//! Binary search in sorted sequences.

use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::SortKey;
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::{DType, Result};

/// For each value the number of elements of its row of `sequence` that come before it: those that are smaller or, for `right`,
/// not larger; NaN comes last. `sequence` and `values` are contiguous, of one dtype, and have `rows` rows each. With `rows` 1
/// the sequence is searched for all values. `out` is `i64` and has the shape of `values`.
pub(crate) fn searchsorted(
    op: &'static str,
    sequence: View<'_>,
    rows: usize,
    values: View<'_>,
    right: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (n, numel) = (sequence.layout.numel(), values.layout.numel());
    let contiguous = sequence.layout.is_contiguous() && values.layout.is_contiguous() && out.layout.is_contiguous();
    let fits = rows > 0 && n % rows == 0 && numel % rows == 0 && out.layout.numel() == numel;
    if !contiguous || !fits || sequence.dtype != values.dtype || out.dtype != DType::I64 {
        bail!(Backend, op, "cannot search {numel} values in {rows} rows of {n} elements");
    }
    let (len, width) = (n / rows, (numel / rows).max(1));
    let to = Ptr::new(out.first().cast::<i64>());
    with_dtype!(values.dtype, T => {
        let (Some(sequence), Some(values)) = (sequence.as_slice::<T>(), values.as_slice::<T>()) else {
            bail!(Backend, op, "values and sequence must be contiguous");
        };
        parallel(numel, GRAIN / 16, |range| {
            for i in range {
                let (value, row) = (values[i], &sequence[i / width * len..][..len]);
                // A NaN value comes after all elements; NaN elements, at the end of the row, after all other values.
                let at = match right {
                    _ if value.is_nan() => len,
                    true => row.partition_point(|&x| x.key() <= value.key()),
                    false => row.partition_point(|&x| x.key() < value.key()),
                };
                // SAFETY: the output is contiguous and has as many elements as there are values; threads have disjoint ranges.
                unsafe { to.get().add(i).write(at as i64) };
            }
        });
    });
    Ok(())
}
