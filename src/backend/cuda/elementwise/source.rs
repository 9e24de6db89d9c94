//! The source of a kernel for a chain of elementwise operations.
//!
//! It depends on dtypes, ranks and formulas but on no size and no address, so that a program meets few different ones.

use crate::DType;
use crate::backend::code::Code;
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

/// An element of the array that is read as number `k`.
pub(crate) fn element(k: usize) -> Code {
    Code::symbol(&format!("x{k}"))
}

/// The result of line `k`.
pub(crate) fn result(k: usize) -> Code {
    Code::symbol(&format!("r{k}"))
}

/// One operation.
pub(crate) struct Line {
    /// Of [elements](element), and [results](result) of earlier lines.
    pub code: Code,
    /// The result is rounded to this.
    pub dtype: DType,
}

/// A whole kernel.
pub(crate) struct Program {
    pub compute: DType,
    /// Whether positions need more than 32 bits.
    pub wide: bool,
    /// Elements that a thread takes at a time.
    pub pack: usize,
    pub reads: Vec<Array>,
    pub lines: Vec<Line>,
    /// What is written, with the lines that it comes from.
    pub writes: Vec<(Array, usize)>,
}

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
    /// The kernel alone, without the [`opening`], and the bits of the numbers it takes after all other arguments.
    pub fn kernel(&self) -> (String, Vec<u64>) {
        let mut numbers = Vec::new();
        let lines: Vec<String> = self.lines.iter().map(|line| line.code.text(&mut numbers)).collect();
        let mut parameters = vec!["I n".to_string()];
        for (k, array) in self.reads.iter().enumerate() {
            array.parameters("p", "const ", k, &mut parameters);
        }
        for (k, (array, _)) in self.writes.iter().enumerate() {
            array.parameters("q", "", k, &mut parameters);
        }
        parameters.extend((0..numbers.len()).map(|k| format!("const T c{k}")));
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.body(&mut text, &parameters.join(", "), &lines);
        (text, numbers)
    }

    fn body(&self, text: &mut String, parameters: &str, lines: &[String]) -> std::fmt::Result {
        let pack = self.pack;
        writeln!(text, "extern \"C\" __global__ void __launch_bounds__(256) chain({parameters}) {{")?;
        writeln!(text, "  const I step = (I)gridDim.x * blockDim.x * {pack};")?;
        writeln!(text, "  for (I i = ((I)blockIdx.x * blockDim.x + threadIdx.x) * {pack}; i < n; i += step) {{")?;
        writeln!(text, "    const bool whole_pack = n - i >= {pack};")?;
        for (k, array) in self.reads.iter().enumerate() {
            let ty = name(array.dtype);
            if array.packed {
                // The innermost dimension is a multiple of the pack, and so is all of it.
                writeln!(
                    text,
                    "    const Pack<{ty}, {pack}> a{k} = *(const Pack<{ty}, {pack}>*)(p{k} + place(i, s{k}));"
                )?;
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
            let from = match array.rank {
                None => format!("a{k}.x[j]"),
                _ if array.packed => format!("a{k}.x[j]"),
                Some(0) => format!("p{k}[0]"),
                Some(_) => format!("p{k}[place(at, s{k})]"),
            };
            writeln!(text, "      const T x{k} = (T)widen({from});")?;
        }
        for (k, (line, code)) in self.lines.iter().zip(lines).enumerate() {
            if self.compute == DType::F32 && matches!(line.dtype, DType::F16 | DType::BF16) {
                writeln!(text, "      T r{k}; {{ QUICK r{k} = {code}; }}")?;
            } else {
                writeln!(text, "      T r{k} = {code};")?;
            }
            if line.dtype != self.compute {
                writeln!(
                    text,
                    "      {{ {} rounded; narrow(rounded, r{k}); r{k} = (T)widen(rounded); }}",
                    name(line.dtype)
                )?;
            }
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
