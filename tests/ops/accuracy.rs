//! The elementwise functions against values with more digits than they have: `tools/accuracy_fixtures.py` writes these, and the table
//! of the largest errors, `src/ops/ACCURACY.md`.

use cotangent::ops;
use cotangent::{DType, Tensor};
use std::path::{Path, PathBuf};

type Fault<T = ()> = Result<T, String>;

/// An argument, the number nearest to the true value, and what that is above it, in units in its last place.
struct Point {
    x: f64,
    near: f64,
    rest: f64,
}

/// The bits and the spacing of the numbers of a dtype.
struct Kind {
    dtype: DType,
    of_bits: fn(u64) -> f64,
    /// The distance to the next number of larger size.
    spacing: fn(f64) -> f64,
    most: f64,
}

const KINDS: [Kind; 2] = [
    Kind {
        dtype: DType::F32,
        of_bits: |bits| f64::from(f32::from_bits(bits as u32)),
        spacing: |x| {
            let x = (x as f32).abs().min(f32::MAX.next_down());
            f64::from(x.next_up() - x)
        },
        most: f32::MAX as f64,
    },
    Kind {
        dtype: DType::F64,
        of_bits: f64::from_bits,
        spacing: |x| {
            let x = x.abs().min(f64::MAX.next_down());
            x.next_up() - x
        },
        most: f64::MAX,
    },
];

impl Kind {
    /// The error of a value, in units in the last place; infinite where one of the two is NaN or infinite alone.
    fn error(&self, got: f64, point: &Point) -> f64 {
        let Point { near, rest, .. } = *point;
        if (got.is_nan() && near.is_nan()) || (got == near && !near.is_finite()) {
            return 0.0;
        }
        // One step from the largest number to infinity.
        let last = got.is_infinite() != near.is_infinite() && got.abs().min(near.abs()) == self.most;
        if last && got.signum() == near.signum() {
            return 1.0;
        }
        let error = ((got - near) / (self.spacing)(near) - rest).abs();
        if error.is_nan() { f64::INFINITY } else { error }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> Fault<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The points of a file, for f32 and for f64.
fn points(text: &str) -> Fault<[Vec<Point>; 2]> {
    let (mut all, mut at) = ([Vec::new(), Vec::new()], 0);
    for line in text.lines() {
        match line {
            "float32" => at = 0,
            "float64" => at = 1,
            _ => {
                let mut words = line.split(' ');
                let mut word = || words.next().ok_or_else(|| format!("{line:?} is no point"));
                let of = |word: &str| u64::from_str_radix(word, 16).map(KINDS[at].of_bits).map_err(|e| e.to_string());
                let (x, near) = (of(word()?)?, of(word()?)?);
                let rest = word()?.parse().map_err(|_| format!("{line:?} has no rest"))?;
                all[at].push(Point { x, near, rest });
            }
        }
    }
    Ok(all)
}

/// The functions of the table, with the largest errors in f32 and f64.
fn bounds() -> Fault<Vec<(String, [f64; 2])>> {
    let table = read(&root().join("src/ops/ACCURACY.md"))?;
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let bound = |row: &str, cell: usize| -> Fault<f64> {
        let cell = row.split('|').nth(cell).map(str::trim).ok_or_else(|| format!("{row:?} has too few cells"))?;
        cell.parse().map_err(|_| format!("{cell:?} of {row:?} is no number"))
    };
    let name = |row: &str| row.split('`').nth(1).map(str::to_owned).ok_or_else(|| format!("{row:?} has no name"));
    rows.map(|row| Ok((name(row)?, [bound(row, 2)?, bound(row, 5)?]))).collect()
}

#[test]
fn no_function_is_further_from_the_truth_than_the_table_says() -> Fault {
    let (mut faults, bounds) = (Vec::new(), bounds()?);
    assert!(bounds.len() > 50, "only {} functions", bounds.len());
    let named = std::env::var("COTANGENT_TEST_OPS").ok();
    for (name, bounds) in &bounds {
        if named.as_ref().is_some_and(|named| named.split(',').all(|named| named != name)) {
            continue;
        }
        let op = ops::find(name).ok_or_else(|| format!("there is no op {name}"))?;
        let all = points(&read(&root().join(format!("tests/fixtures/accuracy/{name}.txt")))?)?;
        for ((kind, points), bound) in KINDS.iter().zip(&all).zip(bounds) {
            assert!(points.len() > 50, "{name}: only {} points of {}", points.len(), kind.dtype);
            let x: Vec<f64> = points.iter().map(|point| point.x).collect();
            let computed = Tensor::from_vec(x, points.len())
                .and_then(|x| x.to_dtype(kind.dtype))
                .and_then(|x| op.call(&op.bind(&[(&x).into()], &[])?))
                .and_then(|y| y[0].to_dtype(DType::F64)?.to_vec::<f64>())
                .map_err(|error| format!("{name}: {error}"))?;
            let worst = computed.iter().zip(points).max_by(|a, b| {
                let of = |(got, point): &(&f64, &Point)| kind.error(**got, point);
                of(a).total_cmp(&of(b))
            });
            let Some((&got, point)) = worst else { continue };
            let error = kind.error(got, point);
            // The platform's library differs between systems.
            if error > bound + 0.1 {
                let (dtype, x, near) = (kind.dtype, point.x, point.near);
                faults.push(format!("{name}({x:e}) in {dtype} is {got:e} for {near:e}: {error:.2} ulp, over {bound}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}
