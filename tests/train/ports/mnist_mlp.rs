use cotangent::data::{DataLoader, DataLoaderOptions, Mnist, Part};
use cotangent::prelude::*;
use cotangent::train::{Accuracy, evaluate};
use cotangent::{nn, optim};

#[derive(Module)]
struct Mlp {
    fc1: nn::Linear,
    fc2: nn::Linear,
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc2.forward(&self.fc1.forward(&x.flatten(1, -1)?)?.relu()?)
    }
}

pub fn train(folder: &str, epochs: usize) -> Result<f64> {
    cotangent::manual_seed(0);
    let options = DataLoaderOptions::new().batch_size(64).shuffle(true);
    let train = DataLoader::new_with(Mnist::load(folder, Part::Train)?, options)?;
    let test = DataLoader::new(Mnist::load(folder, Part::Test)?, 1000)?;
    let mut model = Mlp { fc1: nn::Linear::new(784, 128)?, fc2: nn::Linear::new(128, 10)? };
    let mut optimizer = optim::AdamW::new(2e-3);
    for _ in 0..epochs {
        for batch in &train {
            let (x, y) = batch?;
            let loss = model.forward(&x)?.cross_entropy(&y)?;
            model.zero_grad();
            loss.backward()?;
            optimizer.step(&mut model)?;
        }
    }
    let mut accuracy = Accuracy::new();
    evaluate(&mut model, &test, &mut [&mut accuracy], |model, (x, y)| Ok((model.forward(x)?, y.clone())))?;
    accuracy.compute()
}
