//! Schemes of the literature.

use microscaling::Rounding;

use super::{Communication, CommunicationError, RankOrder, Route};

impl Communication {
    /// The names of the presets.
    pub const PRESETS: [&str; 9] = [
        "float32",
        "bfloat16",
        "qwz",
        "qgz",
        "sdp4bit_weights",
        "sdp4bit_gradients",
        "ms_amp",
        "ms_amp_once",
        "quick_reduce_int4",
    ];

    /// A scheme by its name. Sums have no `mean`; set the field for losses that are means.
    ///
    /// | name | scheme | format | route |
    /// | --- | --- | --- | --- |
    /// | `float32` | none | | ring |
    /// | `bfloat16` | NCCL with bfloat16 tensors | bfloat16, also as operands | ring, each hop rounded |
    /// | `qwz` | ZeRO++ (arXiv 2306.10209), weights | fp16 to `int8_clipped`, a float32 per 8,000 | gather |
    /// | `qgz` | ZeRO++, gradients of matrices | fp16 to `int4_clipped`, blocks by shape; sums in fp16 | all to all in nodes of 8, then between nodes |
    /// | `sdp4bit_weights` | SDP4Bit (arXiv 2410.15526), weights | difference in bfloat16 to int4, a float32 per 2,048, stochastic | gather |
    /// | `sdp4bit_gradients` | SDP4Bit, gradients | Hadamard of 32, int8 in the node, int4 between nodes, a float32 per 128, stochastic | as `qgz` |
    /// | `ms_amp` | Azure/MS-AMP's gradients with sums in FP8 | E4M3, one scale for all ranks | ring, each hop rounded |
    /// | `ms_amp_once` | the same with sums in float32 | E4M3, one scale for all ranks | ring, operands and result rounded |
    /// | `quick_reduce_int4` | vLLM's quick reduce, activations | fp16 to `int4_signed` per 32; sums in fp16 | all to all |
    ///
    /// `qgz` and `quick_reduce_int4` add ranks in ascending order, as their code does. The order of the others, and nodes of 8, are our choice.
    ///
    /// # Errors
    /// If no preset has this name.
    pub fn preset(name: &str) -> Result<Self, CommunicationError> {
        let some = |text: &str| Some(text.to_owned());
        let of = |format: &str| Self {
            format: Some(format.to_owned()),
            ..Self::default()
        };
        let nodes = |settings: Self| Self {
            route: Route::AllToAll,
            order: RankOrder::Ascending,
            ranks_per_node: 8,
            ..settings
        };
        let ms_amp = Self {
            shared_scale: true,
            ..of("mx(element=fp8_e4m3,block_size=0)")
        };
        Ok(match name {
            "float32" => Self::default(),
            "bfloat16" => Self {
                operand: some("bfloat16"),
                ..of("bfloat16")
            },
            "qwz" => Self {
                operand: some("fp16"),
                ..of("int8_clipped")
            },
            "qgz" => Self {
                operand: some("fp16"),
                accumulator: some("fp16"),
                blocks_by_shape: true,
                vectors: false,
                ..nodes(of("int4_clipped"))
            },
            "sdp4bit_weights" => Self {
                operand: some("bfloat16"),
                rounding: Rounding::Stochastic,
                difference: true,
                ..of("block(element=int4,scale=float32,block_size=2048)")
            },
            "sdp4bit_gradients" => Self {
                format_between_nodes: some("block(element=int4,scale=float32,block_size=128)"),
                rounding: Rounding::Stochastic,
                hadamard: 32,
                ..nodes(of("block(element=int8,scale=float32,block_size=128)"))
            },
            "ms_amp" => ms_amp,
            "ms_amp_once" => Self {
                requantize: false,
                ..ms_amp
            },
            "quick_reduce_int4" => Self {
                operand: some("fp16"),
                accumulator: some("fp16"),
                route: Route::AllToAll,
                order: RankOrder::Ascending,
                ..of("int4_signed")
            },
            _ => {
                let allowed = Self::PRESETS.join(", ");
                return Err(CommunicationError::new("preset", name, allowed));
            }
        })
    }
}
