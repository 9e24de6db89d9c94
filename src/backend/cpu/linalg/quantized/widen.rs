//! The conversion of quantised rows to floats: in registers of AVX-512, or as a plain loop that is compiled for every level.
//! Both give the bits of the reference, as no operation is fused.

#[cfg(target_arch = "x86_64")]
use super::registers;
use super::unpack::{self, GROUP, Group, PART, Unpack};
use super::with_unpack;
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::spec::{NF4, QuantFormat};
use std::marker::PhantomData;

/// Writes the elements of a row from column `first` on, where a group begins, to `to`.
pub(super) fn widen<T: From<f32> + Copy>(format: QuantFormat, row: &[u8], first: usize, to: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    if crate::backend::cpu::runtime::simd::has_vnni() {
        // SAFETY: the features were detected.
        unsafe {
            with_unpack!(format, U => registers::widen::<U, T>(row, first, to), nf4 => registers::widen_nf4(row, first, to));
        }
        return;
    }
    widen_plain(format, row, first, to);
}

/// As [`widen`], without instructions of its own.
pub(super) fn widen_plain<T: From<f32> + Copy>(format: QuantFormat, row: &[u8], first: usize, to: &mut [T]) {
    with_unpack!(format, U => dispatch(Widen::<U, T> { row, first, to, format: PhantomData }),
        nf4 => dispatch(WidenNf4 { row, first, to }));
}

/// Converts a part of a row to floats.
struct Widen<'a, U, T> {
    row: &'a [u8],
    first: usize,
    to: &'a mut [T],
    format: PhantomData<U>,
}

impl<U: Unpack, T: From<f32> + Copy> Job for Widen<'_, U, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let mut group = Group::new();
        for (index, to) in self.to.chunks_mut(GROUP).enumerate() {
            U::unpack(self.row, self.first / GROUP + index, &mut group);
            let mut values = [0.0_f32; GROUP];
            for (part, values) in values.as_chunks_mut::<PART>().0.iter_mut().enumerate() {
                let (scale, shift) = (group.scales[part], group.shifts[part]);
                for (i, value) in values.iter_mut().enumerate() {
                    let code = f32::from(i16::from(group.codes[PART * part + i]) - i16::from(U::OFFSET));
                    *value = if U::SHIFTED { scale * code + shift } else { scale * code };
                }
            }
            for (to, value) in to.iter_mut().zip(values) {
                *to = T::from(value);
            }
        }
    }
}

/// As [`Widen`], for NF4.
struct WidenNf4<'a, T> {
    row: &'a [u8],
    first: usize,
    to: &'a mut [T],
}

impl<T: From<f32> + Copy> Job for WidenNf4<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let blocks = &self.row.as_chunks::<36>().0[self.first / 64..];
        for (block, to) in blocks.iter().zip(self.to.as_chunks_mut::<64>().0) {
            let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
            for (i, to) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let byte = usize::from(block[4 + i]);
                *to = [T::from(NF4[byte >> 4] * scale), T::from(NF4[byte & 15] * scale)];
            }
        }
    }
}
