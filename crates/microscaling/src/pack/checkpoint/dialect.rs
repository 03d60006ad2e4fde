//! The bytes that other tools make of the same weights.

mod encoding;
mod error;
mod nvfp4;
mod q8_0;
mod rule;
mod values;

use crate::format::{BlockFormat, ElementFormat, ScaleMode};
use crate::names::impl_by_name;
use crate::pack::packed::check_largest;
use crate::pack::plan::Plan;
use crate::pack::{PackError, Packed};
use crate::quantize::largest::largest;
use crate::quantize::rules::ElementRow;
use crate::round::bits::{ABS, INFINITY};
use crate::round::mode::Rounder;
use alloc::boxed::Box;
use encoding::{MxEncoding, ScaleRule, Signs, Ties};
pub use error::DialectError;
use microscaling_processor::float_state::ieee;
use nvfp4::{Nvfp4Encoding, Nvfp4Tensor, to_bfloat16};
pub use rule::DialectRule;

/// A tool's rules for the bytes. Tools differ in the scale of a block, in ties, in the sign of zero, and in the limits
/// of NVFP4's scales.
///
/// The sources are the tools' own code, on a processor, and `tests/data/dialects.safetensors` holds the bytes that they made.
/// `tests/data/dialects.py` made the file and names the tools' versions. Where a tool takes a float32 logarithm, the logarithm
/// here is correctly rounded.
///
/// | dialect | formats | scale | ties | zeros |
/// | --- | --- | --- | --- | --- |
/// | `ocp` | MX floats | `floor` | even | keep their sign |
/// | `microxcaling` | MX floats | `floor` | away from zero | keep their sign |
/// | `torchao` | MX floats, NVFP4 | `floor`; elements are divided by 2^−126 at least | even | keep their sign |
/// | `quark` | MX floats | `even` | even | keep their sign |
/// | `compressed-tensors` | MXFP4, MXFP6 E2M3, MXFP8 E4M3, NVFP4, and NVFP4's blocks without a tensor scale | `even`, with FP4's mantissa also for FP8 | even | −0 becomes 0; MXFP6: kept |
/// | `modelopt` | MXFP4, MXFP8 E4M3, NVFP4 | ceil(log2(amax / max)) | even; MXFP4's toward zero | MXFP4: 0 becomes −0; MXFP8: kept; NVFP4: −0 becomes 0 |
/// | `ggml` | MXFP4, Q8_0 | floor(log2(amax)) − 2; Q8_0: see below | toward zero; Q8_0: even | 0 |
/// | `transformer-engine` | NVFP4 | see below | even | −0 becomes 0 |
/// | `transformer-engine-fast-math` | NVFP4 of bfloat16 | see below | even | −0 becomes 0 |
/// | `triton-kernels` | MXFP4, MXFP8 | ceil(log2(amax / max)), −126 at least | even | keep their sign |
///
/// In MXFP6, compressed-tensors keeps the sign of −0 on processors, which the table has; its code for GPUs makes 0 of −0. Where a largest
/// magnitude rounds up to 2¹²⁸, from 1.9375 · 2¹²⁷ on in MXFP6, the scale of compressed-tensors is Inf, and its codes have no meaning. This crate's scale is 2¹²⁶ there.
///
/// Three of them are not compared with bytes of the tool itself. Microxcaling computes values, not bytes, and the tests compare
/// the values. Quark compiles its kernels on the user's machine, so the code here follows Quark's Python code. The kernel of
/// `transformer-engine-fast-math` needs a Blackwell GPU, and the tests compare with a transcription of the kernel in NumPy. `ggml` has its
/// own NVFP4 in llama.cpp, but not in the package `gguf`; this crate does not have it.
///
/// Q8_0 is the format of the inputs that llama.cpp multiplies quantized weights by. This crate calls the format
/// `block(element=int8,scale=float(exponent_bits=5,mantissa_bits=10,bias=9,specials=ieee),block_size=32)`. Elements are integers over 64.
/// Scales are 64 times ggml's, in the same bits. ggml's scale is amax / 127 in float16. An integer is x · (127 / amax), rounded. Float32 rounds
/// each of these operations. So an integer follows from amax, and not from the scale in float16. These are the rules of ggml's code for x86
/// with AVX, in llama.cpp of llama-cpp-python 0.3.36. Its code for other processors takes x · (1 / (amax / 127)), and the code that quantizes files rounds ties away from zero.
/// A scale of at least 65520 is Inf in float16, and its block becomes NaN.
///
/// `triton-kernels` is the quantizer with which transformers and vLLM make MXFP4 of gpt-oss' experts and of their inputs:
/// `downcast_to_mxfp_torch` with the default `ROUND_UP`, at Triton's commit 018a674f. The kernel of earlier versions rounded numbers just above
/// 2^−2 of the scale, up to 3 steps of float32, to 0.
///
/// NVFP4's scale c of a block, an E4M3 number, with the largest magnitudes a of the block and A of the tensor, each operation
/// rounded to float32:
/// * `torchao`: [`BlockFormat::nvfp4`](crate::BlockFormat::nvfp4);
/// * `compressed-tensors`: g = 2688 · (1 / A), or 1 if this is Inf. c is the scale of g · (a / 6), with 2^−3 in place
///   of 0, and elements are x / (c / g). In `block(element=fp4_e2m1,scale=ue4m3,block_size=16)` g is 1: the numbers of an input whose
///   `input_global_scale` is 1;
/// * `modelopt`: t = A / 2688, c of a / (6 · t) within 2^−9 … 448, of 1 where that is 0. Elements are x / (c · t);
/// * `transformer-engine`: e = 2688 / A, c is the scale of a · (e · (1 / 6)), which may be 0, and elements are
///   x · (1 / (c · (1 / e))). Numbers beyond float32 become the largest one. The tensor scale is A · (1 / 2688). TransformerEngine's
///   kernel that dequantizes multiplies c · A first, so its values may differ in the last bit. The source is the reference of its tests, `reference_nvfp4.py` at commit d0067d0d, without four over
///   six. No GPU ran the kernels;
/// * `transformer-engine-fast-math`: numbers are rounded to bfloat16, ties to even, before all else. A tensor with a number that becomes Inf
///   is refused, or NaN. A, a, e, c and the tensor scale follow as in `transformer-engine`. Elements are x · f, where f is e / c, at most the
///   largest bfloat16, rounded to bfloat16. The source is `quantize_transpose_nvfp4_tuned_1D.cuh` at commit d0067d0d (2.20.0.dev0): the kernel of
///   bfloat16 in blocks of 1 × 16 under `NVTE_USE_FAST_MATH=1`. The kernel needs rows and columns in multiples of 32. Three other
///   kernels differ. The kernel of float32 and the kernel of blocks of 16 × 16 ignore the variable, so that the dialect of float32 is
///   `transformer-engine`. The kernel that fuses the Hadamard transform takes a GPU's approximate reciprocal (`rcp.approx.ftz.f32`). PTX
///   specifies this instruction by a bound of its error alone, so no dialect has this kernel. With the transform, `NVFP4BlockScaling`
///   quantizes a layer's input by this kernel, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `ocp`: OCP MX v1.0, sections 5 and 6.3.
    Ocp,
    /// `microxcaling`: the PyTorch emulation library for MX formats.
    Microxcaling,
    /// `torchao`: its `mx_formats`, with their default scale.
    Torchao,
    /// `quark`: AMD Quark.
    Quark,
    /// `compressed-tensors`: the library of vLLM and llm-compressor.
    CompressedTensors,
    /// `modelopt`: NVIDIA's Model Optimizer.
    ModelOpt,
    /// `ggml`: llama.cpp.
    Ggml,
    /// `transformer-engine`: NVIDIA's TransformerEngine.
    TransformerEngine,
    /// `transformer-engine-fast-math`: NVIDIA's TransformerEngine with `NVTE_USE_FAST_MATH=1`.
    TransformerEngineFastMath,
    /// `triton-kernels`: Triton's kernels for gpt-oss.
    TritonKernels,
}

impl_by_name! {
    Dialect, "dialect",
    Ocp: "ocp",
    Microxcaling: "microxcaling",
    Torchao: "torchao",
    Quark: "quark",
    CompressedTensors: "compressed-tensors",
    ModelOpt: "modelopt",
    Ggml: "ggml",
    TransformerEngine: "transformer-engine",
    TransformerEngineFastMath: "transformer-engine-fast-math",
    TritonKernels: "triton-kernels",
}

impl Dialect {
    /// The formats that the dialect has, by name.
    pub const fn formats(self) -> &'static [&'static str] {
        const MX: &[&str] = &[
            "mxfp8_e5m2",
            "mxfp8_e4m3",
            "mxfp6_e3m2",
            "mxfp6_e2m3",
            "mxfp4",
        ];
        match self {
            Self::Ocp | Self::Microxcaling | Self::Quark => MX,
            Self::Torchao => &[
                "mxfp8_e5m2",
                "mxfp8_e4m3",
                "mxfp6_e3m2",
                "mxfp6_e2m3",
                "mxfp4",
                "nvfp4",
                "nvfp4(tensor_scale=true)",
            ],
            Self::CompressedTensors => &[
                "mxfp8_e4m3",
                "mxfp6_e2m3",
                "mxfp4",
                "nvfp4(tensor_scale=true)",
                "block(element=fp4_e2m1,scale=ue4m3,block_size=16)",
            ],
            Self::ModelOpt => &["mxfp8_e4m3", "mxfp4", "nvfp4(tensor_scale=true)"],
            Self::Ggml => &[
                "mxfp4",
                "block(element=int8,scale=float(exponent_bits=5,mantissa_bits=10,bias=9,specials=ieee),block_size=32)",
            ],
            Self::TransformerEngine | Self::TransformerEngineFastMath => {
                &["nvfp4(tensor_scale=true)"]
            }
            Self::TritonKernels => &["mxfp8_e5m2", "mxfp8_e4m3", "mxfp4"],
        }
    }

    /// Packs a weight by the tool's rules, in blocks along the last axis of its shape, which is \[out, in\] in all tools. `data`
    /// are in row-major order.
    ///
    /// # Errors
    /// * [`DialectError::Format`]: the dialect does not have the format.
    /// * [`DialectError::Ragged`]: the last axis is not a whole number of blocks; the tools pad the axis, or refuse.
    /// * [`DialectError::NotFinite`]: a NaN or Inf, which each tool makes something else of. In `transformer-engine-fast-math` also a number that
    ///   bfloat16 makes Inf of.
    /// * [`DialectError::Zeros`]: a tensor of zeros, or of numbers so small that their scale is zero. The tool turns such a
    ///   tensor into NaN.
    /// * [`DialectError::Empty`]: a tensor without elements, which has no largest magnitude for the tool's scale.
    /// * [`DialectError::Pack`]: the data do not fit the shape.
    pub fn encode(
        self,
        format: BlockFormat,
        data: &[f32],
        shape: &[usize],
    ) -> Result<DialectTensor, DialectError> {
        self.encode_under(format, data, shape, None)
    }

    /// [`encode`](Self::encode) for a part of a tensor, such as one of several [fused layers](crate::FusedLayers), as the tools' exporters
    /// pack these. `largest` is the largest magnitude of the whole tensor, from which the tensor scale follows. A format
    /// without a tensor scale gives the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// * The errors of [`encode`](Self::encode). [`DialectError::Zeros`] and [`DialectError::Empty`] are errors of the whole tensor.
    /// * [`PackError::Largest`]: an element is larger than `largest`.
    /// * [`DialectError::Largest`]: `largest` is NaN or Inf.
    pub fn encode_part(
        self,
        format: BlockFormat,
        data: &[f32],
        shape: &[usize],
        largest: f32,
    ) -> Result<DialectTensor, DialectError> {
        // The error of a NaN or Inf among the data has its position.
        if data.iter().all(|x| self.is_finite(x.to_bits() & ABS)) {
            check_largest(data, largest)?;
            if !self.is_finite(largest.to_bits() & ABS) {
                return Err(DialectError::Largest);
            }
        }
        self.encode_under(format, data, shape, Some(largest))
    }

    /// [`encode`](Self::encode), with the largest magnitude of the tensor that the data are a part of.
    fn encode_under(
        self,
        format: BlockFormat,
        data: &[f32],
        shape: &[usize],
        of_whole: Option<f32>,
    ) -> Result<DialectTensor, DialectError> {
        self.check(format)?;
        // A tensor without axes is refused as one that does not have the first.
        let axis = shape.len().saturating_sub(1);
        let plan = Plan::new(&format, shape, axis)?;
        crate::quantize::layout::check_length(data, shape).map_err(PackError::from)?;
        let (block, length) = (format.block_size, shape[axis]);
        if !length.is_multiple_of(block) {
            return Err(DialectError::Ragged { length, block });
        }
        if let Some(position) = data.iter().position(|x| !self.is_finite(x.to_bits() & ABS)) {
            return Err(DialectError::NotFinite { position });
        }
        if let Some(rounder) = self.is_ours(&format) {
            let packed = match of_whole {
                Some(whole) => Packed::encode_part(format, data, shape, axis, rounder, whole),
                None => Packed::encode(format, data, shape, axis, rounder),
            }?;
            return Ok(DialectTensor {
                packed,
                divisor: None,
            });
        }
        let (packed, divisor) = match format.has_exponent() {
            false if self == Self::Ggml => {
                let blocks = ieee(|| q8_0::encode(data));
                let parts =
                    Packed::from_parts(format, shape, axis, None, blocks.scales, blocks.elements);
                (parts?, None)
            }
            true => {
                let encoding = self.mx(format.element);
                let blocks = ieee(|| encoding.encode(format.element, data, plan.elements_len));
                let parts =
                    Packed::from_parts(format, shape, axis, None, blocks.scales, blocks.elements);
                (parts?, None)
            }
            false => {
                let amax = of_whole.map_or_else(|| largest(data), |whole| whole.abs().to_bits());
                let tensor = ieee(|| self.nvfp4_tensor(format, amax));
                let tensor = tensor.ok_or(match data {
                    [] if of_whole.is_none() => DialectError::Empty { dialect: self },
                    _ => DialectError::Zeros { dialect: self },
                })?;
                let blocks = ieee(|| tensor.encode(data, plan.elements_len));
                let scale = format.tensor_scale.then_some(blocks.tensor_scale);
                let (scales, elements) = (blocks.scales, blocks.elements);
                let packed = Packed::from_parts(format, shape, axis, scale, scales, elements);
                (packed?, blocks.divisor.filter(|_| format.tensor_scale))
            }
        };
        Ok(DialectTensor { packed, divisor })
    }

    /// # Errors
    /// [`DialectError::Format`]: the dialect does not have the format.
    pub fn check(self, format: BlockFormat) -> Result<(), DialectError> {
        let own = |name: &&str| name.parse() == Ok(format);
        match self.formats().iter().any(own) {
            true => Ok(()),
            false => Err(DialectError::Format {
                dialect: self,
                format: Box::new(format),
            }),
        }
    }

    /// Whether a magnitude, as a pattern, is a number in the type that the tool reads.
    fn is_finite(self, abs: u32) -> bool {
        match self {
            Self::TransformerEngineFastMath => abs < INFINITY && to_bfloat16(abs) < INFINITY,
            _ => abs < INFINITY,
        }
    }

    /// The rounding with which the dialect's format is this crate's own.
    fn is_ours(self, format: &BlockFormat) -> Option<Rounder> {
        match (format.has_exponent(), self) {
            (true, Self::Ocp) | (false, Self::Torchao) => Some(Rounder::NearestEven),
            (true, Self::Microxcaling) => Some(Rounder::NearestAway),
            (_, Self::Ocp | Self::Microxcaling | Self::Torchao) => None,
            (_, Self::Quark | Self::CompressedTensors | Self::ModelOpt) => None,
            (_, Self::Ggml | Self::TritonKernels) => None,
            (_, Self::TransformerEngine | Self::TransformerEngineFastMath) => None,
        }
    }

    /// The treatment of NVFP4 in the dialects that differ from this crate's format.
    fn nvfp4(self) -> Nvfp4Encoding {
        match self {
            Self::ModelOpt => Nvfp4Encoding::ModelOpt,
            Self::CompressedTensors => Nvfp4Encoding::CompressedTensors,
            Self::TransformerEngine => Nvfp4Encoding::TransformerEngine,
            Self::TransformerEngineFastMath => Nvfp4Encoding::TransformerEngineFastMath,
            Self::Torchao => unreachable!("its NVFP4 is ours"),
            Self::Ocp | Self::Microxcaling | Self::Quark | Self::Ggml | Self::TritonKernels => {
                unreachable!("they have no NVFP4")
            }
        }
    }

    /// The scale of a tensor with this largest magnitude, as a pattern: 1 for a format without one. `None` if the tool makes NaN of the
    /// tensor.
    fn nvfp4_tensor(self, format: BlockFormat, amax: u32) -> Option<Nvfp4Tensor> {
        let tensor = match format.tensor_scale {
            true => self.nvfp4().tensor(amax),
            false => Nvfp4Tensor::unscaled(),
        };
        (tensor.of_tensor != 0).then_some(tensor)
    }

    /// The treatment of MX in the dialects that differ from this crate's formats.
    fn mx(self, element: ElementFormat) -> MxEncoding {
        let of = |scale, ties, signs| MxEncoding {
            element: ElementRow::of(element),
            scale,
            least_exponent: -127,
            ties,
            signs,
        };
        let mode = |scale_mode| ScaleRule::mode(scale_mode, element);
        let fp4 = element == ElementFormat::FP4_E2M1;
        match self {
            Self::Torchao => MxEncoding {
                least_exponent: -126,
                ..of(mode(ScaleMode::Floor), Ties::Even, Signs::Kept)
            },
            Self::CompressedTensors if element == ElementFormat::FP6_E2M3 => {
                of(mode(ScaleMode::Even), Ties::Even, Signs::Kept)
            }
            // The scale of FP4, less the difference of the largest exponents.
            Self::CompressedTensors => {
                let scale = ScaleRule::mode(ScaleMode::Even, ElementFormat::FP4_E2M1);
                of(scale, Ties::Even, Signs::OfNumbers)
            }
            Self::ModelOpt if fp4 => {
                of(ScaleRule::CeilLog2, Ties::TowardZero, Signs::ZeroIsNegative)
            }
            Self::ModelOpt => of(ScaleRule::CeilLog2, Ties::Even, Signs::Kept),
            Self::Ggml => of(
                ScaleRule::FloorLog2,
                Ties::TowardZero,
                Signs::NoNegativeZero,
            ),
            Self::Quark => of(mode(ScaleMode::Even), Ties::Even, Signs::Kept),
            Self::TritonKernels => of(ScaleRule::RoundUp, Ties::Even, Signs::Kept),
            Self::Ocp | Self::Microxcaling => unreachable!("their MX is ours"),
            Self::TransformerEngine | Self::TransformerEngineFastMath => {
                unreachable!("it has no MX")
            }
        }
    }
}

/// A weight in the bytes of a [`Dialect`].
#[derive(Debug, Clone, PartialEq)]
pub struct DialectTensor {
    /// The bytes, with NVFP4's tensor scale as a factor.
    pub packed: Packed,
    /// The number that compressed-tensors stores in place of this factor: its rounded reciprocal, a divisor of the
    /// scales.
    pub divisor: Option<f32>,
}
