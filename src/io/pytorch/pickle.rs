//! A reader of pickles: a stack machine that makes plain values and runs no code.
//!
//! A pickle is a program, and Python's reader calls every function that it names. This one knows a dozen names, each of which
//! only describes a tensor, a size or a dictionary; any other name is an error. All objects lie in one list and refer to each
//! other by index, so that the memory of a pickle with shared objects is bounded by its number of instructions.
#![forbid(unsafe_code)]

use crate::DType;
use crate::io::load_options::printable;
use std::collections::HashMap;

/// A value on the stack. Containers are indices into the list of [`Object`]s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Object(usize),
}

#[derive(Debug)]
pub(super) enum Object {
    Text(String),
    /// An integer of more than 64 bits.
    Large(Box<i128>),
    Bytes,
    Tuple(Vec<Item>),
    List(Vec<Item>),
    Dict(Vec<(Item, Item)>),
    Global(Global),
    Storage(Storage),
    Tensor(TensorSpec),
}

/// The names that a pickle may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    OrderedDict,
    Set,
    Encode,
    Size,
    Device,
    DType(DType),
    Storage(DType),
    /// A storage whose elements are given by its tensors.
    UntypedStorage,
    TensorV2,
    TensorV3,
    Parameter,
    ParameterWithState,
    /// A tensor with attributes, which wraps another function.
    FromType,
    /// The type of such a tensor.
    TensorType,
}

/// A storage in the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    /// The index of a text.
    key: usize,
    /// The dtype of its elements, for typed storages.
    dtype: Option<DType>,
}

/// The description of a tensor as elements of a storage. Names and sizes stay in separate objects, so that thousands of
/// tensors can share them.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorSpec {
    storage: Storage,
    pub dtype: DType,
    pub offset: usize,
    /// The indices of tuples.
    size: usize,
    stride: usize,
}

/// The objects of a pickle, and its result.
#[derive(Debug)]
pub(super) struct Pickle {
    pub objects: Vec<Object>,
    pub root: Item,
}

impl Pickle {
    /// Runs a pickle.
    pub fn read(bytes: &[u8]) -> Result<Pickle, String> {
        let mut machine =
            Machine { rest: bytes, objects: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
        let root = machine.run()?;
        Ok(Pickle { objects: machine.objects, root })
    }

    pub fn object(&self, item: Item) -> Option<&Object> {
        get(&self.objects, item)
    }

    /// The name of the file in the archive with the bytes of a tensor.
    pub fn key(&self, spec: &TensorSpec) -> Result<&str, String> {
        text_of(&self.objects, Item::Object(spec.storage.key))
    }

    /// Shape and strides of a tensor.
    pub fn layout(&self, spec: &TensorSpec) -> Result<(Vec<usize>, Vec<usize>), String> {
        let (shape, strides) = (self.sizes(spec.size)?, self.sizes(spec.stride)?);
        if shape.len() != strides.len() {
            return Err(format!(
                "tensor must have as many sizes as strides, got {} sizes and {} strides",
                shape.len(),
                strides.len()
            ));
        }
        Ok((shape, strides))
    }

    fn sizes(&self, at: usize) -> Result<Vec<usize>, String> {
        sizes_of(&self.objects, Item::Object(at))
    }
}

fn get(objects: &[Object], item: Item) -> Option<&Object> {
    match item {
        Item::Object(at) => objects.get(at),
        _ => None,
    }
}

/// The index of an object.
fn number_of(item: Item) -> Result<usize, String> {
    match item {
        Item::Object(at) => Ok(at),
        _ => Err("expected text or sizes, got a plain value".to_string()),
    }
}

fn text_of(objects: &[Object], item: Item) -> Result<&str, String> {
    match get(objects, item) {
        Some(Object::Text(text)) => Ok(text),
        _ => Err("expected text, got another value".to_string()),
    }
}

fn sizes_of(objects: &[Object], item: Item) -> Result<Vec<usize>, String> {
    // PyTorch's limit of dimensions.
    const MOST: usize = 64;
    let size = |item: &Item| match item {
        Item::Int(size) => usize::try_from(*size).map_err(|_| format!("size must not be negative, got {size}")),
        _ => Err("expected a size, got another value".to_string()),
    };
    match get(objects, item) {
        Some(Object::Tuple(items)) if items.len() <= MOST => items.iter().map(size).collect(),
        Some(Object::Tuple(items)) => Err(format!("tensor must have at most {MOST} dimensions, got {}", items.len())),
        _ => Err("expected a tuple of sizes, got another value".to_string()),
    }
}

struct Machine<'b> {
    rest: &'b [u8],
    objects: Vec<Object>,
    stack: Vec<Item>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, Item>,
}

type Step<T> = Result<T, String>;

impl Machine<'_> {
    fn run(&mut self) -> Step<Item> {
        loop {
            let code = self.byte()?;
            if code == b'.' {
                return self.pop();
            }
            self.step(code)?;
            if self.objects.len() >= MOST_OBJECTS || self.stack.len() >= MOST_OBJECTS {
                return Err(format!("pickle must have fewer than {MOST_OBJECTS} objects"));
            }
        }
    }

    fn step(&mut self, code: u8) -> Step<()> {
        match code {
            // PROTO and FRAME have no effect.
            0x80 => match self.byte()? {
                0..=5 => {}
                version => return Err(format!("pickle protocol must be 0 to 5, got {version}")),
            },
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.above_mark()?),
            b'N' => self.stack.push(Item::None),
            0x88 => self.stack.push(Item::Bool(true)),
            0x89 => self.stack.push(Item::Bool(false)),
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.stack.push(Item::Int(value.into()));
            }
            b'K' => {
                let value = self.byte()?;
                self.stack.push(Item::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.stack.push(Item::Int(value.into()));
            }
            0x8a => {
                let count = self.byte()?.into();
                self.long(count)?;
            }
            b'G' => {
                let value = f64::from_be_bytes(self.array()?);
                self.stack.push(Item::Float(value));
            }
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
            0x8d => self.text(8)?,
            b'U' | b'C' => self.bytes(1)?,
            b'T' | b'B' => self.bytes(4)?,
            0x8e => self.bytes(8)?,
            b')' => self.make(Object::Tuple(Vec::new())),
            b']' => self.make(Object::List(Vec::new())),
            b'}' => self.make(Object::Dict(Vec::new())),
            // A set is read as a list.
            0x8f => self.make(Object::List(Vec::new())),
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub((code - 0x84).into()).ok_or(EMPTY)?;
                self.check_mark(from)?;
                let items = self.stack.split_off(from);
                self.make(Object::Tuple(items));
            }
            b't' => {
                let items = self.above_mark()?;
                self.make(Object::Tuple(items));
            }
            b'l' => {
                let items = self.above_mark()?;
                self.make(Object::List(items));
            }
            b'd' => {
                let items = self.above_mark()?;
                self.make(Object::Dict(Vec::new()));
                self.set_items(&items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.above_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let items = self.above_mark()?;
                self.set_items(&items)?;
            }
            b'q' => {
                let at = self.byte()?.into();
                self.remember(at)?;
            }
            b'r' => {
                let at = u32::from_le_bytes(self.array()?);
                self.remember(at)?;
            }
            0x94 => self.remember(self.memo.len() as u32)?,
            b'h' => {
                let at = self.byte()?.into();
                self.recall(at)?;
            }
            b'j' => {
                let at = u32::from_le_bytes(self.array()?);
                self.recall(at)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (module, name) = (self.text_of(module)?.to_string(), self.text_of(name)?.to_string());
                self.global(&module, &name)?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(id)?;
                self.make(Object::Storage(storage));
            }
            // REDUCE and NEWOBJ: a call.
            b'R' | 0x81 => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.call(function, arguments)?;
            }
            // BUILD: attributes of the object on the stack, such as a dictionary's `_metadata`. They are ignored.
            b'b' => {
                self.pop()?;
                match self.top_object()? {
                    Object::Dict(_) | Object::Tensor(_) => {}
                    _ => return Err("attributes must be of a dictionary or a tensor".to_string()),
                }
            }
            other => return Err(format!("pickle instruction {other:#04x} is not supported")),
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Step<&[u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(format!("pickle ends too early: {count} bytes should follow"));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Step<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a length of `width` bytes, and that many bytes.
    fn counted(&mut self, width: usize) -> Step<&[u8]> {
        let mut length = [0; 8];
        length[..width].copy_from_slice(self.take(width)?);
        let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| "length must fit in usize")?;
        self.take(length)
    }

    fn text(&mut self, width: usize) -> Step<()> {
        let text = std::str::from_utf8(self.counted(width)?).map_err(|_| "text must be UTF-8")?.to_string();
        self.make(Object::Text(text));
        Ok(())
    }

    fn bytes(&mut self, width: usize) -> Step<()> {
        self.counted(width)?;
        self.make(Object::Bytes);
        Ok(())
    }

    fn line(&mut self) -> Step<String> {
        let end = self.rest.iter().position(|byte| *byte == b'\n').ok_or("name must end with a line break")?;
        let line = std::str::from_utf8(&self.rest[..end]).map_err(|_| "name must be UTF-8")?.to_string();
        self.rest = &self.rest[end + 1..];
        Ok(line)
    }

    /// An integer of `count` bytes.
    fn long(&mut self, count: usize) -> Step<()> {
        let bytes = self.take(count)?;
        if count > 16 {
            return Err(format!("integer must have at most 16 bytes, got {count}"));
        }
        let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut value = [if negative { 0xff } else { 0 }; 16];
        value[..count].copy_from_slice(bytes);
        let value = i128::from_le_bytes(value);
        match i64::try_from(value) {
            Ok(value) => self.stack.push(Item::Int(value)),
            Err(_) => self.make(Object::Large(Box::new(value))),
        }
        Ok(())
    }

    fn make(&mut self, object: Object) {
        self.stack.push(Item::Object(self.objects.len()));
        self.objects.push(object);
    }

    fn check_mark(&self, height: usize) -> Step<()> {
        if self.marks.last().is_some_and(|mark| *mark > height) { Err(EMPTY.to_string()) } else { Ok(()) }
    }

    fn pop(&mut self) -> Step<Item> {
        self.check_mark(self.stack.len().saturating_sub(1))?;
        self.stack.pop().ok_or_else(|| EMPTY.to_string())
    }

    fn above_mark(&mut self) -> Step<Vec<Item>> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn top_object(&mut self) -> Step<&mut Object> {
        match self.stack.last() {
            Some(Item::Object(at)) => self.objects.get_mut(*at).ok_or_else(|| EMPTY.to_string()),
            _ => Err("expected a container on the stack, got a plain value".to_string()),
        }
    }

    fn append(&mut self, items: &[Item]) -> Step<()> {
        match self.top_object()? {
            Object::List(list) => list.extend(items),
            _ => return Err("items must be appended to a list".to_string()),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Item]) -> Step<()> {
        if !items.len().is_multiple_of(2) {
            return Err("a key without a value".to_string());
        }
        match self.top_object()? {
            Object::Dict(dict) => dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            _ => return Err("keys must be set in a dictionary".to_string()),
        }
        Ok(())
    }

    fn remember(&mut self, at: u32) -> Step<()> {
        let item = *self.stack.last().ok_or(EMPTY)?;
        self.memo.insert(at, item);
        Ok(())
    }

    fn recall(&mut self, at: u32) -> Step<()> {
        let item = *self.memo.get(&at).ok_or_else(|| format!("memo has no entry {at}"))?;
        self.stack.push(item);
        Ok(())
    }

    fn get(&self, item: Item) -> Option<&Object> {
        get(&self.objects, item)
    }

    fn text_of(&self, item: Item) -> Step<&str> {
        text_of(&self.objects, item)
    }

    fn tuple_of(&self, item: Item) -> Step<&[Item]> {
        match self.get(item) {
            Some(Object::Tuple(items)) => Ok(items),
            _ => Err("expected a tuple, got another value".to_string()),
        }
    }

    fn global(&mut self, module: &str, name: &str) -> Step<()> {
        match known(module, name) {
            Some(global) => {
                self.make(Object::Global(global));
                Ok(())
            }
            None => Err(format!(
                "{}.{} is not supported: only tensors, containers and plain values are loaded",
                printable(module),
                printable(name)
            )),
        }
    }

    /// `('storage', type, key, device, count)`.
    fn storage(&self, id: Item) -> Step<Storage> {
        let [kind, storage, key, _device, _count] = *self.tuple_of(id)? else {
            return Err("storage must be described by 5 items".to_string());
        };
        if self.text_of(kind)? != "storage" {
            return Err("persistent id must be a storage".to_string());
        }
        let dtype = match self.get(storage) {
            Some(Object::Global(Global::Storage(dtype))) => Some(*dtype),
            Some(Object::Global(Global::UntypedStorage)) => None,
            _ => return Err("storage must have a type".to_string()),
        };
        self.text_of(key)?;
        Ok(Storage { key: number_of(key)?, dtype })
    }

    fn call(&mut self, function: Item, arguments: Item) -> Step<()> {
        let Some(&Object::Global(global)) = self.get(function) else {
            return Err("expected a function to call, got another value".to_string());
        };
        let items = self.tuple_of(arguments)?.to_vec();
        let (global, items) = match (global, &items[..]) {
            (Global::FromType, [function, class, arguments, _attributes]) => {
                match (self.get(*function), self.get(*class)) {
                    (Some(&Object::Global(made_by)), Some(Object::Global(Global::TensorType))) => {
                        (made_by, self.tuple_of(*arguments)?.to_vec())
                    }
                    _ => return Err("tensor type is not supported".to_string()),
                }
            }
            _ => (global, items),
        };
        match (global, &items[..]) {
            (Global::OrderedDict, []) => self.make(Object::Dict(Vec::new())),
            (Global::Set | Global::Size, [one]) => match self.get(*one) {
                Some(Object::List(_) | Object::Tuple(_)) => self.stack.push(*one),
                _ => return Err("torch.Size and set must be made of a list or a tuple".to_string()),
            },
            (Global::Size, []) => self.make(Object::Tuple(Vec::new())),
            (Global::Device, [name, ..]) => self.stack.push(*name),
            (Global::Encode, _) => self.make(Object::Bytes),
            (Global::TensorV2, [storage, offset, size, stride, _, _, more @ ..]) => {
                let metadata = more.first().copied().unwrap_or(Item::None);
                self.tensor([*storage, *offset, *size, *stride], None, metadata)?;
            }
            (Global::TensorV3, [storage, offset, size, stride, _, _, dtype, more @ ..]) => {
                let Some(Object::Global(Global::DType(dtype))) = self.get(*dtype) else {
                    return Err("tensor must have a dtype".to_string());
                };
                let (dtype, metadata) = (*dtype, more.first().copied().unwrap_or(Item::None));
                self.tensor([*storage, *offset, *size, *stride], Some(dtype), metadata)?;
            }
            (Global::Parameter | Global::ParameterWithState, [tensor, ..]) => match self.get(*tensor) {
                Some(Object::Tensor(_)) => self.stack.push(*tensor),
                _ => return Err("parameter must be a tensor".to_string()),
            },
            _ => return Err(format!("call of {global:?} with {} arguments is not supported", items.len())),
        }
        Ok(())
    }

    fn tensor(&mut self, parts: [Item; 4], dtype: Option<DType>, metadata: Item) -> Step<()> {
        let [storage, offset, size, stride] = parts;
        let Some(Object::Storage(storage)) = self.get(storage) else {
            return Err("tensor must have a storage".to_string());
        };
        // Marks such as `conj` change the values.
        match (metadata, self.get(metadata)) {
            (Item::None, _) => {}
            (_, Some(Object::Dict(marks))) if marks.iter().all(|(_, mark)| *mark == Item::Bool(false)) => {}
            _ => return Err("tensors marked conj or neg are not supported: resolve them before saving".to_string()),
        }
        let Some(dtype) = dtype.or(storage.dtype) else {
            return Err("tensor must have a dtype".to_string());
        };
        let offset = match offset {
            Item::Int(offset) => {
                usize::try_from(offset).map_err(|_| format!("offset must not be negative, got {offset}"))?
            }
            _ => return Err("tensor must have an offset".to_string()),
        };
        let (storage, size, stride) = (*storage, number_of(size)?, number_of(stride)?);
        self.make(Object::Tensor(TensorSpec { storage, dtype, offset, size, stride }));
        Ok(())
    }
}

/// The limit of objects, far more than any model has. An object takes at most 64 bytes.
const MOST_OBJECTS: usize = 1 << 21;

const EMPTY: &str = "the stack is empty";

fn known(module: &str, name: &str) -> Option<Global> {
    Some(match (module, name) {
        ("collections", "OrderedDict") => Global::OrderedDict,
        ("__builtin__" | "builtins", "set" | "frozenset") => Global::Set,
        ("_codecs", "encode") => Global::Encode,
        ("torch", "Size") => Global::Size,
        ("torch", "device") => Global::Device,
        ("torch._utils", "_rebuild_tensor_v2") => Global::TensorV2,
        ("torch._utils", "_rebuild_tensor_v3") => Global::TensorV3,
        ("torch._utils", "_rebuild_parameter") => Global::Parameter,
        ("torch._utils", "_rebuild_parameter_with_state") => Global::ParameterWithState,
        ("torch._tensor", "_rebuild_from_type_v2") => Global::FromType,
        ("torch", "Tensor") | ("torch.nn.parameter", "Parameter") => Global::TensorType,
        ("torch" | "torch.storage", "UntypedStorage") => Global::UntypedStorage,
        ("torch", name) => {
            let known = DTYPES.iter().find(|(_, dtype, storage)| *dtype == name || *storage == Some(name));
            known.map(|(own, dtype, _)| if *dtype == name { Global::DType(*own) } else { Global::Storage(*own) })?
        }
        _ => return None,
    })
}

/// The dtypes with PyTorch's names of them and of their storages.
pub(super) const DTYPES: [(DType, &str, Option<&str>); 15] = [
    (DType::Bool, "bool", Some("BoolStorage")),
    (DType::U8, "uint8", Some("ByteStorage")),
    (DType::U16, "uint16", None),
    (DType::U32, "uint32", None),
    (DType::U64, "uint64", None),
    (DType::I8, "int8", Some("CharStorage")),
    (DType::I16, "int16", Some("ShortStorage")),
    (DType::I32, "int32", Some("IntStorage")),
    (DType::I64, "int64", Some("LongStorage")),
    (DType::F16, "float16", Some("HalfStorage")),
    (DType::BF16, "bfloat16", Some("BFloat16Storage")),
    (DType::F32, "float32", Some("FloatStorage")),
    (DType::F64, "float64", Some("DoubleStorage")),
    (DType::C64, "complex64", Some("ComplexFloatStorage")),
    (DType::C128, "complex128", Some("ComplexDoubleStorage")),
];
