use cotangent::data::{DataLoader, DataLoaderOptions};
use cotangent::io::pytorch;
use cotangent::models::{ResNet, ResNetConfig};
use cotangent::prelude::*;
use cotangent::{nn, optim};

pub fn train(weights: &str, images: &Tensor, labels: &Tensor, epochs: usize) -> Result<f64> {
    cotangent::manual_seed(0);
    let mut model = ResNet::new(&ResNetConfig::resnet18())?;
    model.load_state_dict(&pytorch::load(weights)?)?;
    for mut parameter in model.parameters_mut() {
        parameter.set_requires_grad(parameter.name().starts_with("layer4."))?;
    }
    model.fc = nn::Linear::new(512, 2)?;
    let in_layer4 = |name: &str| name.starts_with("layer4.");
    let mut optimizer = optim::AdamW::new(1e-3).group(in_layer4, |options| options.lr(1e-4));
    let options = DataLoaderOptions::new().batch_size(8).shuffle(true);
    let loader = DataLoader::new_with((images.clone(), labels.clone()), options)?;
    model.train();
    for _ in 0..epochs {
        for batch in &loader {
            let (x, y) = batch?;
            let loss = model.forward(&x)?.cross_entropy(&y)?;
            model.zero_grad();
            loss.backward()?;
            optimizer.step(&mut model)?;
        }
    }
    model.eval();
    let right = no_grad(|| model.forward(images)?.argmax(1)?.eq(labels))?;
    pytorch::save(weights, &model.state_dict())?;
    right.to_dtype(DType::F32)?.mean(..)?.item()
}
