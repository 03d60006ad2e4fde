//! A decoder of Llama's kind in Burn's modules, which say nothing of formats. Fields have the names that the tensors have in
//! Hugging Face's folders.

mod attention;
mod cache;
mod config;
mod experts;
mod projection;
mod rotary;

pub use attention::Attention;
pub use cache::{Cache, Stored};
pub use config::{DecoderConfig, RotaryConfig, RotaryScaling};
pub use experts::{Expert, Experts, SparseMoe, balance_loss};
pub use projection::Projection;

use burn::module::{Initializer, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::prelude::*;
use burn::tensor::activation::silu;
use burn_mx::module::MxTensorOps;

use rotary::Rotary;

/// The decoder, with its head.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    /// All but the head.
    pub model: Body<B>,
    /// The head. `None`: the table of embeddings, transposed.
    pub lm_head: Option<Linear<B>>,
}

/// The table of embeddings, the layers, the last norm.
#[derive(Module, Debug)]
pub struct Body<B: Backend> {
    /// One row a token.
    pub embed_tokens: Embedding<B>,
    /// The layers.
    pub layers: Vec<Layer<B>>,
    /// The norm before the head.
    pub norm: RmsNorm<B>,
    #[module(skip)]
    rotary: Rotary,
}

/// Attention and a feed-forward network, each added to the residual stream.
#[derive(Module, Debug)]
pub struct Layer<B: Backend> {
    /// The norm before attention.
    pub input_layernorm: RmsNorm<B>,
    /// Attention.
    pub self_attn: Attention<B>,
    /// The norm before the feed-forward network.
    pub post_attention_layernorm: RmsNorm<B>,
    /// The feed-forward network. `None`: there is a mixture of experts.
    pub mlp: Option<SwiGlu<B>>,
    /// The mixture of experts.
    pub block_sparse_moe: Option<SparseMoe<B>>,
}

/// `down(silu(gate(x)) · up(x))`.
#[derive(Module, Debug)]
pub struct SwiGlu<B: Backend> {
    /// `[width, hidden]`
    pub gate_proj: Projection<B>,
    /// `[width, hidden]`
    pub up_proj: Projection<B>,
    /// `[hidden, width]`
    pub down_proj: Projection<B>,
}

/// The standard deviation of weights before training, as in GPT-2 and Llama.
const DEVIATION: f64 = 0.02;

/// A linear layer with weights drawn as the whole model's are.
fn linear<B: Backend>([from, to]: [usize; 2], bias: bool, device: &B::Device) -> Linear<B> {
    let normal = Initializer::Normal {
        mean: 0.0,
        std: DEVIATION,
    };
    let mut linear = LinearConfig::new(from, to)
        .with_bias(false)
        .with_initializer(normal)
        .init(device);
    if bias {
        linear.bias = Some(Initializer::Zeros.init([to], device));
    }
    linear
}

fn projection<B: Backend>(sizes: [usize; 2], bias: bool, device: &B::Device) -> Projection<B> {
    Projection::Float(linear(sizes, bias, device))
}

impl DecoderConfig {
    /// A decoder with random weights.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Decoder<B> {
        let norm = || {
            RmsNormConfig::new(self.width)
                .with_epsilon(self.epsilon)
                .init(device)
        };
        let layer = |window: &Option<usize>| Layer {
            input_layernorm: norm(),
            self_attn: Attention::new(self, *window, device),
            post_attention_layernorm: norm(),
            mlp: self.experts.is_none().then(|| SwiGlu {
                gate_proj: projection([self.width, self.hidden], false, device),
                up_proj: projection([self.width, self.hidden], false, device),
                down_proj: projection([self.hidden, self.width], false, device),
            }),
            block_sparse_moe: (self.experts.as_ref())
                .map(|experts| SparseMoe::new(self, experts, device)),
        };
        let normal = Initializer::Normal {
            mean: 0.0,
            std: DEVIATION,
        };
        Decoder {
            model: Body {
                embed_tokens: EmbeddingConfig::new(self.vocabulary, self.width)
                    .with_initializer(normal)
                    .init(device),
                layers: self.windows.iter().map(layer).collect(),
                norm: norm(),
                rotary: Rotary::new(self),
            },
            lm_head: (!self.is_tied).then(|| linear([self.width, self.vocabulary], false, device)),
        }
    }
}

impl<B: MxTensorOps> Layer<B> {
    /// The second result is the logits of the router of a mixture of experts.
    fn feed_forward(&self, x: Tensor<B, 3>) -> (Tensor<B, 3>, Option<Tensor<B, 2>>) {
        match &self.mlp {
            Some(mlp) => (mlp.forward(x), None),
            None => {
                let experts = self.block_sparse_moe.as_ref();
                let experts = experts.expect("a layer has a network or a mixture of experts");
                let (output, logits) = experts.forward(x);
                (output, Some(logits))
            }
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// The paths of the routers of all mixtures of experts.
    pub fn routers(&self) -> Vec<String> {
        let layers = self.model.layers.iter().enumerate();
        let mixtures = layers.filter(|(_, layer)| layer.block_sparse_moe.is_some());
        mixtures
            .map(|(number, _)| format!("model.layers.{number}.block_sparse_moe.gate"))
            .collect()
    }
}

impl<B: MxTensorOps> Decoder<B> {
    /// The logits `[batch, length, vocabulary]` of tokens `[batch, length]`.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.logits(tokens, None, |_| ()).0
    }

    /// The logits of tokens, and the residual stream `[batch, length, width]` after each layer.
    pub fn forward_hidden(&self, tokens: Tensor<B, 2, Int>) -> (Tensor<B, 3>, Vec<Tensor<B, 3>>) {
        let mut hidden = Vec::new();
        let (logits, _) = self.logits(tokens, None, |x| hidden.push(x.clone()));
        (logits, hidden)
    }

    /// The logits of tokens, and the logits `[batch · length, experts]` of each layer's router.
    pub fn forward_routed(&self, tokens: Tensor<B, 2, Int>) -> (Tensor<B, 3>, Vec<Tensor<B, 2>>) {
        self.logits(tokens, None, |_| ())
    }

    /// The logits of tokens that follow those that the cache has seen.
    pub fn forward_cached(&self, tokens: Tensor<B, 2, Int>, cache: &mut Cache<B>) -> Tensor<B, 3> {
        self.logits(tokens, Some(cache), |_| ()).0
    }

    /// The linear layers of attention and of feed-forward networks with their paths, in the order of the paths' names in files.
    pub(crate) fn projections_mut(&mut self) -> Vec<(String, &mut Projection<B>)> {
        let mut all = Vec::new();
        for (number, layer) in self.model.layers.iter_mut().enumerate() {
            let mut add = |path: String, projection| {
                all.push((format!("model.layers.{number}.{path}"), projection));
            };
            let Attention {
                q_proj,
                k_proj,
                v_proj,
                o_proj,
                ..
            } = &mut layer.self_attn;
            let names = ["q_proj", "k_proj", "v_proj", "o_proj"];
            for (name, projection) in names.into_iter().zip([q_proj, k_proj, v_proj, o_proj]) {
                add(format!("self_attn.{name}"), projection);
            }
            if let Some(mlp) = &mut layer.mlp {
                add("mlp.gate_proj".into(), &mut mlp.gate_proj);
                add("mlp.up_proj".into(), &mut mlp.up_proj);
                add("mlp.down_proj".into(), &mut mlp.down_proj);
            }
            let experts = layer.block_sparse_moe.iter_mut();
            let experts = experts.flat_map(|moe| moe.experts.iter_mut().enumerate());
            for (expert, Expert { w1, w2, w3 }) in experts {
                for (name, projection) in [("w1", w1), ("w2", w2), ("w3", w3)] {
                    add(
                        format!("block_sparse_moe.experts.{expert}.{name}"),
                        projection,
                    );
                }
            }
        }
        all
    }

    fn logits(
        &self,
        tokens: Tensor<B, 2, Int>,
        mut cache: Option<&mut Cache<B>>,
        mut after_layer: impl FnMut(&Tensor<B, 3>),
    ) -> (Tensor<B, 3>, Vec<Tensor<B, 2>>) {
        let mut routed = Vec::new();
        let [_, length] = tokens.dims();
        let start = cache.as_ref().map_or(0, |cache| cache.positions());
        let rotation = self.model.rotary.at(start, length, &tokens.device());
        let mut x = self.model.embed_tokens.forward(tokens);
        for (number, layer) in self.model.layers.iter().enumerate() {
            let h = layer.input_layernorm.forward(x.clone());
            let kept = cache.as_deref_mut().map(|cache| cache.layer(number));
            x = x + layer.self_attn.forward(h, &rotation, kept);
            let h = layer.post_attention_layernorm.forward(x.clone());
            let (output, logits) = layer.feed_forward(h);
            routed.extend(logits);
            x = x + output;
            after_layer(&x);
        }
        let x = self.model.norm.forward(x);
        let logits = match &self.lm_head {
            Some(head) => head.forward(x),
            None => {
                let table = self.model.embed_tokens.weight.val();
                x.matmul(table.transpose().unsqueeze())
            }
        };
        (logits, routed)
    }

    /// The same decoder with a separate head, if the table of embeddings was the head.
    pub fn untied(mut self) -> Self {
        let table = self.model.embed_tokens.weight.val();
        self.lm_head.get_or_insert_with(|| Linear {
            weight: Param::from_data(table.clone().transpose().into_data(), &table.device()),
            bias: None,
        });
        self
    }

    /// The mean cross-entropy, in nats, of windows of `length + 1` tokens: each token but the first is predicted.
    pub fn loss(&self, windows: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let [_, length] = windows.dims();
        let logits = self.forward(windows.clone().narrow(1, 0, length - 1));
        cross_entropy(logits, windows)
    }

    /// [`loss`](Self::loss), and the [balance](balance_loss) of experts' loads times its factor in the config.
    pub fn training_loss(&self, windows: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let [_, length] = windows.dims();
        let mut mixtures = (self.model.layers.iter()).filter_map(|x| x.block_sparse_moe.as_ref());
        match mixtures.next().filter(|mixture| mixture.balance != 0.0) {
            None => self.loss(windows),
            Some(mixture) => {
                let inputs = windows.clone().narrow(1, 0, length - 1);
                let (logits, routed) = self.forward_routed(inputs);
                let balance = balance_loss(routed, mixture.per_token);
                cross_entropy(logits, windows) + balance * mixture.balance
            }
        }
    }
}

/// The mean cross-entropy of the logits of all tokens of windows but the last ones.
fn cross_entropy<B: MxTensorOps>(logits: Tensor<B, 3>, windows: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let [_, length] = windows.dims();
    let targets = windows.narrow(1, 1, length - 1).flatten::<1>(0, 1);
    let loss = CrossEntropyLossConfig::new().init(&targets.device());
    loss.forward(logits.flatten(0, 1), targets)
}

impl<B: MxTensorOps> SwiGlu<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let gate = silu(self.gate_proj.forward(x.clone()));
        self.down_proj.forward(gate * self.up_proj.forward(x))
    }
}
