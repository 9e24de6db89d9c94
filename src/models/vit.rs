//! Vision transformers.

use super::config::ConfigFile;
use super::{Published, without_prefix};
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::{
    Conv2d, ConvLayerOptions, Dropout, Forward, LayerNorm, LayerNormLayerOptions, Linear, Module, Parameter, init,
};
use crate::{Result, Tensor};
use std::path::Path;

/// The sizes of a [`ViT`], under Hugging Face's names. The default is the base model with patches of 16×16.
///
/// ```
/// use cotangent::models::ViTConfig;
/// assert_eq!(ViTConfig::default().num_hidden_layers, 12);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ViTConfig {
    /// The size of the patch embeddings and hidden states.
    pub hidden_size: usize,
    /// The number of blocks.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The hidden size of the feed-forward networks.
    pub intermediate_size: usize,
    /// Height and width of an image.
    pub image_size: usize,
    /// Height and width of a patch.
    pub patch_size: usize,
    /// The number of channels of an image.
    pub num_channels: usize,
    /// The number of classes. With 0 there is no last layer, and the model returns its features.
    pub num_labels: usize,
    /// Added to the variance in layer norms.
    pub layer_norm_eps: f64,
    /// The dropout probability in training. Attention weights are not dropped.
    pub hidden_dropout_prob: f64,
}

impl Default for ViTConfig {
    fn default() -> ViTConfig {
        ViTConfig {
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            image_size: 224,
            patch_size: 16,
            num_channels: 3,
            num_labels: 1000,
            layer_norm_eps: 1e-12,
            hidden_dropout_prob: 0.0,
        }
    }
}

impl ViTConfig {
    /// Reads the `config.json` of published weights. The number of labels is that of `id2label`; without one it is two, as
    /// in Hugging Face's library.
    ///
    /// ```
    /// use cotangent::models::ViTConfig;
    /// let path = std::env::temp_dir().join("cotangent-doc-vit.json");
    /// std::fs::write(&path, r#"{"hidden_size": 192, "num_attention_heads": 3, "id2label": {"0": "cat", "1": "dog", "2": "owl"}}"#)?;
    /// let config = ViTConfig::from_file(&path)?;
    /// assert_eq!((config.hidden_size, config.num_labels), (192, 3));
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or requires a feature that the model does not support.
    #[track_caller]
    pub fn from_file(path: impl AsRef<Path>) -> Result<ViTConfig> {
        let (file, default) = (ConfigFile::read(path.as_ref())?, ViTConfig::default());
        file.expect("model_type", &["vit"])?;
        file.expect("hidden_act", &["gelu"])?;
        if !file.flag("qkv_bias", true)? {
            bail!(Format, "from_file", "qkv_bias must be true, got false");
        }
        Ok(ViTConfig {
            hidden_size: file.size("hidden_size", default.hidden_size)?,
            num_hidden_layers: file.size("num_hidden_layers", default.num_hidden_layers)?,
            num_attention_heads: file.size("num_attention_heads", default.num_attention_heads)?,
            intermediate_size: file.size("intermediate_size", default.intermediate_size)?,
            image_size: file.size("image_size", default.image_size)?,
            patch_size: file.size("patch_size", default.patch_size)?,
            num_channels: file.size("num_channels", default.num_channels)?,
            num_labels: file.size("num_labels", file.entries("id2label").unwrap_or(2))?,
            layer_norm_eps: file.number("layer_norm_eps", default.layer_norm_eps)?,
            hidden_dropout_prob: file.number("hidden_dropout_prob", default.hidden_dropout_prob)?,
        })
    }
}

#[derive(Debug, Module)]
struct Patches {
    projection: Conv2d,
}

#[derive(Debug, Module)]
struct Embeddings {
    cls_token: Parameter,
    position_embeddings: Parameter,
    patch_embeddings: Patches,
}

#[derive(Debug, Module)]
struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
}

#[derive(Debug, Module)]
struct Dense {
    dense: Linear,
}

#[derive(Debug, Module)]
struct Attention {
    attention: SelfAttention,
    output: Dense,
}

#[derive(Debug, Module)]
struct Block {
    attention: Attention,
    intermediate: Dense,
    output: Dense,
    layernorm_before: LayerNorm,
    layernorm_after: LayerNorm,
}

#[derive(Debug, Module)]
struct Encoder {
    layer: Vec<Block>,
}

/// A vision transformer: an image is a sequence of patches and a class token, whose final hidden state gives the logits.
///
/// ```
/// use cotangent::models::{ViT, ViTConfig};
/// use cotangent::nn::Forward;
/// use cotangent::Tensor;
/// let config = ViTConfig {
///     hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 32, image_size: 8, patch_size: 4,
///     num_labels: 10, ..ViTConfig::default()
/// };
/// assert_eq!(ViT::new(&config)?.forward(&Tensor::randn([2, 3, 8, 8])?)?.shape(), [2, 10]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct ViT {
    embeddings: Embeddings,
    encoder: Encoder,
    layernorm: LayerNorm,
    /// The last layer, from features to logits.
    pub classifier: Option<Linear>,
    dropout: Dropout,
    heads: usize,
    /// Channels, height and width of an image.
    image: [usize; 3],
}

impl ViT {
    /// A model with new weights, normal with standard deviation 0.02.
    ///
    /// ```
    /// use cotangent::models::{ViT, ViTConfig};
    /// assert!(ViT::new(&ViTConfig { patch_size: 15, ..ViTConfig::default() }).is_err());
    /// ```
    ///
    /// # Errors
    /// If `hidden_size` is not a multiple of `num_attention_heads`, or `image_size` of `patch_size`, or `hidden_dropout_prob` is
    /// not in [0, 1].
    #[track_caller]
    pub fn new(config: &ViTConfig) -> Result<ViT> {
        let (size, heads, inner) = (config.hidden_size, config.num_attention_heads, config.intermediate_size);
        if heads == 0 || !size.is_multiple_of(heads) {
            bail!(Value, "ViT", "hidden_size must be a multiple of num_attention_heads, got {size} and {heads}");
        }
        let (image, patch) = (config.image_size, config.patch_size);
        if patch == 0 || image == 0 || !image.is_multiple_of(patch) {
            bail!(Value, "ViT", "image_size must be a positive multiple of patch_size, got {image} and {patch}");
        }
        const STD: f64 = 0.02;
        let patches = (image / patch).checked_mul(image / patch).and_then(|patches| patches.checked_add(1));
        let Some(tokens) = patches else {
            bail!(Value, "ViT", "image_size / patch_size is too large, got {image} and {patch}")
        };
        let linear = |from: usize, to: usize| {
            let weight = Parameter::new(init::normal([to, from], 0.0, STD)?)?;
            Ok(Linear { weight, bias: Some(Parameter::new(Tensor::zeros([to])?)?) })
        };
        let norm = || LayerNorm::new_with(size, LayerNormLayerOptions::new().eps(config.layer_norm_eps));
        let block = |_| {
            Ok(Block {
                attention: Attention {
                    attention: SelfAttention {
                        query: linear(size, size)?,
                        key: linear(size, size)?,
                        value: linear(size, size)?,
                    },
                    output: Dense { dense: linear(size, size)? },
                },
                intermediate: Dense { dense: linear(size, inner)? },
                output: Dense { dense: linear(inner, size)? },
                layernorm_before: norm()?,
                layernorm_after: norm()?,
            })
        };
        let mut projection = Conv2d::new_with(config.num_channels, size, patch, ConvLayerOptions::new().stride(patch))?;
        let values = init::normal(projection.weight.shape(), 0.0, STD)?;
        projection.weight.set(&values)?;
        if let Some(bias) = &mut projection.bias {
            bias.set(&Tensor::zeros([size])?)?;
        }
        Ok(ViT {
            embeddings: Embeddings {
                cls_token: Parameter::new(init::normal([1, 1, size], 0.0, STD)?)?,
                position_embeddings: Parameter::new(init::normal([1, tokens, size], 0.0, STD)?)?,
                patch_embeddings: Patches { projection },
            },
            encoder: Encoder { layer: (0..config.num_hidden_layers).map(block).collect::<Result<_>>()? },
            layernorm: norm()?,
            classifier: (config.num_labels > 0).then(|| linear(size, config.num_labels)).transpose()?,
            dropout: Dropout::new(config.hidden_dropout_prob)?,
            heads,
            image: [config.num_channels, image, image],
        })
    }

    /// The final hidden states `[batch, 1 + patches, hidden_size]` of the class token and the patches, of images
    /// `[batch, channels, height, width]`.
    ///
    /// ```
    /// use cotangent::models::{ViT, ViTConfig};
    /// use cotangent::Tensor;
    /// let config = ViTConfig {
    ///     hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, image_size: 8, patch_size: 4, ..ViTConfig::default()
    /// };
    /// assert_eq!(ViT::new(&config)?.hidden_state(&Tensor::randn([2, 3, 8, 8])?)?.shape(), [2, 5, 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the images are not of the model's size.
    #[doc(alias = "last_hidden_state")]
    #[track_caller]
    pub fn hidden_state(&self, x: &Tensor) -> Result<Tensor> {
        let [channels, height, width] = self.image;
        if x.rank() != 4 || x.shape()[1..] != self.image {
            bail!(Shape, "ViT", "images must have shape [batch, {channels}, {height}, {width}], got {:?}", x.shape());
        }
        let own = &self.embeddings;
        let patches = own.patch_embeddings.projection.forward(x)?.flatten(2, 3)?.transpose(1, 2)?;
        let [batch, size] = [x.shape()[0], patches.shape()[2]];
        let tokens = Tensor::cat(&[&own.cls_token.expand([batch, 1, size])?, &patches], 1)?;
        let mut x = self.dropout.forward(&tokens.add(&*own.position_embeddings)?)?;
        for block in &self.encoder.layer {
            x = x.add(&self.attend(&block.attention, &block.layernorm_before.forward(&x)?)?)?;
            let hidden = block.intermediate.dense.forward(&block.layernorm_after.forward(&x)?)?.gelu()?;
            x = x.add(&self.dropout.forward(&block.output.dense.forward(&hidden)?)?)?;
        }
        self.layernorm.forward(&x)
    }

    fn attend(&self, attention: &Attention, x: &Tensor) -> Result<Tensor> {
        let heads = |x: Tensor| x.unflatten(2, [self.heads, x.shape()[2] / self.heads])?.transpose(1, 2);
        let own = &attention.attention;
        let (q, k) = (heads(own.query.forward(x)?)?, heads(own.key.forward(x)?)?);
        let out = q.scaled_dot_product_attention(&k, &heads(own.value.forward(x)?)?)?;
        self.dropout.forward(&attention.output.dense.forward(&out.transpose(1, 2)?.flatten(2, 3)?)?)
    }
}

impl Forward for ViT {
    /// Computes the logits `[batch, num_labels]` of images `[batch, channels, height, width]`; without a last layer the hidden
    /// states of the class tokens.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let whole = self.hidden_state(x)?.select(1, 0)?;
        match &self.classifier {
            Some(classifier) => classifier.forward(&whole),
            None => Ok(whole),
        }
    }
}

impl Published for ViT {
    fn own_names(&self, dict: &StateDict) -> Result<StateDict> {
        // Files of classifiers have a prefix. Those without one have a pooler, which belongs to another task.
        let headless = self.classifier.is_none();
        without_prefix(dict, "vit.", |name| {
            name.starts_with("pooler.") || (headless && name.starts_with("classifier."))
        })
    }
}
