//! The accumulators of chips, by the types of their operands.

use crate::accumulate::operand::kind::{OperandKind, OperandType, ScaleType};
use crate::accumulate::{AccumulateError, Accumulator, Order, SumFormat};
use alloc::string::ToString;
use microscaling::internal::impl_by_name;
use microscaling::{BlockFormat, ElementFormat, ScaleFormat, SpecialCodes};

/// A family of chips with matrix units.
///
/// Experiments found their accumulators: Fasi et al., "Numerical behavior of NVIDIA tensor cores" (2021), Khattak and
/// Mikaitis (2025), whose measurements the tests hold, and the paper of mmasim (arXiv 2511.10909).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Chip {
    /// `volta`: NVIDIA V100.
    Volta,
    /// `turing`: NVIDIA T4.
    Turing,
    /// `ampere`: NVIDIA A100, A2.
    Ampere,
    /// `ada`: NVIDIA L40S, RTX 4000.
    Ada,
    /// `hopper`: NVIDIA H100, H200.
    Hopper,
    /// `blackwell`: NVIDIA B200.
    Blackwell,
    /// `cdna1`: AMD MI100.
    Cdna1,
    /// `cdna2`: AMD MI210, MI250.
    Cdna2,
    /// `cdna3`: AMD MI300.
    Cdna3,
    /// `xdna2`: the NPU of AMD's XDNA2, for [`bfp16ebs8`](microscaling::BlockFormat::BFP16EBS8): an exact sum of 8 products, which is added to
    /// a float32 with one rounding, in ascending k. Outputs of the chip are bit-identical (64 of 64 sums of 512 products).
    Xdna2,
}

impl_by_name! {
    Chip, "chip",
    Volta: "volta",
    Turing: "turing",
    Ampere: "ampere",
    Ada: "ada",
    Hopper: "hopper",
    Blackwell: "blackwell",
    Cdna1: "cdna1",
    Cdna2: "cdna2",
    Cdna3: "cdna3",
    Xdna2: "xdna2",
}

/// AMD's FP8 before OCP's.
const E4M3FNUZ: ElementFormat = fnuz(4, 3, 8);
const E5M2FNUZ: ElementFormat = fnuz(5, 2, 16);

const fn fnuz(exponent_bits: u32, mantissa_bits: u32, bias: i32) -> ElementFormat {
    match ElementFormat::float(exponent_bits, mantissa_bits, bias, SpecialCodes::Fnuz) {
        Ok(format) => format,
        Err(_) => panic!("it is one"),
    }
}

/// Operand types that a matrix unit treats alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Fp16,
    Bf16,
    Tf32,
    /// FP8 E4M3 and E5M2 in any mix.
    Fp8,
    /// FP8 of AMD's CDNA3 in any mix.
    Fp8Fnuz,
    /// FP8, FP6 and FP4 in any mix.
    Narrow,
    /// FP4 with the same scales on both sides, of MXFP4 or NVFP4.
    ScaledFp4,
    /// Two's complements of 8 bits in blocks of 8, with powers of two for scales.
    Bfp16,
}

impl Class {
    const fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::Tf32 => "tf32",
            Self::Fp8 => "fp8_e4m3 and fp8_e5m2",
            Self::Fp8Fnuz => "fp8_e4m3fnuz and fp8_e5m2fnuz",
            Self::Narrow => "fp8_e4m3, fp8_e5m2, fp6_e3m2, fp6_e2m3 and fp4_e2m1",
            Self::ScaledFp4 => "fp4_e2m1 with scales e8m0 or ue4m3",
            Self::Bfp16 => "int8 with scales e8 of 8 (bfp16ebs8)",
        }
    }

    fn has(self, lhs: OperandKind, rhs: OperandKind) -> bool {
        type E = ElementFormat;
        let both =
            |types: &[OperandType]| types.contains(&lhs.element) && types.contains(&rhs.element);
        let of = |format: E| OperandType::Element(format);
        match self {
            Self::Bfp16 => {
                let scaled = OperandKind::of_format(&BlockFormat::BFP16EBS8);
                scaled == Some(lhs) && scaled == Some(rhs)
            }
            Self::Fp16 => both(&[of(E::FLOAT16)]),
            Self::Bf16 => both(&[of(E::BFLOAT16)]),
            Self::Tf32 => both(&[OperandType::Tf32]),
            Self::Fp8 => both(&[of(E::FP8_E4M3), of(E::FP8_E5M2)]),
            Self::Fp8Fnuz => both(&[of(E4M3FNUZ), of(E5M2FNUZ)]),
            Self::Narrow => {
                let powers = |kind: OperandKind| {
                    kind.scale
                        .is_none_or(|scale| scale == ScaleType::PowerOfTwo)
                };
                let formats = [
                    E::FP8_E4M3,
                    E::FP8_E5M2,
                    E::FP6_E3M2,
                    E::FP6_E2M3,
                    E::FP4_E2M1,
                ];
                both(&formats.map(of)) && powers(lhs) && powers(rhs)
            }
            Self::ScaledFp4 => {
                let scales = [ScaleType::PowerOfTwo, ScaleType::Float(ScaleFormat::UE4M3)];
                let known = lhs.scale.is_some_and(|scale| scales.contains(&scale));
                both(&[of(E::FP4_E2M1)]) && known && lhs.scale == rhs.scale
            }
        }
    }
}

impl Chip {
    /// The accumulators of the chip by operand types, from the most particular types on.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn accumulators(self) -> &'static [(Class, Accumulator)] {
        use Class::*;
        const E8M13: SumFormat = SumFormat::E8M13_RZ;
        /// Aligned with c, cut off at `fraction_bits`.
        const fn joint(terms: usize, fraction_bits: u32, floor_exponent: i32) -> Accumulator {
            grouped(terms, fraction_bits, floor_exponent, 1, SumFormat::F32_RZ)
        }
        const fn grouped(
            terms: usize,
            fraction_bits: u32,
            floor_exponent: i32,
            group: usize,
            output: SumFormat,
        ) -> Accumulator {
            Accumulator::new(Order::Joint {
                terms,
                fraction_bits,
                floor_exponent,
                group,
                output,
            })
        }
        const fn late(terms: usize, interleave: bool) -> Accumulator {
            Accumulator::new(Order::Late {
                terms,
                fraction_bits: 24,
                interleave,
                output: SumFormat::F32_RNE,
            })
        }
        const fn exact(terms: usize) -> Accumulator {
            Accumulator::new(Order::Exact {
                terms,
                output: SumFormat::F32_RNE,
            })
        }
        const PAIRS: Accumulator = Accumulator::new(Order::Pairs {
            terms: 4,
            flush: true,
            output: SumFormat::F32_RNE,
        });
        match self {
            Self::Volta => const { &[(Fp16, joint(4, 23, -131))] },
            Self::Turing => const { &[(Fp16, joint(8, 24, -132))] },
            Self::Ampere => {
                const {
                    &[
                        (Fp16, joint(8, 24, -132)),
                        (Bf16, joint(8, 24, -132)),
                        (Tf32, joint(4, 24, -132)),
                    ]
                }
            }
            Self::Ada => {
                const {
                    &[
                        (Fp16, joint(8, 24, -132)),
                        (Bf16, joint(8, 24, -132)),
                        (Tf32, joint(4, 24, -132)),
                        (Fp8, grouped(16, 13, -132, 1, E8M13)),
                    ]
                }
            }
            Self::Hopper => {
                const {
                    &[
                        (Fp16, joint(16, 25, -133)),
                        (Bf16, joint(16, 25, -133)),
                        (Tf32, joint(8, 25, -133)),
                        (Fp8, grouped(32, 13, -133, 1, E8M13)),
                    ]
                }
            }
            Self::Blackwell => {
                const {
                    &[
                        (Fp16, joint(16, 25, -133)),
                        (Bf16, joint(16, 25, -133)),
                        (Tf32, joint(8, 25, -133)),
                        (ScaledFp4, grouped(64, 35, -139, 16, SumFormat::F32_RZ)),
                        (Narrow, joint(32, 25, -133)),
                    ]
                }
            }
            Self::Cdna1 => const { &[(Fp16, exact(4)), (Bf16, exact(2))] },
            Self::Cdna2 => const { &[(Fp16, PAIRS), (Bf16, PAIRS)] },
            Self::Xdna2 => const { &[(Bfp16, exact(8))] },
            Self::Cdna3 => {
                const {
                    &[
                        (Fp16, late(8, false)),
                        (Bf16, late(8, false)),
                        (Tf32, late(4, false)),
                        (Fp8Fnuz, late(16, true)),
                    ]
                }
            }
        }
    }

    /// The accumulator of the chip's matrix unit for operands of these kinds, with float32 sums. A chip that knows no block
    /// scales has the accumulator of the elements.
    ///
    /// # Errors
    /// [`AccumulateError::Chip`]: the chip has no matrix unit for them.
    pub fn accumulator(
        self,
        lhs: OperandKind,
        rhs: OperandKind,
    ) -> Result<Accumulator, AccumulateError> {
        let rows = self.accumulators();
        let row = rows.iter().find(|(class, _)| class.has(lhs, rhs));
        row.map(|(_, accumulator)| *accumulator)
            .ok_or_else(|| AccumulateError::Chip {
                chip: self,
                lhs: lhs.to_string(),
                rhs: rhs.to_string(),
                allowed: rows.iter().map(|(class, _)| class.name()).collect(),
            })
    }
}
