//! Random layers, one after another, of a matrix [rows, features].

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{
    GroupNormConfig, GruConfig, LayerNormConfig, LstmConfig, PReluConfig, RmsNormConfig,
};
use burn::prelude::*;
use burn::tensor::module::*;
use burn::tensor::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConvOptions,
};
use burn::tensor::{TensorPrimitive, activation, ops::FloatTensor};
use burn_mx::attention_scope;
use burn_mx::module::{as_activation, as_weight, emulated, full_precision, rms_norm, silu};
use burn_mx_core::MxModelOps;

use super::random::Random;
use crate::support::*;

/// Its kind and the numbers that decide the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    pub(super) kind: usize,
    pub(super) numbers: [u8; 8],
}

/// The tensors of a model, made in turn, and taken again in a second pass.
pub(super) struct Net<B: Backend> {
    pub(super) device: B::Device,
    pub(super) leaves: Vec<FloatTensor<B>>,
    next: usize,
    seed: u64,
    /// Devices with other specs, on which parameters are made in turn.
    pub(super) others: Vec<B::Device>,
    /// Whether some tensors have NaN, Inf, subnormals and numbers near float32's ends.
    is_wild: bool,
}

impl<B: MxModelOps> Net<B> {
    pub(super) fn new(device: B::Device, seed: u64, is_wild: bool) -> Self {
        Self {
            device,
            leaves: Vec::new(),
            next: 0,
            seed,
            others: Vec::new(),
            is_wild,
        }
    }

    /// The same tensors on another backend.
    pub(super) fn on<C: MxModelOps>(
        &self,
        device: C::Device,
        leaf: impl Fn(FloatTensor<B>) -> FloatTensor<C>,
    ) -> Net<C> {
        Net {
            device,
            leaves: self.leaves.iter().cloned().map(leaf).collect(),
            next: 0,
            seed: 0,
            others: Vec::new(),
            is_wild: self.is_wild,
        }
    }

    /// Begins a pass.
    pub(super) fn restart(&mut self, seed: u64) {
        (self.next, self.seed) = (0, seed);
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        self.seed = self.seed.wrapping_add(1);
        let random = &mut Random::new(self.seed);
        match random.below(6) {
            0 if self.is_wild => random.values(count),
            1 => {
                let unit = [1.0, 0.25, 0.125][random.below(3)];
                let number = |_| (random.below(9) as f32 - 4.0) * unit;
                (0..count).map(number).collect()
            }
            _ => noise(count, self.seed),
        }
    }

    pub(super) fn data<const D: usize>(&mut self, shape: [usize; D]) -> Tensor<B, D> {
        let values = self.numbers(shape.iter().product());
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// A parameter.
    pub(super) fn leaf<const D: usize>(&mut self, shape: [usize; D]) -> Tensor<B, D> {
        if self.next == self.leaves.len() {
            let others = self.others.len();
            let mut leaf = self.data(shape);
            if let Some(other) = self.others.get(self.next % others.max(1)) {
                leaf = leaf.to_device(other);
            }
            let leaf = leaf.require_grad();
            self.leaves.push(leaf.into_primitive().tensor());
        } else {
            self.seed = self.seed.wrapping_add(1);
        }
        self.next += 1;
        Tensor::from_primitive(TensorPrimitive::Float(self.leaves[self.next - 1].clone()))
    }

    fn module<M: Module<B>>(&mut self, module: M) -> M {
        struct Leaves<'a, B: Backend>(&'a mut Net<B>);
        impl<B: Backend> ModuleVisitor<B> for Leaves<'_, B> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
                if self.0.next == self.0.leaves.len() {
                    self.0.leaves.push(param.val().into_primitive().tensor());
                }
                self.0.next += 1;
            }
        }
        self.seed = self.seed.wrapping_add(1);
        let module = with_noise_weights(module, self.seed);
        module.visit(&mut Leaves(self));
        module
    }
}

/// The largest divisor of a number that is at most `most`.
fn divisor(number: usize, most: usize) -> usize {
    let most = most.clamp(1, number.max(1));
    (1..=most)
        .rev()
        .find(|d| number.is_multiple_of(*d))
        .unwrap_or(1)
}

/// The same numbers, as they lie after other ops.
fn view<B: Backend>(x: Tensor<B, 2>, how: u8) -> Tensor<B, 2> {
    let [rows, columns] = x.dims();
    match how % 8 {
        _ if rows == 0 => x,
        0 => {
            let x = x.transpose();
            Tensor::cat(vec![x.clone(), x], 0)
                .narrow(0, columns, columns)
                .transpose()
        }
        1 => Tensor::cat(vec![x.clone(), x], 1).narrow(1, columns, columns),
        2 => Tensor::cat(vec![x.clone(), x], 0).narrow(0, rows, rows),
        3 => x.flip([1]).flip([1]),
        _ => x,
    }
}

fn back<B: Backend, const D: usize>(y: Tensor<B, D>, rows: usize) -> Tensor<B, 2> {
    let elements: usize = y.dims().iter().product();
    let columns = elements.checked_div(rows).unwrap_or(y.dims()[D - 1]);
    let y = y.reshape([rows, columns]);
    y.narrow(1, 0, columns.min(400))
}

impl Layer {
    pub(super) const KINDS: usize = 22;

    /// Whether Burn alone may compute the layer: a piece in full precision, or `log_softmax`.
    pub(super) fn is_exempt(&self) -> bool {
        let inner = usize::from(self.numbers[0]) % 20;
        [9, 20].contains(&self.kind) || self.kind == 21 && inner == 9
    }

    fn flag(self, i: usize) -> bool {
        self.numbers[i] % 2 == 1
    }

    fn up_to(self, i: usize, most: usize) -> usize {
        1 + usize::from(self.numbers[i]) % most
    }

    pub(super) fn forward<B: MxModelOps>(
        mut self,
        x: Tensor<B, 2>,
        net: &mut Net<B>,
    ) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        if rows == 0 {
            // Burn takes a 0 in `reshape` for the old length.
            self.kind = [0, 10, 12][self.kind % 3];
            self.numbers[3] = 7;
        }
        let x = view(x, self.numbers[7]);
        let y = match self.kind {
            0 | 1 => self.linear(x, net),
            2 => self.weight_in_matmul(x, net),
            3 => self.activations(x),
            4 | 5 => self.convolution(x, net),
            6 => self.convolution_2d(x, net),
            7 => self.attention(x, net),
            8 => self.norm(x, net),
            9 => {
                let dim = usize::from(self.flag(0));
                match self.numbers[1] % 3 {
                    0 => activation::log_softmax(x, dim),
                    _ => activation::softmax(x, dim),
                }
            }
            10 | 11 => self.function(x, net),
            12 => self.arithmetic(x, net),
            13 => self.recurrent(x, net),
            14 => self.moved(x),
            15 => self.pooled(x),
            16 => {
                let outputs = self.up_to(0, 40);
                let table = Tensor::<B, 1, Int>::arange(0..(columns * outputs) as i64, &net.device);
                let table = (table.float() * 0.01).sin().reshape([columns, outputs]);
                x.matmul(table)
            }
            17 => self.deformed(x, net),
            18 => self.convolution_3d(x, net),
            19 => self.embedded(x, net),
            20 => {
                let inner = Self {
                    kind: usize::from(self.numbers[0]) % 20,
                    ..self
                };
                emulated(inner.forward(full_precision(x), net))
            }
            _ => {
                let inner = Self {
                    kind: usize::from(self.numbers[0]) % 20,
                    ..self
                };
                let y = inner.forward(x.clone(), net);
                let common = rows.min(y.dims()[0]);
                match y.dims() == [rows, columns] {
                    true => x + y,
                    _ if rows == 0 => y,
                    false => {
                        let parts = [x.narrow(1, 0, columns.min(3)), y];
                        Tensor::cat(parts.map(|part| part.narrow(0, 0, common)).into(), 1)
                    }
                }
            }
        };
        let [rows, columns] = y.dims();
        match rows {
            0..=400 => y.narrow(1, 0, columns.min(400)),
            _ => y.narrow(0, 0, 400).narrow(1, 0, columns.min(400)),
        }
    }

    fn weight<B: MxModelOps>(self, i: usize, shape: [usize; 2], net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = shape;
        let weight = match self.numbers[i] % 5 {
            0 => net.leaf([columns, rows]).transpose(),
            1 => net.leaf([rows + 2, columns]).narrow(0, 1, rows),
            2 => net.leaf([rows, columns]) * 1.5,
            _ => net.leaf([rows, columns]),
        };
        match self.numbers[i] % 17 {
            15 => as_activation(weight),
            16 => as_weight(weight),
            _ => weight,
        }
    }

    fn linear<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let outputs = self.up_to(0, 70);
        let weight = self.weight(1, [columns, outputs], net);
        let bias = self.flag(2).then(|| net.leaf([outputs]));
        let part = divisor(rows, self.up_to(4, 5));
        let twice = |x: Tensor<B, 2>| linear(x, weight.clone(), bias.clone());
        match self.numbers[3] % 8 {
            0 if rows == 1 => linear(x.reshape([columns]), weight, bias).reshape([1, outputs]),
            1 => back(
                linear(x.reshape([part, rows / part, columns]), weight, bias),
                rows,
            ),
            2 => {
                let x = x.reshape([rows / part, part, columns]).swap_dims(0, 1);
                back(linear(x, weight, bias), rows)
            }
            3 => back(
                linear(x.reshape([1, part, rows / part, columns]), weight, bias),
                rows,
            ),
            4 => {
                let x = x.reshape([1, rows, columns]).expand([3, rows, columns]);
                linear(x, weight, bias).sum_dim(0).reshape([rows, outputs])
            }
            5 if outputs == columns => twice(twice(x)),
            6 => linear(activation::relu(twice(x)), weight.transpose(), None),
            _ => twice(x),
        }
    }

    fn weight_in_matmul<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let outputs = self.up_to(0, 50);
        let part = divisor(rows, self.up_to(4, 5));
        match self.numbers[2] % 5 {
            0 => self.weight(1, [outputs, rows], net).matmul(x),
            1 => {
                let weight = self.weight(1, [columns, outputs], net);
                let weight = weight.unsqueeze::<3>().expand([part, columns, outputs]);
                back(x.reshape([part, rows / part, columns]).matmul(weight), rows)
            }
            2 => {
                let weight = net.leaf([part, columns, outputs]);
                back(x.reshape([part, rows / part, columns]).matmul(weight), rows)
            }
            3 => {
                let weight = self.weight(1, [columns, outputs], net);
                x.clone().matmul(weight.clone()).matmul(weight.transpose())
            }
            _ => x.matmul(self.weight(1, [columns, outputs], net)),
        }
    }

    fn activations<B: Backend>(self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let part = divisor(rows, self.up_to(0, 5));
        let three = x.clone().reshape([part, rows / part, columns]);
        match self.numbers[1] % 6 {
            0 => x.clone().matmul(x.transpose()),
            1 => x.clone().transpose().matmul(x),
            2 => back(three.clone().matmul(three.swap_dims(1, 2)), rows),
            3 => back(three.clone().swap_dims(1, 2).matmul(three), part),
            4 => {
                let one = three.clone().narrow(0, 0, 1);
                back(three.matmul(one.swap_dims(1, 2)), rows)
            }
            _ => {
                let one = three.clone().narrow(0, 0, 1);
                back(one.matmul(three.swap_dims(1, 2)), part)
            }
        }
    }

    /// Channels, groups, outputs, window, stride, padding and dilation of an axis.
    fn geometry(self, columns: usize) -> [usize; 7] {
        let channels = divisor(columns, self.up_to(0, 16));
        let groups = divisor(channels, if self.flag(1) { self.up_to(1, 4) } else { 1 });
        let length = columns / channels;
        let padding = usize::from(self.numbers[2]) % 3;
        let window = self.up_to(3, 3).min(length + 2 * padding);
        let room = length + 2 * padding;
        let dilation = match (window - 1) * 2 < room && self.flag(4) {
            true => 2,
            false => 1,
        };
        let stride = self.up_to(5, 3);
        [
            channels,
            groups,
            self.up_to(6, 12) * groups,
            window,
            stride,
            padding,
            dilation,
        ]
    }

    fn convolution<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let [channels, groups, outputs, window, stride, padding, dilation] = self.geometry(columns);
        let x = match self.flag(6) {
            true => x.reshape([rows, channels, columns / channels]),
            false => x
                .reshape([rows, columns / channels, channels])
                .swap_dims(1, 2),
        };
        let bias = self.flag(5).then(|| net.leaf([outputs]));
        if self.kind == 4 {
            let weight = net.leaf([outputs, channels / groups, window]);
            let options = ConvOptions::new([stride], [padding], [dilation], groups);
            return back(conv1d(x, weight, bias, options), rows);
        }
        let weight = net.leaf([channels, outputs / groups, window]);
        let padding = padding.min((window - 1) * dilation / 2);
        let options =
            ConvTransposeOptions::new([stride], [padding], [stride - 1], [dilation], groups);
        back(conv_transpose1d(x, weight, bias, options), rows)
    }

    fn convolution_2d<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let [channels, groups, outputs, window, stride, padding, dilation] = self.geometry(columns);
        let length = columns / channels;
        let height = divisor(length, self.up_to(7, 4));
        let x = x.reshape([rows, channels, height, length / height]);
        let bias = self.flag(5).then(|| net.leaf([outputs]));
        let window = [1.max(window.min(height)), window];
        let dilation = [1, dilation];
        let fits = (0..2).all(|i| {
            let length = [height, length / height][i];
            (window[i] - 1) * dilation[i] < length + 2 * padding
        });
        let dilation = if fits { dilation } else { [1, 1] };
        let window = if fits { window } else { [1, 1] };
        if !self.numbers[6].is_multiple_of(3) {
            let weight = net.leaf([outputs, channels / groups, window[0], window[1]]);
            let options = ConvOptions::new([1, stride], [padding; 2], dilation, groups);
            return back(conv2d(x, weight, bias, options), rows);
        }
        let weight = net.leaf([channels, outputs / groups, window[0], window[1]]);
        let options = ConvTransposeOptions::new([1, stride], [0, 0], [0, 0], dilation, groups);
        back(conv_transpose2d(x, weight, bias, options), rows)
    }

    fn deformed<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let [channels, groups, outputs, window, _, padding, _] = self.geometry(columns);
        let length = columns / channels;
        let height = divisor(length, self.up_to(7, 4));
        let width = length / height;
        let window = window.min(width);
        let x = x.reshape([rows, channels, height, width]);
        let weight = net.leaf([outputs, channels / groups, 1, window]);
        let [rows_out, columns_out] = [height + 2 * padding, width + 2 * padding + 1 - window];
        let offset = net.leaf([rows, 2 * window, rows_out, columns_out]);
        let mask = self
            .flag(4)
            .then(|| net.leaf([rows, window, rows_out, columns_out]));
        let bias = self.flag(5).then(|| net.leaf([outputs]));
        let options = DeformConvOptions::new([1, 1], [padding; 2], [1, 1], groups, 1);
        back(deform_conv2d(x, offset, weight, mask, bias, options), rows)
    }

    fn convolution_3d<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let [channels, groups, outputs, window, stride, padding, _] = self.geometry(columns);
        let length = columns / channels;
        let depth = divisor(length, self.up_to(7, 3));
        let height = divisor(length / depth, 2);
        let width = length / depth / height;
        let x = x.reshape([rows, channels, depth, height, width]);
        let window = [window.min(depth), 1, window.min(width)];
        let bias = self.flag(5).then(|| net.leaf([outputs]));
        let [a, b, c] = window;
        if self.flag(6) {
            let weight = net.leaf([outputs, channels / groups, a, b, c]);
            let options = ConvOptions::new([stride, 1, 1], [0, 0, padding], [1; 3], groups);
            return back(conv3d(x, weight, bias, options), rows);
        }
        let weight = net.leaf([channels, outputs / groups, a, b, c]);
        let options = ConvTransposeOptions::new([stride, 1, 1], [0; 3], [0; 3], [1; 3], groups);
        back(conv_transpose3d(x, weight, bias, options), rows)
    }

    /// With an embedding of numbers, or of the largest elements of rows.
    fn embedded<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let device = net.device.clone();
        let ids = match self.flag(0) {
            true => x.clone().argmax(1),
            false => {
                let ids = (0..rows)
                    .map(|i| (i * 7 % columns) as i64)
                    .collect::<Vec<_>>();
                Tensor::<B, 1, Int>::from_data(&*ids, &device).reshape([rows, 1])
            }
        };
        let table = net.leaf([columns, columns]);
        let rows_of_table = match self.flag(1) {
            true => embedding(table, ids).reshape([rows, columns]),
            false => table.select(0, ids.reshape([rows])),
        };
        x + rows_of_table
    }

    fn attention<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let (heads, features) = (self.up_to(0, 3), self.up_to(1, 20));
        let batch = divisor(rows, self.up_to(2, 3));
        let keys = rows / batch;
        let [q, k, v] = [0, 1, 2].map(|i| {
            let features = if i == 2 { self.up_to(3, 20) } else { features };
            let weight = net.leaf([columns, heads * features]);
            let x = x
                .clone()
                .matmul(weight)
                .reshape([batch, keys, heads, features]);
            x.swap_dims(1, 2)
        });
        let hidden = (0..keys * keys).map(|at| at % 3 == 1 || self.flag(5) && at < keys);
        let mask = Tensor::<B, 1, Bool>::from_data(&*hidden.collect::<Vec<_>>(), &net.device);
        let mask = mask
            .reshape([1, 1, keys, keys])
            .expand([batch, heads, keys, keys]);
        let mask = self.flag(4).then_some(mask);
        let bias = self.numbers[6]
            .is_multiple_of(4)
            .then(|| net.leaf([1, heads, keys, keys]));
        let out = if self.flag(6) {
            attention_scope(|| {
                let mut scores = q.matmul(k.transpose()) * 0.4;
                if let Some(mask) = mask {
                    scores = scores.mask_fill(mask, f32::NEG_INFINITY);
                }
                if let Some(bias) = bias {
                    scores = scores + bias;
                }
                activation::softmax(scores, 3).matmul(v)
            })
        } else {
            let options = AttentionModuleOptions {
                scale: self.flag(2).then_some(0.4),
                softcap: self.numbers[5].is_multiple_of(4).then_some(1.5),
                is_causal: self.flag(3),
            };
            attention(q, k, v, mask, bias, options)
        };
        back(out.swap_dims(1, 2), rows)
    }

    fn norm<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let device = net.device.clone();
        let part = divisor(rows, self.up_to(1, 4));
        match self.numbers[0] % 5 {
            0 => net
                .module(RmsNormConfig::new(columns).init(&device))
                .forward(x),
            1 => {
                let beta = self.flag(1).then(|| net.leaf([columns]));
                let gamma = net.leaf([columns]);
                rms_norm(x, gamma, beta, 1e-5)
            }
            2 => {
                let channels = divisor(columns, self.up_to(1, 8));
                let groups = divisor(channels, self.up_to(2, 4));
                let norm = net.module(GroupNormConfig::new(groups, channels).init(&device));
                let x = x.reshape([rows, channels, columns / channels]);
                back(norm.forward(x), rows)
            }
            3 => {
                let norm = net.module(LayerNormConfig::new(columns).init(&device));
                let x = x.reshape([rows / part, part, columns]).swap_dims(0, 1);
                back(norm.forward(x), rows)
            }
            _ => net
                .module(LayerNormConfig::new(columns).init(&device))
                .forward(x),
        }
    }

    fn function<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let device = net.device.clone();
        match self.numbers[0] % 20 {
            0 => activation::relu(x),
            1 => activation::gelu(x),
            2 => activation::gelu_approximate(x),
            3 => activation::sigmoid(x),
            4 => activation::tanh(x),
            5 => silu(x),
            6 => activation::silu(x),
            7 => activation::leaky_relu(x, 0.013),
            8 => net.module(PReluConfig::new().init(&device)).forward(x),
            9 => activation::log_sigmoid(x),
            10 => activation::softplus(x, 1.3),
            11 => activation::mish(x),
            12 => x.exp(),
            13 => x.abs().log(),
            14 => x.abs().sqrt(),
            15 => x.recip(),
            16 => x.square(),
            17 => x.sin(),
            18 => x.powf_scalar(1.7),
            _ => x.clamp(-0.5, 0.6),
        }
    }

    fn arithmetic<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let other = match self.numbers[1] % 4 {
            0 => net.leaf([1, columns]),
            1 => net.leaf([rows, 1]),
            2 => net.data([rows, columns]),
            _ => x.clone().flip([0]),
        };
        match self.numbers[0] % 10 {
            0 => x + other,
            1 => x - other,
            2 => other - x,
            3 => x * other,
            4 => x / other,
            5 => other / x,
            6 => x.clone() - x.mean_dim(1),
            7 => x.clone() / (x.square().sum_dim(0) + 0.5),
            8 => (x * 1.7 + 0.3) / 0.9,
            _ => x.max_pair(other),
        }
    }

    fn recurrent<B: MxModelOps>(self, x: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let steps = divisor(columns, self.up_to(0, 4));
        let inputs = columns / steps;
        let (hidden, device) = (self.up_to(1, 9), net.device.clone());
        let x = x.reshape([rows, steps, inputs]);
        let y = match self.flag(2) {
            true => {
                let lstm = LstmConfig::new(inputs, hidden, self.flag(3)).init(&device);
                net.module(lstm).forward(x, None).0
            }
            false => {
                let gru = GruConfig::new(inputs, hidden, self.flag(3)).init(&device);
                net.module(gru).forward(x, None)
            }
        };
        back(y, rows)
    }

    fn moved<B: Backend>(self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        match self.numbers[0] % 8 {
            0 => x.transpose(),
            1 => x.flip([0]),
            2 => x.narrow(0, 0, rows.div_ceil(2)),
            3 => x.narrow(1, columns / 2, columns - columns / 2),
            4 => Tensor::cat(vec![x.clone(), x.flip([1])], 1),
            5 => x.repeat_dim(0, 2),
            6 => x.sort(1),
            _ => x.clone().mask_fill(x.lower_elem(0.1), 0.123),
        }
    }

    fn pooled<B: Backend>(self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [rows, columns] = x.dims();
        let channels = divisor(columns, self.up_to(0, 6));
        let length = columns / channels;
        let x = x.reshape([rows, channels, length]);
        let window = self.up_to(1, 3).min(length);
        match self.numbers[2] % 3 {
            0 => back(avg_pool1d(x, window, 1, 0, true, false), rows),
            1 => back(max_pool1d(x, window, 1, 0, 1, false), rows),
            _ => back(adaptive_avg_pool1d(x, window), rows),
        }
    }
}
