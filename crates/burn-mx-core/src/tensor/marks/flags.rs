//! The marks.

use bitflags::bitflags;

bitflags! {
    /// Properties of a tensor in the emulation, beyond its values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u32 {
        /// A gradient that left autodiff: every op that it takes part in is an optimizer's.
        const OPTIMIZER_GRADIENT = 1;
        /// A parameter that left autodiff: an op on such parameters alone is an optimizer's.
        const OPTIMIZER_PARAMETER = 1 << 1;
        /// A leaf that requires gradients, or did: products use the weight formats for it.
        const WEIGHT = 1 << 2;
        /// The specs were set for this parameter by name; moving it to a device keeps them.
        const PINNED = 1 << 3;
        /// Computed at full precision in spite of the specs, like every result that follows from the tensor.
        const FULL_PRECISION = 1 << 4;
        /// The specs were chosen for this tensor, or by name for a parameter that it comes from: they are not its
        /// device's.
        const CHOSEN = 1 << 5;
        /// A leaf that requires gradients, or did, in any role: the gradients of several uses are summed without
        /// rounding.
        const PARAMETER = 1 << 7;
        /// The gradient of one use of a parameter, or of several.
        const PARAMETER_GRADIENT = 1 << 8;
        /// Neither an input nor a parameter has taken part. Ops on constants alone are computed at full precision.
        const CONSTANT = 1 << 9;
        /// Follows from the logarithm of a softmax: computed at full precision, like every later result up to the next
        /// layer.
        const LOSS = 1 << 10;
        /// Not computed. A constant with this flag was made by an op that creates tensors. An input with this flag has
        /// numbers that a model made on the device of an activation, such as a matrix of signs. Such numbers are a constant
        /// in a product with an activation. A device with this flag is an activation's.
        const LITERAL = 1 << 11;
        /// Follows from data and from a parameter.
        const ACTIVATION = 1 << 12;
        /// Follows from parameters, and otherwise from constants and literals alone.
        const OF_PARAMETERS = 1 << 13;
        /// An operand is data: the operand is not a constant, not an activation and not of parameters. This mark and the three
        /// below exist only while an op reads its operands.
        const OF_DATA = 1 << 14;
        /// An operand has one of the optimizer's marks.
        const OF_OPTIMIZER = 1 << 15;
        /// An operand is a weight without a mark of the optimizer. So the op belongs to the model.
        const OF_MODEL = 1 << 16;
        /// The op's specs emulate activations alone.
        const SCOPED = 1 << 17;
    }
}

impl Flags {
    pub(crate) const OPTIMIZER: Self = Self::OPTIMIZER_GRADIENT.union(Self::OPTIMIZER_PARAMETER);
    /// Computed at full precision, like every later result.
    pub(crate) const EXEMPT: Self = Self::FULL_PRECISION.union(Self::LOSS);
    /// The origin of a tensor, if that is not data alone. A gradient has its tensor's origin.
    pub(crate) const ORIGIN: Self = Self::ACTIVATION.union(Self::OF_PARAMETERS);
    /// Ops with such a result are the wrapped backend's.
    pub(crate) const PLAIN: Self = Self::OPTIMIZER.union(Self::EXEMPT).union(Self::CONSTANT);
}
