//! Properties of operations for Python: in-place forms, signatures and documentation.

use cotangent::Scalar;
use cotangent::ops::{self, Arg, ArgKind, Op};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::LazyLock;

/// The properties of an operation for Python.
pub struct Entry {
    pub op: &'static Op,
    pub params: Vec<Param>,
    /// Whether a result may be a view of the first argument.
    pub shows: bool,
    /// Whether results are copies, even if the operation gives a view.
    pub copies: bool,
    /// Whether it is its own inverse on complex tensors, which makes its result a computed view.
    pub inverts: bool,
    /// Whether it may return the first argument, as the same object.
    pub returns: bool,
    /// For an entry of an alias, the alias.
    pub alias: Option<&'static str>,
    /// Whether it creates a tensor, and so takes `requires_grad`.
    pub makes: bool,
    /// The name of its in-place form, if it has one.
    pub in_place: Option<&'static str>,
    /// The named tuple of several results.
    pub class: PyOnceLock<Py<PyAny>>,
}

pub struct Param {
    pub name: &'static str,
    pub kind: ArgKind,
    pub default: Option<fn() -> Arg>,
    /// Whether its items may be separate arguments, as in `x.reshape(2, 3)`.
    pub spread: bool,
}

/// Operations that return their argument, or a view of it, if possible.
const SOMETIMES_VIEWS: &str =
    "reshape reshape_as flatten contiguous to_dtype to_device positive conj adjoint view_as_complex";

/// Operations that are views in the crate, and copies in PyTorch.
const COPIES: &str = "flip fliplr flipud rot90";

/// Operations that are their own inverses.
const INVERSES: &str = "conj adjoint";

/// Operations that return their argument if there is nothing to do.
const RETURNS: &str = "\
    contiguous positive conj real sum_to_size atleast_1d atleast_2d atleast_3d dropout dropout1d dropout2d dropout3d \
    alpha_dropout feature_dropout feature_alpha_dropout";

/// Alternative names of parameters.
const ALSO: &[(&str, &[&str])] = &[
    ("axis", &["dim", "dims"]),
    ("axes", &["dims", "dim"]),
    ("keepdims", &["keepdim"]),
    ("input", &["self"]),
    ("x", &["self"]),
    ("shape", &["size"]),
    ("size", &["shape"]),
    ("dims", &["dim", "size", "shape"]),
    ("dim", &["dims"]),
    ("k", &["diagonal"]),
    ("shift", &["shifts"]),
    ("stop", &["end"]),
    ("condition", &["self"]),
    ("sorted_sequence", &["self"]),
    ("axis0", &["dim0"]),
    ("axis1", &["dim1"]),
    ("split_size_or_sections", &["split_size", "split_sizes"]),
    ("LU_pivots", &["pivots"]),
    ("tensor", &["other", "self"]),
    // PyTorch's names of the first argument of some functions.
    ("A", &["self"]),
    ("B", &["self"]),
    ("L", &["self"]),
    ("LD", &["self"]),
    ("LU", &["self"]),
    ("LU_data", &["self"]),
    ("a", &["self"]),
    ("abs", &["self"]),
    ("anchor", &["self"]),
    ("b", &["self"]),
    ("elements", &["self"]),
    ("indices", &["self"]),
    ("input1", &["self"]),
    ("log_probs", &["self"]),
    ("logits", &["self"]),
    ("real", &["self"]),
    ("theta", &["self"]),
    ("x1", &["self"]),
    ("y", &["self"]),
];

/// Functions that match the array API standard, and are shown with its parameter names.
const STANDARD: &str = "\
    all any argmax argmin argsort count_nonzero fft fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn \
    linalg_cross linalg_vecdot linalg_vector_norm max mean min rfft rfftn roll stack std tril triu var \
    linalg_cholesky linalg_eigh linalg_svd linalg_qr matmul where clamp isin zeros ones full expand permute";

/// Whether a list of words contains a name.
fn is_in(list: &str, name: &str) -> bool {
    list.split(' ').any(|word| word == name)
}

/// The operations of the list in order, and then their aliases that promise a copy.
pub static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let copies = ops::list().iter().flat_map(|op| {
        let aliases = op.aliases.iter().copied().filter(|alias| is_copy(alias));
        aliases.map(|alias| Entry { copies: true, shows: false, inverts: false, alias: Some(alias), ..Entry::new(op) })
    });
    ops::list().iter().map(|op| Entry::new(op)).chain(copies).collect()
});

/// Whether an alias of an operation that may give a view promises a copy.
pub fn is_copy(alias: &str) -> bool {
    alias.ends_with("_copy") || alias == "conj_physical"
}

/// The operation at an index of the list.
#[inline]
pub fn entry(number: usize) -> &'static Entry {
    &ENTRIES[number]
}

impl Entry {
    fn new(op: &'static Op) -> Entry {
        let given: Vec<_> = op.params().collect();
        let takes_ints = |kind: ArgKind| {
            matches!(
                kind,
                ArgKind::Int
                    | ArgKind::Dim
                    | ArgKind::Dims
                    | ArgKind::Sizes
                    | ArgKind::Ints
                    | ArgKind::Scalar
                    | ArgKind::Float
                    | ArgKind::Floats
                    | ArgKind::Operand
            )
        };
        let params = given.iter().enumerate().map(|(at, param)| {
            let last_ints = !given[at + 1..].iter().any(|later| takes_ints(later.kind));
            let list = matches!(param.kind, ArgKind::Sizes | ArgKind::Ints | ArgKind::Dims) && param.default.is_none();
            let spread = (list && last_ints) || param.kind == ArgKind::Tensors;
            Param { name: param.name, kind: param.kind, default: param.default, spread }
        });
        let copies = is_in(COPIES, op.name);
        let shows = !copies && (op.view || is_in(SOMETIMES_VIEWS, op.name));
        let in_place = op.in_place.then(|| &*format!("{}_", op.name).leak());
        let named = |name: &str| given.iter().any(|param| param.name == name);
        let makes = named("dtype") && (!named("self") || op.name.ends_with("_like"));
        Entry {
            op,
            params: params.collect(),
            shows,
            copies,
            inverts: is_in(INVERSES, op.name),
            returns: is_in(RETURNS, op.name),
            alias: None,
            makes,
            in_place,
            class: PyOnceLock::new(),
        }
    }

    /// Whether it is a method of tensors.
    pub fn is_method(&self) -> bool {
        self.params.first().is_some_and(|param| param.name == "self")
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        let at = |name: &str| self.params.iter().position(|param| param.name == name);
        at(name).or_else(|| {
            let (_, others) = ALSO.iter().find(|(other, _)| *other == name)?;
            others.iter().find_map(|name| at(name))
        })
    }

    /// The signature in Python's syntax, of a method or of a function.
    pub fn signature(&self, method: bool) -> String {
        let standard = !method && is_in(STANDARD, self.op.name);
        let one = |param: &Param| {
            let name = match param.name {
                "dim" if standard && (self.op.name.ends_with("fftn") || self.op.name.contains("shift")) => "axes",
                "dim" if standard => "axis",
                "dims" if standard && (self.op.name == "permute" || self.op.name.contains("shift")) => "axes",
                "dims" if standard => "axis",
                "keepdim" if standard => "keepdims",
                "shifts" if standard => "shift",
                "diagonal" if standard => "k",
                "self" if method => "$self",
                "self" if self.op.name == "where" => "condition",
                "self" if self.op.name == "searchsorted" => "sorted_sequence",
                "size" if standard => "shape",
                "self" => "input",
                // Python keywords.
                "from" => "from_",
                "lambda" => "lambda_",
                name => name,
            };
            match param.default {
                None => name.to_string(),
                Some(default) => format!("{name}={}", python(&default())),
            }
        };
        let params: Vec<String> = self.params.iter().map(one).collect();
        format!("({})", params.join(", "))
    }

    pub fn docs(&self) -> String {
        docs(self.op.docs)
    }
}

/// A default in Python's syntax.
pub fn python(arg: &Arg) -> String {
    match arg {
        Arg::Scalar(Scalar::F64(x)) if x.is_infinite() => (if *x > 0.0 { "1e999" } else { "-1e999" }).to_string(),
        Arg::Tensor(_) | Arg::Tensors(_) | Arg::DType(_) | Arg::Device(_) => "None".to_string(),
        Arg::Ints(ints) => {
            let all: Vec<String> = ints.iter().map(ToString::to_string).collect();
            format!("({}{})", all.join(", "), if all.len() == 1 { "," } else { "" })
        }
        other => other.to_string(),
    }
}

/// The documentation without its Rust examples and the section on errors.
pub fn docs(text: &str) -> String {
    let mut lines = Vec::new();
    let mut code = false;
    for line in text.lines() {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if line.starts_with("# Errors") {
            break;
        } else if !code {
            lines.push(plain(line));
        }
    }
    let mut text = lines.join("\n");
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text.trim().to_string()
}

/// A line without link targets.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        let Some(end) = rest[at..].find(')') else { break };
        out += &rest[..at].replacen('[', "", 1);
        rest = &rest[at + end + 1..];
    }
    (out + rest).replace("[`", "`").replace("`]", "`")
}
