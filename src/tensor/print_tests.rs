//! Tests of printing: NumPy's own output, and the parts that NumPy does not have.

use super::*;
use std::cell::Cell;

/// Cases written by `tests/golden/print.py` from NumPy itself. Of a summarised array the file
/// holds only the corners, so that reading any other element fails the test.
const GOLDEN: &str = include_str!("../../tests/golden/print.txt");

fn element(dtype: &str, text: &str) -> Elem {
    match dtype {
        "f64" => Elem::F64(text.parse().unwrap()),
        "f32" => Elem::F32(text.parse().unwrap()),
        "f16" => Elem::F16(text.parse().unwrap()),
        "i64" => Elem::Int(text.parse().unwrap()),
        "u64" => Elem::UInt(text.parse().unwrap()),
        "bool" => Elem::Bool(text == "1"),
        other => panic!("unknown dtype {other}"),
    }
}

/// The place of an element among the corners; panics for one that NumPy does not show.
fn corner(shape: &[usize], index: &[usize]) -> usize {
    let summarise = shape.iter().product::<usize>() > 1000;
    index.iter().zip(shape).fold(0, |flat, (&i, &len)| match len {
        7.. if summarise && i < 3 => flat * 6 + i,
        7.. if summarise && i + 3 >= len => flat * 6 + i + 6 - len,
        7.. if summarise => panic!("read {index:?} of {shape:?}"),
        _ => flat * len + i,
    })
}

#[cotangent_macros::unit_test]
fn golden() {
    let mut count = 0;
    for case in GOLDEN.split("\n=== ").skip(1) {
        let (header, rest) = case.split_once('\n').unwrap();
        let (values, rest) = rest.split_once("\n--- str\n").unwrap();
        let (str, repr) = rest.split_once("\n--- repr\n").unwrap();
        let mut header = header.split(' ');
        let dtype = header.next().unwrap();
        let shape: Vec<usize> = header.map(|len| len.parse().unwrap()).collect();
        let values: Vec<Elem> = values.split_whitespace().map(|text| element(dtype, text)).collect();
        let reads = Cell::new(0);
        let fetch = |index: &[usize]| {
            reads.set(reads.get() + 1);
            values[corner(&shape, index)]
        };
        assert_eq!(format_array(&shape, &fetch, Style::Str, 0, None), str, "{shape:?} {values:?}");
        assert_eq!(reads.get(), values.len(), "each shown element is read once");
        let array = format_array(&shape, &fetch, Style::Repr, "array(".len(), None);
        assert_eq!(array, repr, "{shape:?} {values:?}");
        count += 1;
    }
    assert!(count >= 120, "only {count} cases were read");
}

#[cotangent_macros::unit_test]
fn huge_arrays_read_only_their_corners() {
    let reads = Cell::new(0);
    let fetch = |_: &[usize]| {
        reads.set(reads.get() + 1);
        Elem::F32(1.0)
    };
    let text = format_array(&[usize::MAX, usize::MAX], &fetch, Style::Str, 0, None);
    assert_eq!(reads.get(), 36);
    assert_eq!(text.lines().nth(3), Some(" ..."));
}

#[cotangent_macros::unit_test]
fn bf16_has_its_own_shortest_digits() {
    let values = [0.1, 1.0 / 3.0, -1.0].map(|x| half::bf16::from_f32(x).to_f32());
    let fetch = |index: &[usize]| Elem::BF16(values[index[0]]);
    assert_eq!(format_array(&[3], &fetch, Style::Str, 0, None), "[ 0.1    0.334 -1.   ]");
    assert_eq!(format_array(&[], &|_| Elem::BF16(3.3895314e38), Style::Str, 0, None), "3.39e+38");
}

#[cotangent_macros::unit_test]
fn small_types_read_back() {
    for bits in 0..0x7c00_u16 {
        let value = half::f16::from_bits(bits);
        let text = scalar(Elem::F16(value.to_f32()));
        assert_eq!(half::f16::from_f64(text.parse().unwrap()), value, "{text}");
    }
    for bits in 0..0x7f80_u16 {
        let value = half::bf16::from_bits(bits);
        let text = scalar(Elem::BF16(value.to_f32()));
        assert_eq!(half::bf16::from_f64(text.parse().unwrap()), value, "{text}");
    }
}

#[cotangent_macros::unit_test]
fn debug_names_shape_type_and_device() {
    let matrix = |index: &[usize]| Elem::F32((index[0] * 2 + index[1] + 1) as f32);
    assert_eq!(
        format_debug(&[2, 2], &matrix, "f32", "cpu", "", None),
        "tensor([[1., 2.],\n        [3., 4.]], shape=[2, 2], dtype=f32, device=cpu)"
    );
    assert_eq!(
        format_debug(&[], &|_| Elem::F64(2.5), "f64", "cpu", ", grad_fn=mul", None),
        "tensor(2.5, shape=[], dtype=f64, device=cpu, grad_fn=mul)"
    );
    assert_eq!(
        format_debug(&[0, 3], &matrix, "f32", "cpu", "", None),
        "tensor([], shape=[0, 3], dtype=f32, device=cpu)"
    );
}

#[cotangent_macros::unit_test]
fn debug_breaks_a_line_that_would_be_too_long() {
    let fetch = |index: &[usize]| Elem::Int(index[0] as i64);
    let fits = format_debug(&[10], &fetch, "i64", "cpu", "", None);
    assert_eq!(fits.len(), 73);
    assert_eq!(fits.lines().count(), 1);
    let full = format_debug(&[10], &fetch, "i64", "cpu", "xx", None);
    assert_eq!((full.len(), full.lines().count()), (75, 1));
    let over = format_debug(&[10], &fetch, "i64", "cpu", "xxx", None);
    assert_eq!(over.lines().count(), 2);
    let broken = format_debug(&[11], &fetch, "i64", "cpu", "", None);
    assert_eq!(
        broken,
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10],\n       \
         shape=[11], dtype=i64, device=cpu)"
    );
}
