//! The tables: the rules about the marks of one tensor, and the marks of an op's result.

use super::{Flags, ResultRow, Rule, Step};

rules! {
    /// A leaf that requires gradients, or the new value of a weight.
    LEAF { loses [CONSTANT LITERAL LOSS ACTIVATION] gains [WEIGHT PARAMETER OF_PARAMETERS]; }
    /// A layer takes the tensor as an activation.
    ACTIVATION { loses [WEIGHT CONSTANT LITERAL OF_PARAMETERS] gains [ACTIVATION]; }
    /// A caller says that the tensor is not a parameter.
    NO_PARAMETER { loses [PARAMETER]; }
    /// A layer takes the tensor as its weight or bias.
    PLACE_OF_WEIGHT { gains [WEIGHT]; }
    /// A convolution takes the tensor, and neither as weight nor as bias.
    OTHER_PLACE { loses [WEIGHT]; }
    /// An activation becomes data, a number about the model: reduced to one element as a loss is, or detached as a target or a
    /// batch's statistics are.
    REDUCED { loses [ACTIVATION]; }
    /// A product takes the tensor: a constant is an activation there.
    FACTOR { loses [CONSTANT]; }
    /// A product with a weight takes the tensor: a loss ends where a layer begins.
    FACTOR_BESIDE_WEIGHT { loses [LOSS]; }
    /// A power takes the tensor as an exponent that is a single number: it counts as a scalar.
    CONSTANT { gains [CONSTANT]; }
    /// Integers or booleans. They are exact, so no exemption passes through them to the tensors that they index, count or mask. Nor are they
    /// a parameter's values. The optimizer's mark comes out weak, like a device's.
    INDICES { has [OPTIMIZER] gains [OPTIMIZER_PARAMETER]; loses [EXEMPT OPTIMIZER_GRADIENT WEIGHT]; }
    /// Another shape or order of the other tensor.
    VIEW { copies [WEIGHT PARAMETER PARAMETER_GRADIENT PINNED LITERAL]; }
    /// A piece at full precision takes the tensor.
    FULL_PRECISION { gains [FULL_PRECISION]; }
    /// A caller ends the exemption of the tensor.
    EMULATED { loses [EXEMPT CONSTANT LITERAL]; }
    /// The op is in the other tensor's piece at full precision.
    IN_PIECE_OF { copies [FULL_PRECISION]; }
    /// The piece at full precision ends; the other is the tensor that the piece took.
    AFTER_PIECE { loses [FULL_PRECISION] copies [FULL_PRECISION]; }
    /// An op that is exempt as the other is takes the tensor.
    EXEMPT_AS { copies [EXEMPT]; }
    /// A loss begins.
    LOSS { gains [LOSS]; }
    /// The gradient of the other tensor.
    GRADIENT { loses [ORIGIN WEIGHT PARAMETER_GRADIENT] copies [ORIGIN]; other_has [PARAMETER] gains [PARAMETER_GRADIENT]; }
    /// The sum of two gradients of one parameter.
    SUM_OF_GRADIENTS { gains [PARAMETER_GRADIENT]; }
    /// A gradient leaves autodiff, or a caller says that arithmetic on the tensor is an optimizer's.
    OPTIMIZER_GRADIENT { gains [OPTIMIZER_GRADIENT]; }
    /// A tensor leaves autodiff: a parameter keeps its master values.
    LEAVES_AUTODIFF { has [WEIGHT] gains [OPTIMIZER_PARAMETER]; }
    /// A tensor enters autodiff.
    ENTERS_AUTODIFF { loses [OPTIMIZER]; }
    /// The tensor's device, for tensors that are created or moved there. Optimizers create their state on devices of other tensors, and so
    /// does burn-autodiff in a backward pass, so exemptions stay. The optimizer's mark comes out weak: enough for the optimizer's
    /// arithmetic, which mixes with nothing else.
    DEVICE {
        loses [LITERAL];
        lacks [OPTIMIZER WEIGHT PARAMETER] gains [LITERAL];
        has [OPTIMIZER] gains [OPTIMIZER_PARAMETER];
        loses [OPTIMIZER_GRADIENT WEIGHT PARAMETER PARAMETER_GRADIENT PINNED];
    }
    /// A tensor is created from given numbers on a device with these marks. The tensor may outlive a piece at full precision, so
    /// no exemption reaches the tensor.
    CREATED { loses [CONSTANT EXEMPT ORIGIN]; }
    /// A tensor is created from no numbers but the op's own.
    CREATED_CONSTANT { loses [EXEMPT ORIGIN] gains [CONSTANT LITERAL]; }
    /// As `CREATED`, in a backward pass: burn-autodiff creates tensors that end with the gradients.
    CREATED_IN_BACKWARD { loses [CONSTANT]; }
    /// As `CREATED_CONSTANT`, in a backward pass.
    CREATED_CONSTANT_IN_BACKWARD { loses [CONSTANT LITERAL]; }
    /// A move to the other, a device. A constant's device makes data: Burn loads batch norm's statistics as if they were
    /// parameters, and moves them there. An optimizer's state takes the device's weak mark, a parameter does not. An activation's
    /// device keeps an exemption only if the activation has it.
    MOVED {
        other_has [CONSTANT] loses [WEIGHT PARAMETER OF_PARAMETERS];
        other_lacks [OPTIMIZER_PARAMETER] loses [OPTIMIZER_PARAMETER];
        lacks [WEIGHT] copies [OPTIMIZER_PARAMETER];
        has [OPTIMIZER_GRADIENT] lacks [WEIGHT] loses [PINNED CHOSEN];
        other_has [LITERAL] other_lacks [FULL_PRECISION] loses [FULL_PRECISION];
        other_has [LITERAL] other_lacks [LOSS] loses [LOSS];
    }
    /// The specs become the other's, a device's.
    SPECS_OF_DEVICE { loses [CHOSEN] copies [CHOSEN]; }
    /// Specs are chosen for the tensor.
    CHOSEN { gains [CHOSEN]; }
    /// Specs are set for a parameter by name.
    PINNED { gains [PINNED]; }
    /// Specs set by name are taken back.
    UNPINNED { loses [PINNED]; }
    /// An op takes the tensor: marks for the table of ops.
    OPERAND {
        lacks [ORIGIN CONSTANT] gains [OF_DATA];
        has [OPTIMIZER] gains [OF_OPTIMIZER];
        has [WEIGHT] lacks [OPTIMIZER] gains [OF_MODEL];
    }
    /// An op takes the tensor, a constant, beside other operands: what the op is computed by, the others say.
    CONSTANT_BESIDE_OTHERS { loses [WEIGHT ORIGIN OF_DATA OPTIMIZER_PARAMETER OF_OPTIMIZER CONSTANT]; }
}

rows! {
    any [FULL_PRECISION] gains [FULL_PRECISION];
    any [LOSS] gains [LOSS];
    any [OPTIMIZER_GRADIENT] none [OF_MODEL] gains [OPTIMIZER_GRADIENT];
    all [OF_OPTIMIZER] none [OPTIMIZER_GRADIENT OF_MODEL] gains [OPTIMIZER_PARAMETER];
    all [CONSTANT] gains [CONSTANT];
    any [ACTIVATION] gains [ACTIVATION];
    any [OF_DATA OF_PARAMETERS] gains [ACTIVATION];
    any [OF_PARAMETERS] none [OF_DATA ACTIVATION] gains [OF_PARAMETERS];
    any [OF_PARAMETERS WEIGHT] all [SCOPED] none [OF_DATA ACTIVATION] gains [WEIGHT];
}
