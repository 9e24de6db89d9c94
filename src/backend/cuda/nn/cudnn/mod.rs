//! cuDNN, where it is found: its functions, and the objects that it is told of problems with.
//!
//! Only its graph interface is used, of a few functions, which are looked up here by name: what the library answers are plain
//! numbers, and a newer one may have numbers that nobody knew when this was written.

pub(crate) mod convolution;

use crate::backend::cuda::runtime::gpu::{Gpu, MOST};
use crate::error::err;
use crate::{Error, Result};
use cudarc::cudnn::sys;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A library of the graph interface as it is used here.
const LEAST_VERSION: usize = 8900;

/// What the library answers: 0 where all went well.
type Status = c_int;
type Raw = *mut c_void;

/// The functions of the library.
struct Functions {
    create: unsafe extern "C" fn(*mut Raw) -> Status,
    set_stream: unsafe extern "C" fn(Raw, Raw) -> Status,
    describe_status: unsafe extern "C" fn(Status) -> *const c_char,
    /// More words about the last failure; older libraries have none.
    last_error: Option<unsafe extern "C" fn(*mut c_char, usize)>,
    create_descriptor: unsafe extern "C" fn(c_int, *mut Raw) -> Status,
    destroy_descriptor: unsafe extern "C" fn(Raw) -> Status,
    finalize: unsafe extern "C" fn(Raw) -> Status,
    set_attribute: unsafe extern "C" fn(Raw, c_int, c_int, i64, *const c_void) -> Status,
    get_attribute: unsafe extern "C" fn(Raw, c_int, c_int, i64, *mut i64, *mut c_void) -> Status,
    execute: unsafe extern "C" fn(Raw, Raw, Raw) -> Status,
}

impl Functions {
    /// The library's, or `None` where there is none that is new enough. `COTANGENT_CUDNN=0` leaves it out.
    fn get() -> Option<&'static Functions> {
        static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
        let find = || {
            let refused = std::env::var_os("COTANGENT_CUDNN").is_some_and(|value| value == "0");
            // SAFETY: only looks for the library.
            if refused || !unsafe { sys::is_culib_present() } { None } else { Functions::load() }
        };
        FOUND.get_or_init(find).as_ref()
    }

    fn load() -> Option<Functions> {
        // SAFETY: the library was found, and stays loaded; the functions have these types in all its versions.
        unsafe {
            let library = sys::culib();
            let version = library.get::<unsafe extern "C" fn() -> usize>(b"cudnnGetVersion\0").ok()?;
            if version() < LEAST_VERSION {
                return None;
            }
            Some(Functions {
                create: *library.get(b"cudnnCreate\0").ok()?,
                set_stream: *library.get(b"cudnnSetStream\0").ok()?,
                describe_status: *library.get(b"cudnnGetErrorString\0").ok()?,
                last_error: library.get(b"cudnnGetLastErrorString\0").ok().map(|function| *function),
                create_descriptor: *library.get(b"cudnnBackendCreateDescriptor\0").ok()?,
                destroy_descriptor: *library.get(b"cudnnBackendDestroyDescriptor\0").ok()?,
                finalize: *library.get(b"cudnnBackendFinalize\0").ok()?,
                set_attribute: *library.get(b"cudnnBackendSetAttribute\0").ok()?,
                get_attribute: *library.get(b"cudnnBackendGetAttribute\0").ok()?,
                execute: *library.get(b"cudnnBackendExecute\0").ok()?,
            })
        }
    }

    fn check(&self, doing: &'static str, status: Status) -> std::result::Result<(), Failure> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library answers with a text that it keeps.
        let mut message = unsafe { CStr::from_ptr((self.describe_status)(status)) }.to_string_lossy().into_owned();
        if let Some(last_error) = self.last_error {
            let mut more = [0_u8; 512];
            // SAFETY: there is room for as many bytes, and one more that stays 0.
            unsafe { last_error(more.as_mut_ptr().cast(), more.len() - 1) };
            if let Some(text) = CStr::from_bytes_until_nul(&more).ok().filter(|text| !text.is_empty()) {
                message = format!("{message}: {}", text.to_string_lossy());
            }
        }
        Err(Failure { doing, status, message })
    }
}

/// Why the library did not do something.
#[derive(Debug)]
struct Failure {
    doing: &'static str,
    status: Status,
    message: String,
}

impl Failure {
    /// Whether it is the problem that the library does not take, as opposed to something that has gone wrong.
    fn is_refusal(&self) -> bool {
        (2000..4000).contains(&self.status)
    }

    fn error(&self, op: &'static str) -> Error {
        err!(Backend, op, "cuDNN failed at {}: {}", self.doing, self.message)
    }
}

type Outcome<T> = std::result::Result<T, Failure>;

/// An object of the library's.
struct Descriptor {
    functions: &'static Functions,
    raw: Raw,
}

// SAFETY: the library's objects belong to no thread; they are not changed once they are made.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    fn new(functions: &'static Functions, kind: c_int) -> Outcome<Descriptor> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: there is room for the handle.
        functions.check("making a description", unsafe { (functions.create_descriptor)(kind, &raw mut raw) })?;
        Ok(Descriptor { functions, raw })
    }

    /// Sets an attribute. `T` is as the library's type of this number has it.
    fn set<T: Copy>(&self, name: c_int, kind: c_int, values: &[T]) -> Outcome<()> {
        // SAFETY: the object is valid, and there are as many values; they are copied.
        let status = unsafe {
            (self.functions.set_attribute)(self.raw, name, kind, values.len() as i64, values.as_ptr().cast())
        };
        self.functions.check("describing the problem", status)
    }

    fn set_descriptors(&self, name: c_int, values: &[&Descriptor]) -> Outcome<()> {
        let raws: Vec<Raw> = values.iter().map(|value| value.raw).collect();
        self.set(name, TYPE_DESCRIPTOR, &raws)
    }

    fn finalize(self, doing: &'static str) -> Outcome<Descriptor> {
        // SAFETY: the object is valid.
        self.functions.check(doing, unsafe { (self.functions.finalize)(self.raw) })?;
        Ok(self)
    }

    /// Up to as many values of an attribute as there are in `to`, and how many there were.
    fn get<T: Copy>(&self, name: c_int, kind: c_int, to: &mut [T]) -> Outcome<usize> {
        let mut count = 0_i64;
        let at = if to.is_empty() { std::ptr::null_mut() } else { to.as_mut_ptr().cast() };
        // SAFETY: the object is valid, and there is room for as many values as are asked for.
        let status =
            unsafe { (self.functions.get_attribute)(self.raw, name, kind, to.len() as i64, &raw mut count, at) };
        self.functions.check("asking for advice", status)?;
        Ok(count.max(0) as usize)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and destroyed once.
        unsafe { (self.functions.destroy_descriptor)(self.raw) };
    }
}

const TYPE_HANDLE: c_int = 0;
const TYPE_DESCRIPTOR: c_int = 15;

/// The library on a GPU.
struct Library {
    functions: &'static Functions,
    /// The library's handle. It has one stream at a time: whoever uses it says which.
    handle: Mutex<RawHandle>,
    plans: convolution::Plans,
}

struct RawHandle(Raw);

// SAFETY: the handle may be used on any thread, by one at a time.
unsafe impl Send for RawHandle {}

/// Whether the library is there.
pub(crate) fn is_present() -> bool {
    Functions::get().is_some()
}

impl Library {
    /// The library of a GPU; `None` where it is not found.
    ///
    /// # Errors
    /// If it is there and cannot be started.
    fn of(op: &'static str, gpu: &Gpu) -> Result<Option<&'static Library>> {
        static LIBRARIES: [OnceLock<std::result::Result<Library, String>>; MOST] = [const { OnceLock::new() }; MOST];
        let Some(functions) = Functions::get() else { return Ok(None) };
        let open = || {
            let mut handle = std::ptr::null_mut();
            // SAFETY: there is room for the handle; the GPU's context is this thread's.
            let status = unsafe { (functions.create)(&raw mut handle) };
            functions.check("its start", status).map_err(|failure| failure.error(op).to_string())?;
            Ok(Library { functions, handle: Mutex::new(RawHandle(handle)), plans: convolution::Plans::default() })
        };
        let made = LIBRARIES[gpu.ordinal].get_or_init(open);
        made.as_ref().map(Some).map_err(|e| err!(Backend, op, "{e}"))
    }

    fn lock(&self) -> MutexGuard<'_, RawHandle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
