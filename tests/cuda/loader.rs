//! Prefetching of batches to a GPU.

use super::{GPU, beside_others, gpu};
use crate::checks::both;
use cotangent::data::{DataLoader, DataLoaderOptions};
use cotangent::{Device, Result, Tensor};

#[test]
fn a_loader_brings_its_batches_to_the_gpu() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let (x, y) = (Tensor::randn([1000, 64])?, Tensor::arange(0, 1000)?);
    for workers in [0, 2] {
        let options = DataLoaderOptions::new().batch_size(32).shuffle(true).seed(3).num_workers(workers);
        let host = DataLoader::new_with((x.clone(), y.clone()), &options)?;
        let device = DataLoader::new_with((x.clone(), y.clone()), &options)?.to_device(GPU)?;
        let weight = Tensor::randn([64, 64])?;
        let there = weight.to_device(GPU)?;
        for _ in 0..3 {
            let mut batches = 0;
            for (on_host, on_device) in both(host.iter(), &device) {
                let ((x, y), (gx, gy)) = (on_host?, on_device?);
                assert_eq!((gx.device(), gy.device()), (GPU, GPU));
                // GPU work continues meanwhile, with memory that earlier batches used.
                let product = gx.matmul(&there)?;
                assert!(gx.to_device(Device::Cpu)?.equal(&x)? && gy.to_device(Device::Cpu)?.equal(&y)?);
                assert!(product.to_device(Device::Cpu)?.allclose_with(&x.matmul(&weight)?, (1e-2, 1e-2))?);
                batches += 1;
            }
            assert_eq!(batches, 32);
        }
        // Dropped in the middle, with running copies.
        for taken in 0..5 {
            assert_eq!(device.iter().take(taken).filter(Result::is_ok).count(), taken);
        }
    }
    Ok(())
}
