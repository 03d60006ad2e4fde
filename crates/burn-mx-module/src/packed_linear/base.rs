//! The frozen part of a packed linear layer, and its identity in records.

use std::cell::RefCell;

use burn_core::module::{
    AutodiffModule, Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor, Param,
};
use burn_core::tensor::Tensor;
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use microscaling::Packed;

use super::{LoraConfig, PackedLinearError};
use burn_mx_core::FrozenWeight;
use burn_mx_core::hooks::alone;

/// The packed weight.
#[derive(Clone, Debug)]
pub(super) struct Base<B: Backend> {
    pub(super) packed: FrozenWeight,
    /// A parameter of one element, whose specs, label and device are the weight's. So the functions for parameters reach them.
    pub(super) like: Param<Tensor<B, 1>>,
    /// The adapter that records must have.
    pub(super) config: Option<LoraConfig>,
    hash: u64,
}

/// The identity of layer and adapter in a record: shape and hash of the packed weight; rank, alpha and DoRA.
type Identity = (Vec<usize>, u64, Option<(usize, f64, bool)>);

impl<B: Backend> Base<B> {
    pub(super) fn new(packed: FrozenWeight, like: Param<Tensor<B, 1>>) -> Self {
        Self {
            hash: hash(packed.packed()),
            packed,
            like,
            config: None,
        }
    }

    fn identity(&self) -> Identity {
        let config = self
            .config
            .map(|LoraConfig { rank, alpha, dora }| (rank, alpha, dora));
        (self.packed.packed().shape().to_vec(), self.hash, config)
    }

    fn with_like(&self, like: Param<Tensor<B, 1>>) -> Self {
        Self {
            like,
            ..self.clone()
        }
    }
}

/// A hash of the bytes, by FNV-1a: the same on all machines and in all versions.
fn hash(packed: &Packed) -> u64 {
    let format = packed.format().to_string();
    let scales = [packed.tensor_scale(), packed.divisor()];
    let scales = scales
        .map(|scale| scale.unwrap_or(0.0).to_le_bytes())
        .concat();
    let bytes = [
        format.as_bytes(),
        &scales,
        packed.scales(),
        packed.elements(),
    ];
    let bytes = bytes.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn describe((shape, hash, config): &Identity) -> String {
    let adapter = config.map_or_else(
        || "without an adapter".to_owned(),
        |(rank, alpha, dora)| {
            let kind = if dora { "DoRA" } else { "LoRA" };
            format!("with {kind} of rank {rank} and alpha {alpha}")
        },
    );
    format!("a packed weight of shape {shape:?} and hash {hash:016x}, {adapter}")
}

thread_local! {
    /// The first refused record, while [`load_adapters`] loads.
    static REFUSED: RefCell<Option<Result<(), PackedLinearError>>> = const { RefCell::new(None) };
}

/// The model with a record that was made by [`Module::into_record`], or loaded by one of Burn's recorders. Burn's `load_record` and
/// `load_file` panic with the error where this function returns the error.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::Module;
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::{MxBackend, MxDevice, module::{LoraConfig, PackedLinear, load_adapters, pack}};
/// # use microscaling::Rounder;
/// let device = MxDevice::new(FlexDevice, "none")?;
/// let layer = |value: f32| -> Result<PackedLinear<MxBackend<Flex>>, Box<dyn std::error::Error>> {
///     let weight = Tensor::<MxBackend<Flex>, 2>::full([4, 32], value, &device);
///     let packed = pack(weight, 1, "mxfp4".parse()?, Rounder::NearestEven)?;
///     let config = LoraConfig { rank: 2, alpha: 4.0, dora: false };
///     Ok(PackedLinear::new(packed, None, &device)?.with_adapter(config)?)
/// };
/// assert!(load_adapters(layer(1.0)?, layer(1.0)?.into_record()).is_ok());
/// assert!(load_adapters(layer(1.0)?, layer(2.0)?.into_record()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`PackedLinearError::OtherBase`], if a [`PackedLinear`](super::PackedLinear) of the model has another packed weight than the record's,
/// or an adapter of another rank, alpha or kind.
pub fn load_adapters<B: Backend, M: Module<B>>(
    model: M,
    record: M::Record,
) -> Result<M, PackedLinearError> {
    struct Withdraw;
    impl Drop for Withdraw {
        fn drop(&mut self) {
            REFUSED.set(None);
        }
    }
    alone(|| {
        let _withdraw = Withdraw;
        REFUSED.set(Some(Ok(())));
        let model = model.load_record(record);
        REFUSED.take().unwrap_or(Ok(())).map(|()| model)
    })
}

impl<B: Backend> Module<B> for Base<B> {
    type Record = Identity;

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        self.like.collect_devices(devices)
    }

    fn fork(self, device: &B::Device) -> Self {
        self.with_like(self.like.clone().fork(device))
    }

    fn to_device(self, device: &B::Device) -> Self {
        self.with_like(self.like.clone().to_device(device))
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        self.like.visit(visitor);
    }

    fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        self.with_like(Module::map(self.like.clone(), mapper))
    }

    fn into_record(self) -> Identity {
        self.identity()
    }

    /// # Panics
    ///
    /// With [`PackedLinearError::OtherBase`], outside of [`load_adapters`].
    fn load_record(self, record: Identity) -> Self {
        let own = self.identity();
        if own == record {
            return self;
        }
        let error = PackedLinearError::OtherBase {
            got: describe(&record),
            expected: describe(&own),
        };
        REFUSED.with_borrow_mut(|refused| match refused {
            None => panic!("burn-mx: {error}"),
            Some(Ok(())) => *refused = Some(Err(error)),
            Some(Err(_)) => {}
        });
        self
    }
}

impl<B: AutodiffBackend> AutodiffModule<B> for Base<B> {
    type InnerModule = Base<B::InnerBackend>;

    fn valid(&self) -> Self::InnerModule {
        Base {
            packed: self.packed.clone(),
            like: self.like.valid(),
            config: self.config,
            hash: self.hash,
        }
    }

    fn from_inner(module: Self::InnerModule) -> Self {
        Self {
            packed: module.packed,
            like: Param::from_inner(module.like),
            config: module.config,
            hash: module.hash,
        }
    }
}

impl<B: Backend> ModuleDisplayDefault for Base<B> {
    fn content(&self, content: Content) -> Option<Content> {
        content
            .add_formatted(&describe(&self.identity()))
            .optional()
    }
}

impl<B: Backend> ModuleDisplay for Base<B> {}
