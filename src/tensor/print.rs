//! Arrays as text, character for character as NumPy prints them with its default options.
//!
//! The work is done in three independent steps: [`shown`] says which elements
//! appear (only those are ever read, so a huge tensor prints as fast as a small one), `words` turns
//! them into text of a common width, and [`Page`] lays the words out in brackets and lines.
//!
//! The reference is NumPy 2.4. Since 2.3 the size at which it turns to scientific notation depends
//! on the type: `1e8` for f64 (`1e16` for a single value), `1e6` for f32, `1e3` for f16. NumPy has
//! no bf16; ours has its own shortest digits and the limit of f16.
#![forbid(unsafe_code)]

use std::ops::Range;

/// Digits after the point, at most.
const PRECISION: usize = 8;
/// Arrays with more elements than this are summarised.
const THRESHOLD: usize = 1000;
/// Elements shown at each end of a summarised axis.
const EDGE: usize = 3;
const LINE_WIDTH: usize = 75;

/// One element, tagged with the type whose digits it is printed in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Elem {
    F64(f64),
    F32(f32),
    /// A value of f16, widened.
    F16(f32),
    /// A value of bf16, widened.
    BF16(f32),
    Int(i64),
    UInt(u64),
    Bool(bool),
    C64(f32, f32),
    C128(f64, f64),
}

impl Elem {
    /// The parts of a complex number.
    fn parts(self) -> Option<(Elem, Elem)> {
        match self {
            Elem::C64(re, im) => Some((Elem::F32(re), Elem::F32(im))),
            Elem::C128(re, im) => Some((Elem::F64(re), Elem::F64(im))),
            _ => None,
        }
    }
}

/// Which of NumPy's two texts is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `str(a)`: elements separated by spaces, a 0-d array in full precision.
    Str,
    /// The array inside `repr(a)`: elements separated by commas, one column kept for the `)`.
    Repr,
}

/// The text of an array. `fetch` is called once for each element that is shown, in row-major order.
///
/// Lines after the first are indented by `prefix_len`, the width of what will precede the text on
/// its first line. With a precision, floats have exactly that many digits after the point.
pub(crate) fn format_array(
    shape: &[usize],
    fetch: &dyn Fn(&[usize]) -> Elem,
    style: Style,
    prefix_len: usize,
    precision: Option<usize>,
) -> String {
    if shape.contains(&0) {
        return "[]".to_string();
    }
    if shape.is_empty() && style == Style::Str {
        return match precision {
            Some(_) => words(&[fetch(&[])], true, precision).concat(),
            None => scalar(fetch(&[])),
        };
    }
    // Saturating, because a broadcast shape may count more elements than a usize can.
    let summarise = shape.iter().fold(1usize, |n, &len| n.saturating_mul(len)) > THRESHOLD;
    let mut elems = Vec::new();
    let mut index = Vec::with_capacity(shape.len());
    gather(shape, summarise, fetch, &mut index, &mut elems);
    let mut page = Page {
        shape,
        summarise,
        separator: if style == Style::Str { " " } else { ", " },
        words: words(&elems, shape.is_empty(), precision).into_iter(),
    };
    let width = LINE_WIDTH - usize::from(style == Style::Repr);
    page.lay_out(0, prefix_len + 1, width)
}

/// What `Debug` prints: `tensor([1., 2.], shape=[2], dtype=f32, device=cpu)`.
///
/// `suffix` is put before the closing parenthesis (`", grad_fn=mul"`, or nothing). Everything after
/// the array moves to a new line when the last line would become too long.
pub(crate) fn format_debug(
    shape: &[usize],
    fetch: &dyn Fn(&[usize]) -> Elem,
    dtype: &str,
    device: &str,
    suffix: &str,
    precision: Option<usize>,
) -> String {
    const PREFIX: &str = "tensor(";
    let array = format_array(shape, fetch, Style::Repr, PREFIX.len(), precision);
    let head = format!("{PREFIX}{array},");
    let tail = format!("shape={shape:?}, dtype={dtype}, device={device}{suffix})");
    let last_line = head.len() - head.rfind('\n').map_or(0, |at| at + 1);
    if last_line + 1 + tail.len() > LINE_WIDTH {
        format!("{head}\n{:1$}{tail}", "", PREFIX.len())
    } else {
        format!("{head} {tail}")
    }
}

/// The indices shown of an axis: those before the `...`, and those after it.
fn shown(len: usize, summarise: bool) -> (Range<usize>, Range<usize>) {
    if summarise && len > 2 * EDGE { (0..EDGE, len - EDGE..len) } else { (0..0, 0..len) }
}

fn gather(
    shape: &[usize],
    summarise: bool,
    fetch: &dyn Fn(&[usize]) -> Elem,
    index: &mut Vec<usize>,
    out: &mut Vec<Elem>,
) {
    let Some(&len) = shape.get(index.len()) else {
        out.push(fetch(index));
        return;
    };
    let (head, tail) = shown(len, summarise);
    for i in head.chain(tail) {
        index.push(i);
        gather(shape, summarise, fetch, index, out);
        index.pop();
    }
}

/// Brackets, separators and line breaks around words that come in row-major order.
struct Page<'a> {
    shape: &'a [usize],
    summarise: bool,
    separator: &'static str,
    words: std::vec::IntoIter<String>,
}

impl Page<'_> {
    /// The text of the sub-array at `axis`. Its first line starts after the opening bracket, at
    /// column `indent`, and `width` columns are left for each line once outer brackets are closed.
    fn lay_out(&mut self, axis: usize, indent: usize, width: usize) -> String {
        let Some(&len) = self.shape.get(axis) else {
            return self.words.next().unwrap_or_default();
        };
        let (head, tail) = shown(len, self.summarise);
        let dots = (!head.is_empty()).then_some(());
        if axis + 1 == self.shape.len() {
            let before = head.len();
            let mut row: Vec<String> = self.words.by_ref().take(before + tail.len()).collect();
            if dots.is_some() {
                row.insert(before, "...".to_string());
            }
            return self.wrap(&row, indent, width);
        }
        let mut parts = Vec::new();
        parts.extend(head.map(|_| self.lay_out(axis + 1, indent + 1, width.saturating_sub(1))));
        parts.extend(dots.map(|()| "...".to_string()));
        parts.extend(tail.map(|_| self.lay_out(axis + 1, indent + 1, width.saturating_sub(1))));
        // Matrices stand one blank line apart, stacks of matrices two, and so on.
        let gap = "\n".repeat(self.shape.len() - axis - 1);
        let between = format!("{}{gap}{:indent$}", self.separator.trim_end(), "");
        format!("[{}]", parts.join(&between))
    }

    /// One row, broken into lines where the next word and the character after it would not fit.
    fn wrap(&self, row: &[String], indent: usize, width: usize) -> String {
        let mut text = "[".to_string();
        let mut column = indent;
        for (i, word) in row.iter().enumerate() {
            // A word too long for any line stays where it is if it is the first on its line.
            if column + word.len() + 1 > width && column > indent {
                text.truncate(text.trim_end().len());
                text.push('\n');
                text.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            }
            text.push_str(word);
            column += word.len();
            if i + 1 < row.len() {
                text.push_str(self.separator);
                column += self.separator.len();
            }
        }
        text.push(']');
        text
    }
}

/// The elements as text, padded so that they align.
fn words(elems: &[Elem], zero_dim: bool, precision: Option<usize>) -> Vec<String> {
    if let Some(parts) = elems.iter().map(|elem| elem.parts()).collect::<Option<Vec<_>>>()
        && !parts.is_empty()
    {
        let (re, im): (Vec<Elem>, Vec<Elem>) = parts.into_iter().unzip();
        let (re, im) = (words(&re, zero_dim, precision), words(&im, zero_dim, precision));
        return re.iter().zip(&im).map(|(re, im)| with_unit(re, im)).collect();
    }
    match elems.first() {
        None => Vec::new(),
        Some(Elem::Bool(_) | Elem::Int(_) | Elem::UInt(_)) => {
            let plain: Vec<String> = elems.iter().map(|&e| scalar(e)).collect();
            let boolean = matches!(elems[0], Elem::Bool(_));
            // NumPy gives every boolean the width of `False`, even if all are true.
            let least = if boolean && !zero_dim { "False".len() } else { 0 };
            let width = plain.iter().map(String::len).fold(least, usize::max);
            plain.iter().map(|word| format!("{word:>width$}")).collect()
        }
        Some(_) => {
            let floats: Vec<Float> = elems.iter().map(|&e| Float::from(e)).collect();
            match precision {
                Some(digits) => fixed_words(&floats, digits),
                None => float_words(&floats),
            }
        }
    }
}

/// A complex number from its parts: `1.+2.j`, padded as the imaginary part was.
fn with_unit(re: &str, im: &str) -> String {
    let digits = im.trim();
    let sign = if digits.starts_with('-') { "" } else { "+" };
    let width = im.len() + 2;
    format!("{re}{:<width$}", format!("{sign}{digits}j"))
}

/// `str` of a single value: as short as it can be without loss, and unmistakably a float or not.
fn scalar(elem: Elem) -> String {
    if let Some((re, im)) = elem.parts() {
        return with_unit(&scalar(re), &scalar(im)).trim_end().to_string();
    }
    match elem {
        Elem::Bool(true) => return "True".to_string(),
        Elem::Bool(false) => return "False".to_string(),
        Elem::Int(v) => return v.to_string(),
        Elem::UInt(v) => return v.to_string(),
        Elem::F64(_) | Elem::F32(_) | Elem::F16(_) | Elem::BF16(_) | Elem::C64(..) | Elem::C128(..) => {}
    }
    let float = Float::from(elem);
    let size = float.value.abs();
    if !size.is_finite() {
        return float.special();
    }
    let decimal = float.shortest();
    let limit = if float.kind == ElemKind::F64 { 1e16 } else { float.kind.scientific_from() };
    if size == 0.0 || (1e-4..limit).contains(&size) {
        let (whole, fraction) = decimal.positional();
        format!("{}{whole}.{}", float.sign(), if fraction.is_empty() { "0" } else { &fraction })
    } else {
        let (first, rest) = decimal.digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        format!("{}{first}{point}{rest}e{}", float.sign(), exponent(decimal.exponent, 2))
    }
}

/// The floating types, whose digits and limits differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ElemKind {
    F64,
    F32,
    F16,
    BF16,
}

impl ElemKind {
    /// The nearest value of this type, ties to even.
    fn round(self, value: f64) -> f64 {
        match self {
            ElemKind::F64 => value,
            ElemKind::F32 => f64::from(value as f32),
            ElemKind::F16 => half::f16::from_f64(value).to_f64(),
            ElemKind::BF16 => half::bf16::from_f64(value).to_f64(),
        }
    }

    /// Arrays that reach this size are printed in scientific notation.
    fn scientific_from(self) -> f64 {
        match self {
            ElemKind::F64 => 1e8,
            ElemKind::F32 => 1e6,
            ElemKind::F16 | ElemKind::BF16 => 1e3,
        }
    }
}

/// A value that one of the floating types holds exactly.
#[derive(Clone, Copy)]
struct Float {
    value: f64,
    kind: ElemKind,
}

impl From<Elem> for Float {
    fn from(elem: Elem) -> Self {
        let (value, kind) = match elem {
            Elem::F64(v) => (v, ElemKind::F64),
            Elem::F32(v) => (v.into(), ElemKind::F32),
            Elem::F16(v) => (v.into(), ElemKind::F16),
            Elem::BF16(v) => (v.into(), ElemKind::BF16),
            Elem::Int(v) => (v as f64, ElemKind::F64),
            Elem::UInt(v) => (v as f64, ElemKind::F64),
            Elem::Bool(v) => (v.into(), ElemKind::F64),
            Elem::C64(v, _) => (v.into(), ElemKind::F32),
            Elem::C128(v, _) => (v, ElemKind::F64),
        };
        Float { value, kind }
    }
}

impl Float {
    fn sign(self) -> &'static str {
        if self.value.is_sign_negative() && !self.value.is_nan() { "-" } else { "" }
    }

    /// The text of a value that is not finite.
    fn special(self) -> String {
        format!("{}{}", self.sign(), if self.value.is_nan() { "nan" } else { "inf" })
    }

    /// The shortest digits that read back as this value in its own type; of several, the nearest.
    fn shortest(self) -> Decimal {
        let size = self.value.abs();
        let nearest = |places: usize| format!("{size:.places$e}");
        let reads_back = |text: &String| match self.kind {
            ElemKind::F32 => text.parse().is_ok_and(|read: f32| f64::from(read) == size),
            kind => text.parse().is_ok_and(|read| kind.round(read) == size),
        };
        let text = match self.kind {
            ElemKind::F64 | ElemKind::F32 => {
                // The standard library rounds a tie upwards, and NumPy to even: the nearest
                // digits of the same length are taken if they read back.
                let single = self.kind == ElemKind::F32;
                let found = if single { format!("{:e}", size as f32) } else { format!("{size:e}") };
                let places = Decimal::parse(&found).digits.len() - 1;
                Some(nearest(places)).filter(reads_back).unwrap_or(found)
            }
            // The interval that reads back as a power of two is wider above it than below: digits
            // above may read back when the nearest, below, do not. Five digits always do.
            ElemKind::F16 | ElemKind::BF16 => (0..4)
                .flat_map(|places| [nearest(places), next_above(&nearest(places), places)])
                .find(reads_back)
                .unwrap_or_else(|| nearest(4)),
        };
        Decimal::parse(&text)
    }

    /// `d.ddde±xx` split at the point and the `e`: the fraction has no trailing zeros unless
    /// `places` asks for an exact number of digits.
    fn scientific(self, places: Option<usize>) -> (String, String, i32) {
        let size = self.value.abs();
        let mut decimal = self.shortest();
        let wanted = places.unwrap_or(PRECISION);
        let (found, limit) = (decimal.digits.len(), 1 + wanted);
        if found > limit || (places.is_some() && found < limit) {
            // Rounded or extended from the value and not from its shortest digits, as NumPy does:
            // an f16 0.1 next to a value of four digits is 9.998e-02.
            decimal = Decimal::parse(&format!("{size:.wanted$e}"));
        }
        let fraction = &decimal.digits[1..];
        let fraction = if places.is_some() { fraction } else { fraction.trim_end_matches('0') };
        (format!("{}{}", self.sign(), &decimal.digits[..1]), fraction.to_string(), decimal.exponent)
    }

    /// The digits before and after the point, the latter without trailing zeros.
    fn positional(self) -> (String, String) {
        let (mut whole, mut fraction) = self.shortest().positional();
        if fraction.len() > PRECISION {
            let text = format!("{:.PRECISION$}", self.value.abs());
            let (before, after) = text.split_once('.').unwrap_or((&text, ""));
            whole = before.to_string();
            fraction = after.trim_end_matches('0').to_string();
        }
        (format!("{}{whole}", self.sign()), fraction)
    }
}

/// `d.ddd × 10^exponent`, the digits without their point.
struct Decimal {
    digits: String,
    exponent: i32,
}

impl Decimal {
    /// Reads what `{:e}` writes.
    fn parse(text: &str) -> Self {
        let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
        Decimal { digits: digits.replace('.', ""), exponent: exponent.parse().unwrap_or(0) }
    }

    fn positional(&self) -> (String, String) {
        let Ok(exponent) = usize::try_from(self.exponent) else {
            let zeros = "0".repeat(self.exponent.unsigned_abs() as usize - 1);
            return ("0".to_string(), format!("{zeros}{}", self.digits));
        };
        let padded = format!("{:0<1$}", self.digits, exponent + 1);
        let (whole, fraction) = padded.split_at(exponent + 1);
        (whole.to_string(), fraction.trim_end_matches('0').to_string())
    }
}

/// The text `{:e}` with one more unit in its last place, of which there are at most four.
fn next_above(text: &str, places: usize) -> String {
    let decimal = Decimal::parse(text);
    let unit = format!("1e{}", decimal.exponent - places as i32);
    let sum = text.parse().unwrap_or(0.0) + unit.parse().unwrap_or(0.0);
    format!("{sum:.places$e}")
}

/// An exponent with its sign and at least `width` digits.
fn exponent(value: i32, width: usize) -> String {
    format!("{}{:02$}", if value < 0 { '-' } else { '+' }, value.unsigned_abs(), width)
}

/// Whether a single notation without exponents would be too long or lose too much.
fn is_scientific(floats: &[Float]) -> bool {
    let sizes = floats.iter().map(|f| f.value.abs()).filter(|&size| size.is_finite() && size > 0.0);
    let (min, max) = sizes.fold((f64::INFINITY, 0.0), |(min, max), s| (s.min(min), s.max(max)));
    let Some(kind) = floats.first().map(|f| f.kind).filter(|_| max > 0.0) else {
        return false;
    };
    // NumPy compares in the arrays' own type, in which 0.0001 and the ratio are rounded.
    max >= kind.scientific_from() || min < kind.round(1e-4) || kind.round(max / min) > 1000.0
}

/// A finite value as text, cut in two at its point; the exponent belongs to the second part.
type Parts = (String, String);

fn float_words(floats: &[Float]) -> Vec<String> {
    let finite = || floats.iter().filter(|f| f.value.is_finite());
    let scientific = is_scientific(floats);
    let split: Box<dyn Fn(&Float) -> Parts> = if scientific {
        let firsts: Vec<_> = finite().map(|f| f.scientific(None)).collect();
        let places = firsts.iter().map(|(_, fraction, _)| fraction.len()).max().unwrap_or(0);
        let exp_digits = firsts.iter().map(|&(.., exp)| exponent(exp, 2).len() - 1).max().unwrap_or(2);
        Box::new(move |f| {
            let (whole, fraction, exp) = f.scientific(Some(places));
            (whole, format!("{fraction}e{}", exponent(exp, exp_digits)))
        })
    } else {
        Box::new(|f| f.positional())
    };
    let parts: Vec<Option<Parts>> = floats.iter().map(|f| f.value.is_finite().then(|| split(f))).collect();
    let widest = |part: fn(&Parts) -> usize| parts.iter().flatten().map(part).max().unwrap_or(0);
    let right = widest(|(_, fraction)| fraction.len());
    // Room for `nan` and `inf` is taken to the left of the point.
    let special = floats.iter().filter(|f| !f.value.is_finite()).map(|f| f.special().len()).max();
    let left = widest(|(whole, _)| whole.len()).max(special.unwrap_or(0).saturating_sub(right + 1));
    let word = |(float, part): (&Float, &Option<Parts>)| match part {
        Some((whole, fraction)) => format!("{whole:>left$}.{fraction:<right$}"),
        None => format!("{:>1$}", float.special(), left + 1 + right),
    };
    floats.iter().zip(&parts).map(word).collect()
}

/// Floats with `digits` digits after the point, as for `{:.2}`.
fn fixed_words(floats: &[Float], digits: usize) -> Vec<String> {
    let plain = floats.iter().map(|f| if f.value.is_finite() { format!("{:.digits$}", f.value) } else { f.special() });
    let plain: Vec<String> = plain.collect();
    let width = plain.iter().map(String::len).max().unwrap_or(0);
    plain.iter().map(|word| format!("{word:>width$}")).collect()
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
#[path = "print_tests.rs"]
mod tests;
