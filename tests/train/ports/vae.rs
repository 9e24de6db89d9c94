use cotangent::prelude::*;
use cotangent::{Reduction, data, nn, optim};

#[derive(Module)]
struct Vae {
    encoder: nn::Sequential,
    mean: nn::Linear,
    logvar: nn::Linear,
    decoder: nn::Sequential,
}

impl Vae {
    fn new() -> Result<Vae> {
        let encoder = nn::Sequential::new().add(nn::Linear::new(64, 64)?).add(nn::ReLU);
        let decoder = nn::Sequential::new().add(nn::Linear::new(4, 64)?).add(nn::ReLU).add(nn::Linear::new(64, 64)?);
        Ok(Vae { encoder, mean: nn::Linear::new(64, 4)?, logvar: nn::Linear::new(64, 4)?, decoder })
    }

    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.encoder.forward(x)?;
        let (mean, logvar) = (self.mean.forward(&hidden)?, self.logvar.forward(&hidden)?);
        let z = &mean + mean.randn_like()? * (&logvar / 2).exp()?;
        let reconstruction = self.decoder.forward(&z)?.binary_cross_entropy_with_logits_with(x, Reduction::Sum)?;
        let divergence = (1 + &logvar - mean.square()? - logvar.exp()?).sum(..)? * -0.5;
        Ok((reconstruction + divergence) / x.shape()[0])
    }
}

pub fn train(images: Tensor, epochs: usize) -> Result<(f64, Tensor)> {
    cotangent::manual_seed(0);
    let (mut model, mut losses) = (Vae::new()?, Vec::new());
    let mut optimizer = optim::Adam::new(2e-3);
    let loader = data::DataLoader::new_with(images, data::DataLoaderOptions::new().batch_size(64).shuffle(true))?;
    for _ in 0..epochs {
        losses.clear();
        for x in &loader {
            let loss = model.loss(&x?)?;
            model.zero_grad();
            loss.backward()?;
            optimizer.step(&mut model)?;
            losses.push(loss.item::<f64>()?);
        }
    }
    let samples = no_grad(|| model.decoder.forward(&Tensor::randn([16, 4])?)?.sigmoid())?;
    Ok((losses.iter().sum::<f64>() / losses.len() as f64, samples))
}
