//! The source of a kernel for a chain of elementwise operations.
//!
//! It depends on dtypes, ranks and formulas but on no size, no address and no parameter, so that a program meets few
//! different ones.

use crate::DType;
use crate::backend::spec::{Formula, Inst, Meaning, Sym};
use smallvec::SmallVec;
use std::fmt::Write;

/// Elements that are read or written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Array {
    pub dtype: DType,
    /// The number of dimensions it is walked by; `None` where the elements lie in order.
    pub rank: Option<usize>,
    /// Whether the elements of a pack lie in order all the same.
    pub packed: bool,
}

/// What a line reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// An element of the array of this number.
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

/// One operation.
pub(crate) struct Line {
    pub what: Compute,
    /// The result is rounded to this.
    pub dtype: DType,
}

/// What a line computes.
pub(crate) enum Compute {
    /// A formula of these inputs; its parameters are those of the kernel from this number on.
    Formula { formula: &'static Formula, inputs: SmallVec<[Input; 4]>, first_param: usize },
    /// A parameter of the kernel.
    Param(usize),
}

/// Statements that compute the steps, under names that begin with `prefix`, and the names or constants that the steps are.
/// Each step is a statement of its own: used twice, it is computed once.
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

/// A number of the compute dtype, exactly.
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
    /// Elements that a thread takes at a time.
    pub pack: usize,
    pub reads: Vec<Array>,
    /// For each of these the first that is walked by the same steps: its places are computed once.
    pub walks: Vec<usize>,
    pub lines: Vec<Line>,
    /// What is written, with the lines that it comes from.
    pub writes: Vec<(Array, usize)>,
    /// How many numbers it takes after all other arguments.
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

/// What every source begins with: the compute dtype, the type of positions, and what is common to all.
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
    /// What tells this program from all others in this process: shorter than its text, and quicker made. Formulas live as
    /// long as the process, so that their addresses stand for them.
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

    /// The kernel alone, without the [`opening`].
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

    /// The value of a line, before it is rounded, as the variable `r`.
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
                // The innermost dimension is a multiple of the pack, and so is all of it.
                let walk = self.walks[k];
                if walk == k {
                    writeln!(text, "    const i64 w{k} = place(i, s{k});")?;
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
                writeln!(text, "      const i64 v{k} = place(at, s{k});")?;
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
                    writeln!(text, "    *(Pack<{ty}, {pack}>*)(q{k} + place(i, t{k})) = b{k};")?;
                }
                Some(_) => {
                    writeln!(text, "    for (int j = 0; j < {pack}; ++j)")?;
                    writeln!(text, "      if (i + j < n) q{k}[place((I)(i + j), t{k})] = b{k}.x[j];")?;
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
