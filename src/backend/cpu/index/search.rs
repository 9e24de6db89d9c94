//! Where numbers belong among numbers that are in order.

use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::SortKey;
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::{DType, Result};

/// For each value the number of elements in its row of `sequence` that come before it: those that are smaller or, for `right`,
/// not larger; NaN comes after everything. All are contiguous and of one dtype, but for `out`, which is `i64` and has the shape of
/// `values`. Either has `rows` rows; if there is one row in `sequence` it is for all.
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
        bail!(Backend, op, "{numel} values cannot be looked for in {rows} rows of {n} elements");
    }
    let (len, width) = (n / rows, (numel / rows).max(1));
    let to = Ptr::new(out.first().cast::<i64>());
    with_dtype!(values.dtype, T => {
        let (Some(sequence), Some(values)) = (sequence.as_slice::<T>(), values.as_slice::<T>()) else {
            bail!(Backend, op, "values and sequence are not contiguous");
        };
        parallel(numel, GRAIN / 16, |range| {
            for i in range {
                let (value, row) = (values[i], &sequence[i / width * len..][..len]);
                // A NaN comes after all elements, and one among these, which is at their end, after all other values.
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
