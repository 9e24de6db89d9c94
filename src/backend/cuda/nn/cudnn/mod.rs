//! Bindings to cuDNN, if it is found: its functions and its descriptors.
//!
//! Only a few functions of the graph interface are used, and looked up here by name. Status codes are plain numbers,
//! since a newer library may return codes that are unknown here.

pub(crate) mod convolution;

use crate::backend::cuda::runtime::gpu::{Gpu, MOST};
use crate::error::err;
use crate::{Error, Result};
use cudarc::cudnn::sys;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The oldest version with the graph interface used here.
const LEAST_VERSION: usize = 8900;

/// A status code; 0 is success.
type Status = c_int;
type Raw = *mut c_void;

/// The functions of the library.
struct Functions {
    create: unsafe extern "C" fn(*mut Raw) -> Status,
    set_stream: unsafe extern "C" fn(Raw, Raw) -> Status,
    describe_status: unsafe extern "C" fn(Status) -> *const c_char,
    /// A description of the last failure; missing in older libraries.
    last_error: Option<unsafe extern "C" fn(*mut c_char, usize)>,
    create_descriptor: unsafe extern "C" fn(c_int, *mut Raw) -> Status,
    destroy_descriptor: unsafe extern "C" fn(Raw) -> Status,
    finalize: unsafe extern "C" fn(Raw) -> Status,
    set_attribute: unsafe extern "C" fn(Raw, c_int, c_int, i64, *const c_void) -> Status,
    get_attribute: unsafe extern "C" fn(Raw, c_int, c_int, i64, *mut i64, *mut c_void) -> Status,
    execute: unsafe extern "C" fn(Raw, Raw, Raw) -> Status,
}

impl Functions {
    /// The functions of the library; `None` if it is missing or too old. `COTANGENT_CUDNN=0` disables it.
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
        // SAFETY: the library returns a static string.
        let mut message = unsafe { CStr::from_ptr((self.describe_status)(status)) }.to_string_lossy().into_owned();
        if let Some(last_error) = self.last_error {
            let mut more = [0_u8; 512];
            // SAFETY: there is room for these bytes, and one more that stays 0.
            unsafe { last_error(more.as_mut_ptr().cast(), more.len() - 1) };
            if let Some(text) = CStr::from_bytes_until_nul(&more).ok().filter(|text| !text.is_empty()) {
                message = format!("{message}: {}", text.to_string_lossy());
            }
        }
        Err(Failure { doing, status, message })
    }
}

/// A failed call of the library.
#[derive(Debug)]
struct Failure {
    doing: &'static str,
    status: Status,
    message: String,
}

impl Failure {
    /// Whether the library does not support the problem, as opposed to an error.
    fn is_refusal(&self) -> bool {
        (2000..4000).contains(&self.status)
    }

    fn error(&self, op: &'static str) -> Error {
        err!(Backend, op, "cuDNN failed while {}: {}", self.doing, self.message)
    }
}

type Outcome<T> = std::result::Result<T, Failure>;

/// A descriptor of the library.
struct Descriptor {
    functions: &'static Functions,
    raw: Raw,
}

// SAFETY: descriptors are not bound to a thread, and are not changed after they are finalized.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    fn new(functions: &'static Functions, kind: c_int) -> Outcome<Descriptor> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: there is room for the handle.
        functions.check("creating a descriptor", unsafe { (functions.create_descriptor)(kind, &raw mut raw) })?;
        Ok(Descriptor { functions, raw })
    }

    /// Sets an attribute. `T` must be the library's type of this `kind`.
    fn set<T: Copy>(&self, name: c_int, kind: c_int, values: &[T]) -> Outcome<()> {
        // SAFETY: the descriptor is valid, and the values exist; they are copied.
        let status = unsafe {
            (self.functions.set_attribute)(self.raw, name, kind, values.len() as i64, values.as_ptr().cast())
        };
        self.functions.check("setting an attribute", status)
    }

    fn set_descriptors(&self, name: c_int, values: &[&Descriptor]) -> Outcome<()> {
        let raws: Vec<Raw> = values.iter().map(|value| value.raw).collect();
        self.set(name, TYPE_DESCRIPTOR, &raws)
    }

    fn finalize(self, doing: &'static str) -> Outcome<Descriptor> {
        // SAFETY: the descriptor is valid.
        self.functions.check(doing, unsafe { (self.functions.finalize)(self.raw) })?;
        Ok(self)
    }

    /// Reads the first values of an attribute into `to`, and returns how many it has.
    fn get<T: Copy>(&self, name: c_int, kind: c_int, to: &mut [T]) -> Outcome<usize> {
        let mut count = 0_i64;
        let at = if to.is_empty() { std::ptr::null_mut() } else { to.as_mut_ptr().cast() };
        // SAFETY: the descriptor is valid, and there is room for the requested values.
        let status =
            unsafe { (self.functions.get_attribute)(self.raw, name, kind, to.len() as i64, &raw mut count, at) };
        self.functions.check("reading an attribute", status)?;
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
    /// The library's handle. It has one stream at a time, which each user sets.
    handle: Mutex<RawHandle>,
    plans: convolution::Plans,
}

struct RawHandle(Raw);

// SAFETY: any thread may use the handle, one at a time.
unsafe impl Send for RawHandle {}

/// Whether the library is present.
pub(crate) fn is_present() -> bool {
    Functions::get().is_some()
}

impl Library {
    /// The library of a GPU; `None` if it is not found.
    ///
    /// # Errors
    /// If it is present and cannot be initialized.
    fn of(op: &'static str, gpu: &Gpu) -> Result<Option<&'static Library>> {
        static LIBRARIES: [OnceLock<std::result::Result<Library, String>>; MOST] = [const { OnceLock::new() }; MOST];
        let Some(functions) = Functions::get() else { return Ok(None) };
        let open = || {
            let mut handle = std::ptr::null_mut();
            // SAFETY: there is room for the handle; the GPU's context is this thread's.
            let status = unsafe { (functions.create)(&raw mut handle) };
            functions.check("creating a handle", status).map_err(|failure| failure.error(op).to_string())?;
            Ok(Library { functions, handle: Mutex::new(RawHandle(handle)), plans: convolution::Plans::default() })
        };
        let made = LIBRARIES[gpu.ordinal].get_or_init(open);
        made.as_ref().map(Some).map_err(|e| err!(Backend, op, "{e}"))
    }

    fn lock(&self) -> MutexGuard<'_, RawHandle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
