//! Schemes of the literature.

use microscaling::Rounding;

use crate::{OptimizerStates, StatesError};

/// One scale for the tensor, 2^⌊log2(largest number / largest magnitude)⌋.
const MS_AMP_E4M3: &str = "mx(element=fp8_e4m3,block_size=0,scale_mode=rceil)";
const MS_AMP_FP16: &str = "mx(element=float16,block_size=0,scale_mode=rceil)";
const INT8: &str = "block(element=int8,scale=float32,block_size=2048)";

impl OptimizerStates {
    /// The names of the presets.
    pub const PRESETS: [&str; 16] = [
        "float32",
        "bitsandbytes",
        "coat",
        "deepseek_v3",
        "ms_amp_o2",
        "ms_amp_o3",
        "adam4",
        "adam4_zero",
        "solo",
        "muon8",
        "muon4",
        "muonq",
        "mxfp8_e4m3",
        "mxfp8_e5m2",
        "bfloat16_stochastic",
        "bfloat16_kahan",
    ];

    /// A scheme by its name.
    ///
    /// | name | first moment | second moment | more |
    /// | --- | --- | --- | --- |
    /// | `float32` | | | |
    /// | `bitsandbytes` | `dynamic8` | `dynamic8_unsigned` | tensors of less than 4,096 elements stay float32 |
    /// | `coat` (arXiv 2410.19313) | `coat` | `coat` | |
    /// | `deepseek_v3` (arXiv 2412.19437) | `bfloat16` | `bfloat16` | the report does not say the rounding; to nearest is our choice |
    /// | `ms_amp_o2` (code of Azure/MS-AMP) | E4M3, a power of two per tensor | float16 with such a scale | the rounding is our choice |
    /// | `ms_amp_o3` | as O2 | as O2 | weights in float16 with such a scale; FP8 in products is for the model's specs |
    /// | `adam4` (arXiv 2309.01507) | `dynamic4` | `linear4` | tensors of up to 4,096 elements stay float32 |
    /// | `adam4_zero` | `dynamic4` | `linear4_zero` | as above: what the paper warns of |
    /// | `solo` (arXiv 2505.00347) | `dynamic4` | `logarithmic2`, stochastic | as above |
    /// | `muon8` (axolotl's 8-bit Muon) | int8 with a float32 per 2,048 | | |
    /// | `muon4` (MuonQ's code without its three parts) | `int4_symmetric` | | Newton–Schulz in `bfloat16` |
    /// | `muonq` (code of MuonQ, arXiv 2605.11396) | `int4_companded`, normalized, split with the divisor 16 | | as `muon4` |
    /// | `mxfp8_e4m3`, `mxfp8_e5m2` | the same | the same | tensors of less than 4,096 elements stay float32 |
    /// | `bfloat16_stochastic` | `bfloat16`, stochastic | `bfloat16`, stochastic | weights in `bfloat16`, stochastic |
    /// | `bfloat16_kahan` | `bfloat16` | `bfloat16` | weights in `bfloat16` with Kahan's compensation |
    ///
    /// Where nothing is said of small tensors, none stays float32.
    ///
    /// # Errors
    /// If no preset has this name.
    pub fn preset(name: &str) -> Result<Self, StatesError> {
        let of = |first: &str, second: &str, smallest| Self {
            first_moment: Some(first.into()),
            second_moment: Some(second.into()),
            smallest,
            ..Self::default()
        };
        // Tensors of exactly 4,096 elements stay float32, too.
        const FOUR_BITS: usize = 4097;
        let stochastic = Rounding::Stochastic;
        Ok(match name {
            "float32" => Self::default(),
            "bitsandbytes" => of("dynamic8", "dynamic8_unsigned", 4096),
            "coat" => of("coat", "coat", 0),
            "deepseek_v3" => of("bfloat16", "bfloat16", 0),
            "ms_amp_o2" => of(MS_AMP_E4M3, MS_AMP_FP16, 0),
            "ms_amp_o3" => Self {
                master: Some(MS_AMP_FP16.into()),
                ..of(MS_AMP_E4M3, MS_AMP_FP16, 0)
            },
            "adam4" => of("dynamic4", "linear4", FOUR_BITS),
            "adam4_zero" => of("dynamic4", "linear4_zero", FOUR_BITS),
            "solo" => Self {
                second_moment_rounding: stochastic,
                ..of("dynamic4", "logarithmic2", FOUR_BITS)
            },
            "muon8" => Self {
                second_moment: None,
                ..of(INT8, "", 0)
            },
            "muon4" => Self {
                second_moment: None,
                newton_schulz: Some("bfloat16".into()),
                ..of("int4_symmetric", "", 0)
            },
            "muonq" => Self {
                first_moment: Some("int4_companded".into()),
                normalized_momentum: true,
                low_rank_divisor: 16,
                ..Self::preset("muon4")?
            },
            "mxfp8_e4m3" | "mxfp8_e5m2" => of(name, name, 4096),
            "bfloat16_stochastic" => Self {
                first_moment_rounding: stochastic,
                second_moment_rounding: stochastic,
                master: Some("bfloat16".into()),
                master_rounding: stochastic,
                ..of("bfloat16", "bfloat16", 0)
            },
            "bfloat16_kahan" => Self {
                master: Some("bfloat16".into()),
                kahan: true,
                ..of("bfloat16", "bfloat16", 0)
            },
            _ => return Err(StatesError::new("preset", name, Self::PRESETS.join(", "))),
        })
    }
}
