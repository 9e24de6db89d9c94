//! Layers whose weight is computed from other parameters.

use cotangent::nn::{Embedding, Forward, Module, WeightNorm};
use cotangent::{Result, manual_seed, tensor};

#[test]
fn an_embedding_keeps_its_options() -> Result<()> {
    manual_seed(1);
    let mut table = Embedding::new(3, 2)?;
    (table.padding_idx, table.scale_grad_by_freq) = (Some(0), true);
    let layer = WeightNorm::new(table)?;
    layer.forward(&tensor!([0, 1, 1, 2])?)?.sum(..)?.backward()?;
    let rows = layer.weight()?.to_vec::<f32>()?;
    let norms = layer.parameters().into_iter().find(|p| p.shape() == [3, 1]).and_then(|p| p.grad());
    let got = norms.map(|g| g.to_vec::<f32>()).transpose()?.unwrap_or_default();
    // The row of the padding gets no gradient, and one that is looked up twice half of the sum.
    let slope = |row: &[f32]| (row[0] + row[1]) / row[0].hypot(row[1]);
    let expected = [0.0, slope(&rows[2..4]), slope(&rows[4..6])];
    assert!(got.len() == 3 && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}, not {expected:?}");
    Ok(())
}
