//! The peak memory of losses.

use crate::alone;
use cotangent::{Device, Generator, Result, memory};

#[test]
fn a_linear_layer_with_its_loss_never_holds_all_logits() -> Result<()> {
    let _alone = alone();
    let (rows, inputs, classes) = (4096, 8, 4096);
    let make = |shape: [usize; 2], seed| Generator::seed(seed).randn(shape)?.requires_grad_(true);
    let (x, weight) = (make([rows, inputs], 1)?, make([classes, inputs], 2)?);
    let target = Generator::seed(3).randint(0, classes as i64, [rows])?;
    let before = memory::stats(Device::Cpu)?.current();
    memory::reset_peak(Device::Cpu)?;
    x.linear_cross_entropy(&weight, &target)?.backward()?;
    let (most, logits) = (memory::stats(Device::Cpu)?.peak() - before, rows * classes * 4);
    assert!(most < logits / 4, "{most} bytes, where all logits take {logits}");
    Ok(())
}
