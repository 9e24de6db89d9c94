//! The tile unit's products against three plain loops.

use super::*;
use crate::Result;
use crate::backend::cpu::linalg::gemm::Matrix;
use crate::backend::with_num_threads;
use half::bf16;

/// The specification: operands rounded to bf16, products summed in f64. `limits` gets the sums of the absolute values, to
/// which errors are relative.
fn reference<S: PackElement>(p: &Product<S, f32>, out: &[f32], limits: &mut [f64]) -> Vec<f64> {
    // SAFETY: the matrices of `check` have all elements that their sizes and steps say, here and below.
    let value = |x: *const S| f64::from(bf16::from_bits(unsafe { x.read() }.bits()).to_f32());
    let mut expected: Vec<f64> = out.iter().map(|&x| f64::from(x)).collect();
    for i in 0..p.m {
        for j in 0..p.n {
            let mut sum = match p.start {
                Start::Zero => 0.0,
                Start::Out => f64::from(out[i * p.width + j]),
                // SAFETY: as above.
                Start::Row(row) => f64::from(unsafe { row.add(j).read() }),
            };
            let mut limit = sum.abs();
            for l in 0..p.k {
                let term = value(p.a.at(i, l)) * value(p.b.at(l, j));
                sum += term;
                limit += term.abs();
            }
            expected[i * p.width + j] = sum;
            limits[i * p.width + j] = limit;
        }
    }
    expected
}

struct Numbers(u32);
impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
    fn some(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// The memory layout of a matrix.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Rows,
    Columns,
    Spread,
    Backward,
    BackwardColumns,
    OneRow,
    OneColumn,
    One,
}
const LAYOUTS: [Layout; 8] = [
    Layout::Rows,
    Layout::Columns,
    Layout::Spread,
    Layout::Backward,
    Layout::BackwardColumns,
    Layout::OneRow,
    Layout::OneColumn,
    Layout::One,
];

/// A matrix with exactly the elements of `data`, so that a read outside of them is outside of the buffer.
fn matrix<S: PackElement>(make: impl Fn(usize) -> Vec<S>, m: usize, n: usize, layout: Layout) -> (Vec<S>, Matrix<S>) {
    let (mi, ni) = (m as isize, n as isize);
    let (row, col) = match layout {
        Layout::Rows => (ni + 3, 1),
        Layout::Columns => (1, mi + 1),
        Layout::Spread => (2 * ni + 1, 2),
        Layout::Backward => (-ni, -1),
        Layout::BackwardColumns => (1, -mi),
        Layout::OneRow => (0, 1),
        Layout::OneColumn => (1, 0),
        Layout::One => (0, 0),
    };
    let (mut low, mut high) = (0, 0);
    for (n, step) in [(mi, row), (ni, col)] {
        let far = (n - 1).max(0) * step;
        low += far.min(0);
        high += far.max(0);
    }
    let data = make((high - low + 1) as usize);
    let ptr = data.as_ptr().wrapping_offset(-low);
    (data, Matrix { ptr, row, col })
}

fn work<S>(p: &Product<S, f32>) -> (Vec<u16>, *mut u16) {
    let mut space = vec![0xffff_u16; workspace(p) + 32];
    let at = space.as_mut_ptr().align_offset(64);
    let ptr = space.as_mut_ptr().wrapping_add(at);
    (space, ptr)
}

fn check<S: PackElement>(
    make: impl Fn(&mut Numbers, usize) -> Vec<S>,
    sizes: [usize; 3],
    layouts: [Layout; 2],
    start: usize,
    gap: usize,
) {
    if !available() {
        return;
    }
    let [m, n, k] = sizes;
    let numbers = std::cell::RefCell::new(Numbers((m * 7919 + n * 104_729 + k) as u32));
    let some = |n| make(&mut numbers.borrow_mut(), n);
    let (_a, a) = matrix(some, m, k, layouts[0]);
    let (_b, b) = matrix(some, k, n, layouts[1]);
    let width = n + gap;
    let row = numbers.borrow_mut().some(n);
    let mut out = numbers.borrow_mut().some(m * width);
    let start = [Start::Zero, Start::Out, Start::Row(row.as_ptr())][start];
    if !matches!(start, Start::Out) {
        // Elements that must not be read are NaN.
        (0..m).for_each(|i| out[i * width..i * width + n].fill(f32::NAN));
    }
    let mut p = Product { m, n, k, a, b, out: std::ptr::null_mut(), width, start };
    let mut limits = vec![0.0; out.len()];
    let expected = reference(&p, &out, &mut limits);
    let (_space, workspace) = work(&p);
    p.out = out.as_mut_ptr();
    // SAFETY: the unit is available; operands, result and workspace have the sizes that the product says.
    unsafe { multiply(&p, workspace) };
    for (at, (&got, &want)) in out.iter().zip(&expected).enumerate() {
        let near = (f64::from(got) - want).abs() <= 1e-6 * limits[at];
        assert!(near, "{m} x {n} x {k}, {layouts:?}, at {}, {}: {got} and not {want}", at / width, at % width);
    }
}

fn f32s(numbers: &mut Numbers, n: usize) -> Vec<f32> {
    numbers.some(n)
}
fn bf16s(numbers: &mut Numbers, n: usize) -> Vec<bf16> {
    numbers.some(n).into_iter().map(bf16::from_f32).collect()
}

#[cotangent_macros::unit_test]
fn all_layouts_and_starts() {
    for a in LAYOUTS {
        for b in LAYOUTS {
            for start in 0..3 {
                for sizes in [[33, 47, 65], [64, 32, 96], [5, 70, 1]] {
                    check(f32s, sizes, [a, b], start, 3);
                    check(bf16s, sizes, [a, b], start, 0);
                }
            }
        }
    }
}

#[cotangent_macros::unit_test]
fn all_small_sizes() {
    for m in 1..=70 {
        for n in 1..=70 {
            let k = 1 + (m * 31 + n * 17) % 70;
            let layouts = [LAYOUTS[m % 2], LAYOUTS[n % 2]];
            check(f32s, [m, n, k], layouts, (m + n) % 3, n % 3);
            check(bf16s, [m, n, k], layouts, (m + n + 1) % 3, m % 3);
        }
    }
}

#[cotangent_macros::unit_test]
fn nothing_to_sum() {
    for start in 0..3 {
        check(f32s, [35, 40, 0], [Layout::Rows, Layout::Columns], start, 1);
        check(f32s, [0, 40, 3], [Layout::Rows, Layout::Columns], start, 1);
        check(f32s, [40, 0, 3], [Layout::Rows, Layout::Columns], start, 1);
    }
}

#[cotangent_macros::unit_test]
fn several_blocks_chunks_and_tasks() {
    for start in 0..3 {
        check(f32s, [70, 90, 5000], [Layout::Rows, Layout::Columns], start, 1);
        check(bf16s, [4200, 33, 70], [Layout::Columns, Layout::Rows], start, 0);
        check(bf16s, [40, 4200, 110], [Layout::Rows, Layout::Columns], start, 1);
        check(f32s, [33, 4200, 70], [Layout::Rows, Layout::Rows], start, 2);
    }
    check(f32s, [600, 1100, 530], [Layout::Columns, Layout::Columns], 0, 0);
    check(bf16s, [600, 1100, 530], [Layout::Rows, Layout::Rows], 1, 5);
}

#[cotangent_macros::unit_test]
fn threads_do_not_change_results() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let (m, n, k) = (300, 700, 3000);
    let (a, b) = (Numbers(1).some(m * k), Numbers(2).some(k * n));
    let product = |threads: usize| -> Result<Vec<u32>> {
        let mut out = vec![0.0_f32; m * n];
        let (a, b) =
            (Matrix { ptr: a.as_ptr(), row: k as isize, col: 1 }, Matrix { ptr: b.as_ptr(), row: n as isize, col: 1 });
        let p = Product { m, n, k, a, b, out: out.as_mut_ptr(), width: n, start: Start::Zero };
        let (_space, workspace) = work(&p);
        // SAFETY: as in `check`.
        with_num_threads(threads, || unsafe { multiply(&p, workspace) })?;
        Ok(out.iter().map(|x| x.to_bits()).collect())
    };
    let one = product(1)?;
    for threads in [2, 3, 7] {
        assert!(one == product(threads)?);
    }
    Ok(())
}

/// Vectorized rounding is that of the scalar function, for all kinds of numbers, and the latter is that of `half`.
#[cotangent_macros::unit_test]
fn rounding() {
    if !available() {
        return;
    }
    let mut numbers: Vec<f32> = (0..=0xffff_u32)
        .flat_map(|high| [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|low| f32::from_bits(high << 16 | low)))
        .collect();
    numbers.truncate(numbers.len() / 32 * 32);
    let k = numbers.len();
    let x = Matrix { ptr: numbers.as_ptr(), row: 0, col: 1 };
    let mut space = vec![0_u16; k * SIDE + 32];
    let at = space.as_mut_ptr().align_offset(64);
    // SAFETY: the unit is available; the room is that of one panel of `k` elements.
    unsafe { pack::panels(x, 1, k, space.as_mut_ptr().add(at), 0, Lines::Rows) };
    for (l, &x) in numbers.iter().enumerate() {
        let packed = space[at + l / STEP * PANEL_STEP + l % STEP];
        assert_eq!(packed, x.bits(), "{:x}", x.to_bits());
        if !x.is_subnormal() {
            assert_eq!(packed, bf16::from_f32(x).to_bits(), "{:x}", x.to_bits());
        }
    }
}

#[cotangent_macros::unit_test]
fn infinities_and_nans_stay_where_they_are() {
    if !available() {
        return;
    }
    let (m, n, k) = (20, 40, 33);
    let (mut a, b) = (vec![1.0_f32; m * k], vec![1.0_f32; k * n]);
    a[3 * k + 32] = f32::INFINITY;
    a[5 * k] = f32::NAN;
    let mut out = vec![0.0; m * n];
    let (a, b) =
        (Matrix { ptr: a.as_ptr(), row: k as isize, col: 1 }, Matrix { ptr: b.as_ptr(), row: n as isize, col: 1 });
    let p = Product { m, n, k, a, b, out: out.as_mut_ptr(), width: n, start: Start::Zero };
    let (_space, workspace) = work(&p);
    // SAFETY: as in `check`.
    unsafe { multiply(&p, workspace) };
    for (i, row) in out.chunks(n).enumerate() {
        let right = |x: f32| match i {
            3 => x == f32::INFINITY,
            5 => x.is_nan(),
            _ => x == k as f32,
        };
        assert!(row.iter().all(|&x| right(x)), "row {i}: {row:?}");
    }
}
