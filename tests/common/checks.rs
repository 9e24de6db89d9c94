//! Checks that tests do not pass vacuously: equal lengths, valid names of operations, required GPUs.

use cotangent::Device;
use cotangent::ops::{self, Op};

/// Zips two sequences, which must have the same length.
#[track_caller]
pub fn both<A, B>(a: impl IntoIterator<Item = A>, b: impl IntoIterator<Item = B>) -> impl Iterator<Item = (A, B)> {
    let (a, b): (Vec<A>, Vec<B>) = (a.into_iter().collect(), b.into_iter().collect());
    assert_eq!(a.len(), b.len(), "both must have one length");
    a.into_iter().zip(b)
}

/// The operations to test: all, or those in `COTANGENT_TEST_OPS`, separated by commas.
#[allow(clippy::panic)] // a helper of tests may panic like a test
pub fn tried() -> Vec<&'static Op> {
    match std::env::var("COTANGENT_TEST_OPS") {
        Ok(names) => {
            named(&names).unwrap_or_else(|unknown| panic!("COTANGENT_TEST_OPS names {unknown}, which is no operation"))
        }
        Err(_) => ops::list().to_vec(),
    }
}

/// Whether all operations are tested.
pub fn all_are_tried() -> bool {
    std::env::var_os("COTANGENT_TEST_OPS").is_none()
}

/// The operations of these names, separated by commas, or the first invalid name.
fn named(names: &str) -> Result<Vec<&'static Op>, String> {
    let of = |name: &str| ops::list().iter().copied().find(|op| op.name == name).ok_or_else(|| format!("{name:?}"));
    names.split(',').map(of).collect()
}

/// The first GPU. Without a GPU the test prints that it is skipped; with `COTANGENT_WANT_GPU` it fails.
#[track_caller]
pub fn gpu() -> Option<Device> {
    let gpu = Device::cuda(0);
    let found = gpu.is_available();
    assert!(found || std::env::var_os("COTANGENT_WANT_GPU").is_none(), "COTANGENT_WANT_GPU is set and there is no GPU");
    if !found {
        eprintln!("skipped: there is no GPU");
    }
    found.then_some(gpu)
}

/// The devices that a test runs on: the CPU and the first GPU, if there is one.
#[track_caller]
pub fn devices() -> Vec<Device> {
    std::iter::once(Device::Cpu).chain(gpu()).collect()
}
