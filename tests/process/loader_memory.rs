//! The memory of loaders.

use crate::alone;
use cotangent::data::{DataLoader, DataLoaderOptions, from_fn};
use cotangent::{Device, Result, Tensor, memory};

#[test]
fn epochs_leave_nothing_behind() -> Result<()> {
    let _alone = alone();
    let dataset = from_fn(64, |_| Ok((Tensor::rand([64, 64])?, Tensor::rand([3])?)));
    let options = DataLoaderOptions::new().batch_size(4).shuffle(true).num_workers(3);
    let loader = DataLoader::new_with(dataset, options)?;
    let epoch = |take: usize| -> Result<()> {
        for batch in loader.iter().take(take) {
            batch?;
        }
        Ok(())
    };
    let before = memory::stats(Device::Cpu)?.current();
    (0..10).try_for_each(|_| epoch(16))?;
    let held = memory::stats(Device::Cpu)?.held();
    (0..100).try_for_each(|at| epoch(if at % 3 == 0 { 5 } else { 16 }))?;
    let stats = memory::stats(Device::Cpu)?;
    assert_eq!(stats.current(), before, "tensors of dropped iterators are dropped");
    // Batches ahead, and those that three workers make, at most: how many there are at once depends on their timing.
    let batch = 4 * 64 * 64 * 4;
    assert!(stats.held() <= held + 12 * batch, "{} bytes held after 110 epochs, {held} after 10", stats.held());
    Ok(())
}
