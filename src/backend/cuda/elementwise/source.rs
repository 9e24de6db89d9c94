//! The source of a kernel for a chain of elementwise operations.
//!
//! It depends on dtypes, ranks and formulas, but not on sizes, addresses or parameters, so that a program needs few different
//! kernels.

use crate::DType;
use crate::backend::spec::{Formula, Inst, Meaning, Sym};
use smallvec::SmallVec;
use std::fmt::Write;

/// An array that is read or written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Array {
    pub dtype: DType,
    /// The number of dimensions of its walk; `None` if it is contiguous.
    pub rank: Option<usize>,
    /// Whether the elements of each pack are contiguous although the array is not.
    pub packed: bool,
}

/// An operand of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// An element of the array with this index.
    Element(usize),
    /// The result of an earlier line.
    Result(usize),
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Input::Element(k) => write!(f, "x{k}"),
            Input::Result(k) => write!(f, "r{k}"),
        }
    }
}

/// One operation of the kernel.
pub(crate) struct Line {
    pub what: Compute,
    /// The dtype that the result is rounded to.
    pub dtype: DType,
}

/// What a line computes.
pub(crate) enum Compute {
    /// A formula of these inputs; its parameters are those of the kernel from index `first_param` on.
    Formula { formula: &'static Formula, inputs: SmallVec<[Input; 4]>, first_param: usize },
    /// A parameter of the kernel.
    Param(usize),
}

/// Appends statements that compute the steps to `text`, with names that begin with `prefix`, and returns the name or constant
/// of each step. Each step is a separate statement, so that a step used twice is computed once.
pub(crate) fn statements(
    steps: &[Inst],
    prefix: &str,
    input: &dyn Fn(usize) -> String,
    param: &dyn Fn(usize) -> String,
    text: &mut String,
) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let name = match *step {
            Inst::Input(k) => input(k),
            Inst::Param(k) => param(k),
            Inst::Const(value) => constant(value),
            Inst::Call(function, args) => {
                let args: Vec<String> = args[..function.arity].iter().map(|&arg| names[arg].clone()).collect();
                match &function.meaning {
                    Meaning::Basic { cuda, .. } => {
                        let call = args
                            .iter()
                            .enumerate()
                            .fold(cuda.to_string(), |call, (k, arg)| call.replace(&format!("{{{k}}}"), arg));
                        // Writing to a string cannot fail.
                        let _ = writeln!(text, "      const T {prefix}{at} = {call};");
                        format!("{prefix}{at}")
                    }
                    Meaning::Fused(formula) => {
                        let inner = Sym::steps_of(function.arity, *formula);
                        let inner = statements(&inner, &format!("{prefix}{at}_"), &|k| args[k].clone(), param, text);
                        inner.last().cloned().unwrap_or_default()
                    }
                }
            }
        };
        names.push(name);
    }
    names
}

/// An exact literal of the compute dtype.
fn constant(value: f64) -> String {
    if value.is_finite() {
        return format!("T({value:?})");
    }
    match value {
        f64::INFINITY => "T(__longlong_as_double(0x7ff0000000000000ll))".to_string(),
        f64::NEG_INFINITY => "T(__longlong_as_double(0xfff0000000000000ull))".to_string(),
        _ => "T(__longlong_as_double(0x7ff8000000000000ll))".to_string(),
    }
}

/// A whole kernel.
pub(crate) struct Program {
    pub compute: DType,
    /// Whether positions need more than 32 bits.
    pub wide: bool,
    /// Elements per pack, which a thread processes at a time.
    pub pack: usize,
    pub reads: Vec<Array>,
    /// For each read the first one with the same walk, whose positions are computed once.
    pub walks: Vec<usize>,
    pub lines: Vec<Line>,
    /// The arrays that are written, and the lines whose results they get.
    pub writes: Vec<(Array, usize)>,
    /// The number of scalar parameters, which follow all other arguments.
    pub params: usize,
}

/// Calls of the functions in `special.cu`.
const SPECIAL: [&str; 6] = [" digamma(", " zeta(", " igamma(", " igammac(", " i0e(", " i1e("];

/// Calls of the functions in `bessel.cu`.
const BESSEL: [&str; 6] = [" bessel_k", " airy_ai", " chebyshev_", " hermite_h", " laguerre_l(", " legendre_p("];

/// The name of a dtype's elements in the source.
pub(crate) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "boolean",
        other => other.name(),
    }
}

/// The start of every source: the compute dtype, the type of positions, and the common prelude.
pub(crate) fn opening(compute: DType, wide: bool) -> String {
    let compute = match compute {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::U64 => "unsigned long long",
        _ => "long long",
    };
    let position = if wide { "unsigned long long" } else { "unsigned int" };
    format!("typedef {compute} T;\ntypedef {position} I;\n{}\n", include_str!("../runtime/prelude.cu"))
}

impl Program {
    /// A key that identifies this program within the process, shorter and faster to build than its source. Formulas live as
    /// long as the process, so that their addresses identify them.
    pub fn key(&self) -> String {
        let mut key = format!("{} {} {}", self.compute, self.wide, self.pack);
        let array = |key: &mut String, array: &Array| {
            let _ = write!(key, "|{} {:?} {}", array.dtype, array.rank, array.packed);
        };
        self.reads.iter().for_each(|read| array(&mut key, read));
        // Writing to a string cannot fail.
        let _ = write!(key, "|{:?}", self.walks);
        for Line { what, dtype } in &self.lines {
            // Writing to a string cannot fail.
            let _ = match what {
                Compute::Param(param) => write!(key, ";{dtype} c{param}"),
                Compute::Formula { formula, inputs, first_param } => {
                    write!(key, ";{dtype} {:p} {inputs:?} {first_param}", std::ptr::from_ref(*formula))
                }
            };
        }
        for (write, line) in &self.writes {
            array(&mut key, write);
            let _ = write!(key, " {line}");
        }
        key
    }

    /// The kernel, without the [`opening`].
    pub fn kernel(&self) -> String {
        let mut parameters = vec!["I n".to_string()];
        for (k, array) in self.reads.iter().enumerate() {
            array.parameters("p", "const ", k, &mut parameters);
        }
        for (k, (array, _)) in self.writes.iter().enumerate() {
            array.parameters("q", "", k, &mut parameters);
        }
        parameters.extend((0..self.params).map(|k| format!("const T c{k}")));
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.body(&mut text, &parameters.join(", "));
        if SPECIAL.iter().any(|name| text.contains(name)) {
            text.insert_str(0, include_str!("special.cu"));
        }
        if BESSEL.iter().any(|name| text.contains(name)) {
            text.insert_str(0, include_str!("bessel.cu"));
        }
        text
    }

    /// Appends the statements of line `k`, whose rounded value is the variable `r{k}`.
    fn line(&self, text: &mut String, k: usize, line: &Line) -> std::fmt::Result {
        let fast = self.compute == DType::F32 && matches!(line.dtype, DType::F16 | DType::BF16);
        writeln!(text, "      T r{k}; {{ {}", if fast { "FAST_MATH" } else { "" })?;
        let value = match &line.what {
            Compute::Param(param) => format!("c{param}"),
            Compute::Formula { formula, inputs, first_param } => {
                let input = |at: usize| inputs.get(at).map(ToString::to_string).unwrap_or_default();
                let param = |at: usize| format!("c{}", first_param + at);
                statements(&formula.steps, &format!("t{k}_"), &input, &param, text).pop().unwrap_or_default()
            }
        };
        writeln!(text, "      r{k} = {value}; }}")?;
        if line.dtype != self.compute {
            writeln!(
                text,
                "      {{ {} rounded; narrow(rounded, r{k}); r{k} = (T)widen(rounded); }}",
                name(line.dtype)
            )?;
        }
        Ok(())
    }

    fn body(&self, text: &mut String, parameters: &str) -> std::fmt::Result {
        let pack = self.pack;
        writeln!(text, "extern \"C\" __global__ void __launch_bounds__(256) chain({parameters}) {{")?;
        writeln!(text, "  const I step = (I)gridDim.x * blockDim.x * {pack};")?;
        writeln!(text, "  for (I i = ((I)blockIdx.x * blockDim.x + threadIdx.x) * {pack}; i < n; i += step) {{")?;
        writeln!(text, "    const bool whole_pack = n - i >= {pack};")?;
        for (k, array) in self.reads.iter().enumerate() {
            let ty = name(array.dtype);
            if array.packed {
                // The innermost size is a multiple of the pack, and so is the number of elements.
                let walk = self.walks[k];
                if walk == k {
                    writeln!(text, "    const i64 w{k} = position(i, s{k});")?;
                }
                writeln!(text, "    const Pack<{ty}, {pack}> a{k} = *(const Pack<{ty}, {pack}>*)(p{k} + w{walk});")?;
            } else if array.rank.is_none() {
                writeln!(text, "    Pack<{ty}, {pack}> a{k};")?;
                writeln!(text, "    if (whole_pack) a{k} = *(const Pack<{ty}, {pack}>*)(p{k} + i);")?;
                writeln!(text, "    else for (int j = 0; j < {pack}; ++j) if (i + j < n) a{k}.x[j] = p{k}[i + j];")?;
            }
        }
        for (k, (array, _)) in self.writes.iter().enumerate() {
            writeln!(text, "    Pack<{}, {pack}> b{k};", name(array.dtype))?;
        }
        writeln!(text, "#pragma unroll\n    for (int j = 0; j < {pack}; ++j) {{")?;
        writeln!(text, "      const I at = i + j < n ? i + j : n - 1;")?;
        for (k, array) in self.reads.iter().enumerate() {
            let walk = self.walks[k];
            let from = match array.rank {
                None => format!("a{k}.x[j]"),
                _ if array.packed => format!("a{k}.x[j]"),
                Some(0) => format!("p{k}[0]"),
                Some(_) => format!("p{k}[v{walk}]"),
            };
            if matches!(array.rank, Some(1..)) && !array.packed && walk == k {
                writeln!(text, "      const i64 v{k} = position(at, s{k});")?;
            }
            writeln!(text, "      const T x{k} = (T)widen({from});")?;
        }
        for (k, line) in self.lines.iter().enumerate() {
            self.line(text, k, line)?;
        }
        for (k, (_, line)) in self.writes.iter().enumerate() {
            writeln!(text, "      narrow(b{k}.x[j], r{line});")?;
        }
        writeln!(text, "    }}")?;
        for (k, (array, _)) in self.writes.iter().enumerate() {
            let ty = name(array.dtype);
            match array.rank {
                None => {
                    writeln!(text, "    if (whole_pack) *(Pack<{ty}, {pack}>*)(q{k} + i) = b{k};")?;
                    writeln!(
                        text,
                        "    else for (int j = 0; j < {pack}; ++j) if (i + j < n) q{k}[i + j] = b{k}.x[j];"
                    )?;
                }
                Some(_) if array.packed => {
                    writeln!(text, "    *(Pack<{ty}, {pack}>*)(q{k} + position(i, t{k})) = b{k};")?;
                }
                Some(_) => {
                    writeln!(text, "    for (int j = 0; j < {pack}; ++j)")?;
                    writeln!(text, "      if (i + j < n) q{k}[position((I)(i + j), t{k})] = b{k}.x[j];")?;
                }
            }
        }
        writeln!(text, "  }}\n}}")
    }
}

impl Array {
    fn parameters(&self, pointer: &str, qualifier: &str, k: usize, to: &mut Vec<String>) {
        to.push(format!("{qualifier}{}* {pointer}{k}", name(self.dtype)));
        if let Some(rank @ 1..) = self.rank {
            to.push(format!("const Steps<{rank}> {}{k}", if pointer == "p" { "s" } else { "t" }));
        }
    }
}
