//! Linear layers whose weight is a parameter, or frozen and packed with an adapter.

use burn::module::{
    AutodiffModule, Content, Devices, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor,
};
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn_mx::module::{MxTensorOps, PackedLinear};

/// A linear layer of the decoder. Its parameters have the paths that the inner layer's have in the place of this one.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a model has one kind in nearly all layers"
)]
pub enum Projection<B: Backend> {
    /// The weight is a parameter.
    Float(Linear<B>),
    /// The weight is frozen and packed.
    Packed(Box<PackedLinear<B>>),
}

use Projection::{Float, Packed};

impl<B: MxTensorOps> Projection<B> {
    pub(super) fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Float(linear) => linear.forward(x),
            Packed(packed) => packed.forward(x),
        }
    }

    /// The weight `[in, out]`, without an adapter.
    pub fn weight(&self) -> Tensor<B, 2> {
        match self {
            Float(linear) => linear.weight.val(),
            Packed(packed) => packed.weight(),
        }
    }
}

/// The records of both kinds, of which a layer has one.
type Records<B> = (
    Option<<Linear<B> as Module<B>>::Record>,
    Option<<PackedLinear<B> as Module<B>>::Record>,
);

/// Burn derives the trait for enums with the variant's name in each path, which no checkpoint has.
impl<B: Backend> Module<B> for Projection<B> {
    type Record = Records<B>;

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        match self {
            Float(linear) => linear.collect_devices(devices),
            Packed(packed) => packed.collect_devices(devices),
        }
    }

    fn fork(self, device: &B::Device) -> Self {
        match self {
            Float(linear) => Float(linear.fork(device)),
            Packed(packed) => Packed(Box::new(packed.fork(device))),
        }
    }

    fn to_device(self, device: &B::Device) -> Self {
        match self {
            Float(linear) => Float(linear.to_device(device)),
            Packed(packed) => Packed(Box::new(packed.to_device(device))),
        }
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        match self {
            Float(linear) => linear.visit(visitor),
            Packed(packed) => packed.visit(visitor),
        }
    }

    fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        match self {
            Float(linear) => Float(linear.map(mapper)),
            Packed(packed) => Packed(Box::new(packed.map(mapper))),
        }
    }

    fn into_record(self) -> Self::Record {
        match self {
            Float(linear) => (Some(linear.into_record()), None),
            Packed(packed) => (None, Some(packed.into_record())),
        }
    }

    /// # Panics
    ///
    /// If the record is of the other kind.
    fn load_record(self, record: Self::Record) -> Self {
        match (self, record) {
            (Float(linear), (Some(record), None)) => Float(linear.load_record(record)),
            (Packed(packed), (None, Some(record))) => Packed(Box::new(packed.load_record(record))),
            _ => panic!("a record of packed layers belongs to a model with packed layers"),
        }
    }
}

impl<B: AutodiffBackend> AutodiffModule<B> for Projection<B> {
    type InnerModule = Projection<B::InnerBackend>;

    fn valid(&self) -> Self::InnerModule {
        match self {
            Float(linear) => Float(linear.valid()),
            Packed(packed) => Packed(Box::new(packed.valid())),
        }
    }

    fn from_inner(module: Self::InnerModule) -> Self {
        match module {
            Float(linear) => Float(AutodiffModule::from_inner(linear)),
            Packed(packed) => Packed(Box::new(AutodiffModule::from_inner(*packed))),
        }
    }
}

impl<B: Backend> ModuleDisplayDefault for Projection<B> {
    fn content(&self, content: Content) -> Option<Content> {
        match self {
            Float(linear) => linear.content(content),
            Packed(packed) => packed.content(content),
        }
    }
}

impl<B: Backend> ModuleDisplay for Projection<B> {}
