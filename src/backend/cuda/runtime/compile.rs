//! Compilation of kernels by NVRTC at first use, for the GPU found, cached in memory and on disk.

use crate::backend::cuda::runtime::gpu::{Gpu, failed};
use crate::error::{bail, err};
use crate::{Error, Result};
use cudarc::driver::{result, sys};
use cudarc::nvrtc;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The functions of a GPU that were compiled or loaded so far, by the key of their source.
#[derive(Default)]
pub(crate) struct Modules(Mutex<HashMap<String, Function>>);

/// A function of a loaded module, which is never unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub sys::CUfunction);
// SAFETY: a handle of the driver, valid on every thread as long as its module is loaded.
unsafe impl Send for Function {}

impl Gpu {
    /// The function `name` of the source for `key`. The source is generated only if the key is not known yet.
    ///
    /// # Errors
    /// If the compiler is missing or fails, or the driver refuses the result.
    pub fn function(
        &self,
        op: &'static str,
        key: &str,
        name: &str,
        fused: bool,
        source: impl FnOnce() -> String,
    ) -> Result<Function> {
        let known = self.modules.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied();
        if let Some(function) = known {
            return Ok(function);
        }
        // Not under the lock: compiling takes long, and other threads may run or compile kernels meanwhile.
        let image = image(op, &source(), self.arch, fused)?;
        // SAFETY: the context is current on this thread; the image is a complete one from the compiler.
        let module = unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) };
        let module = module.map_err(|e| failed(op, "loading a kernel", e))?;
        let symbol = CString::new(name).map_err(|e| err!(Backend, op, "{e}"))?;
        // SAFETY: the module was just loaded.
        let function = unsafe { result::module::get_function(module, symbol) };
        let function = Function(function.map_err(|e| failed(op, "finding a kernel", e))?);
        let mut modules = self.modules.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(*modules.entry(key.to_string()).or_insert(function))
    }
}

/// The machine code of `source` for GPUs of this capability. `fused` allows the contraction of products and sums.
///
/// # Errors
/// If the compiler is missing or refuses the source.
pub(crate) fn image(op: &'static str, source: &str, arch: u32, fused: bool) -> Result<Vec<u8>> {
    let file = kept(source, arch, fused);
    if let Some(image) = file.as_ref().and_then(|file| std::fs::read(file).ok()).filter(|image| !image.is_empty()) {
        return Ok(image);
    }
    let image = compile(op, source, arch, fused)?;
    if let Some(file) = file {
        // A cache that cannot be written only costs time at the next start. Written to a temporary file and renamed, so that no
        // partial file is read.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let own = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let temporary = file.with_extension(own);
        let _ = file.parent().map(std::fs::create_dir_all);
        let _ = std::fs::write(&temporary, &image).and_then(|()| std::fs::rename(&temporary, &file));
    }
    Ok(image)
}

/// The cache file for the machine code of a source, in `$COTANGENT_CACHE` or the user's cache folder.
fn kept(source: &str, arch: u32, fused: bool) -> Option<PathBuf> {
    let folder = std::env::var_os("COTANGENT_CACHE").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        Some(cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?.join("cotangent"))
    })?;
    // Two hashes of the source and the crate's version: 128 bits.
    let hash = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, env!("CARGO_PKG_VERSION"), fused, source).hash(&mut hasher);
        hasher.finish()
    };
    Some(folder.join(format!("{:016x}{:016x}.sm_{arch}", hash(0), hash(1))))
}

/// Whether the compiler is available.
pub(crate) fn present() -> bool {
    // SAFETY: only looks for the library.
    unsafe { nvrtc::sys::is_culib_present() }
}

/// The compiler's major version.
#[cfg(feature = "samples")]
pub(crate) fn version() -> i32 {
    let (mut major, mut minor) = (0, 0);
    if present() {
        // SAFETY: the library is present, and writes to two numbers.
        let _ = unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    }
    major
}

pub(crate) fn compile(op: &'static str, source: &str, arch: u32, fused: bool) -> Result<Vec<u8>> {
    compile_with(op, source, arch, fused, &[])
}

/// As [`compile`], with more options of the compiler.
pub(crate) fn compile_with(op: &'static str, source: &str, arch: u32, fused: bool, more: &[&str]) -> Result<Vec<u8>> {
    if !present() {
        bail!(Backend, op, "the CUDA compiler (libnvrtc) was not found: install CUDA, or set LD_LIBRARY_PATH");
    }
    let source = CString::new(source).map_err(|e| err!(Backend, op, "{e}"))?;
    let refused = |what: &str, e: nvrtc::result::NvrtcError| -> Error { err!(Backend, op, "{what}: {e}") };
    let program = nvrtc::result::create_program(&source, None).map_err(|e| refused("starting the compiler", e))?;
    // From 9.0 on some instructions are available only for the specific architecture (`sm_90a`).
    let architecture = format!("--gpu-architecture=sm_{arch}{}", if arch >= 90 { "a" } else { "" });
    // Products and sums are not contracted unless the caller asks for it, as in the CPU kernels.
    let contracted = if fused { "--fmad=true" } else { "--fmad=false" };
    let options = [&[architecture.as_str(), contracted, "--std=c++17", "--device-int128"], more].concat();
    // SAFETY: the program was just made, and is destroyed once, below.
    unsafe {
        let compiled = nvrtc::result::compile_program(program, &options);
        let image = compiled.map_err(|e| {
            let log = nvrtc::result::get_program_log(program).unwrap_or_default();
            // SAFETY: the log ends with a zero.
            let log = CStr::from_ptr(log.as_ptr().cast()).to_string_lossy().into_owned();
            err!(Backend, op, "cannot compile a kernel: {e}\n{log}")
        });
        let image = image.and_then(|()| machine_code(program).map_err(|e| refused("taking the result", e)));
        let _ = nvrtc::result::destroy_program(program);
        image
    }
}

/// # Safety
/// The program was compiled for a real architecture.
unsafe fn machine_code(program: nvrtc::sys::nvrtcProgram) -> std::result::Result<Vec<u8>, nvrtc::result::NvrtcError> {
    let mut size = 0;
    // SAFETY: the caller's promise; the vector has room for what the compiler says there is.
    unsafe {
        nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size).result()?;
        let mut image = vec![0_u8; size];
        nvrtc::sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result()?;
        Ok(image)
    }
}
