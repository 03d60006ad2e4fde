//! Why a tensor is not in the other side's form.

use thiserror::Error;

/// Why a packed tensor has no form as a quantized tensor of Burn, or the other way round.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuantizedError {
    /// Burn's `QuantValue` does not have the elements.
    #[error(
        "the elements are {element}; allowed: int8, int4, int2, fp8_e4m3, fp8_e5m2 and fp4_e2m1, the elements of Burn's QuantValue"
    )]
    Element {
        /// The format of the elements.
        element: String,
    },
    /// Burn's `QuantScheme` has one scale for an element.
    #[error(
        "the format is {format}; allowed: formats whose numbers are an element times one scale, as Burn's QuantScheme has them"
    )]
    Scales {
        /// The format.
        format: String,
    },
    /// The blocks lie along another axis.
    #[error(
        "blocks lie along axis {axis} of {axes}; allowed: the last axis. Burn's processor backends read other blocks as lying along the last axis"
    )]
    Axis {
        /// The axis.
        axis: usize,
        /// The number of axes.
        axes: usize,
    },
    /// Burn's `BlockSize` does not have the blocks.
    #[error(
        "blocks of {block} along an axis of {length}; allowed: blocks that divide the axis, of at most 255 elements or with a divisor of 16 to 255, the lengths of Burn's BlockSize"
    )]
    Blocks {
        /// Elements of a block.
        block: usize,
        /// Elements of the axis.
        length: usize,
    },
    /// Burn's `QuantStore` has pairs of E2M1.
    #[error(
        "the last axis has {length} elements of fp4_e2m1; allowed: an even number, because Burn's QuantStore has pairs"
    )]
    Pairs {
        /// Elements of the axis.
        length: usize,
    },
    /// The tensor is empty.
    #[error("the tensor has no elements; allowed: at least one")]
    Empty,
    /// The two sides compute different values.
    #[error(
        "element {position} is {own} in the packed tensor and {burn} as a float32 product of Burn's element and scale; allowed: equal numbers"
    )]
    Value {
        /// The position in row-major order.
        position: usize,
        /// The value of the packed tensor.
        own: String,
        /// The value of Burn's tensor.
        burn: String,
    },
    /// Burn's backend does not take the elements.
    #[error(
        "{backend} takes no quantized tensor of {element} in Burn 0.21; allowed: int8, int4 and int2 on Flex, int8 on NdArray, all on CubeCL's backends"
    )]
    Backend {
        /// Burn's name of the backend.
        backend: String,
        /// The format of the elements.
        element: String,
    },
    /// The data of Burn are not ones that this crate reads.
    #[error("{field} is {got}; allowed: {allowed}")]
    Data {
        /// The part of the data or of Burn's scheme.
        field: &'static str,
        /// The value.
        got: String,
        /// The allowed values.
        allowed: String,
    },
    /// A parameter of a module.
    #[error("{path}: {error}")]
    At {
        /// The parameter's path.
        path: String,
        /// The error.
        error: Box<Self>,
    },
}

microscaling::debug_is_display!(QuantizedError);
