//! One type over all block formats.

use crate::parameters::{Parameters, impl_serde_by_text};
use crate::slot::at_least;
use crate::{
    BfpFormat, ElementFormat, FormatError, MicroexponentFormat, MxFormat, NameError, Nvfp4Format,
    ParseFormatError, QuantizeError, RandomStream, Rounding, ScaleMode, SharedExpMethod,
    SlotFormat,
};
use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;
use core::str::FromStr;

/// Any block format, with all its parameters.
///
/// As text (`FromStr`, `Display`, serde) it is one of [`NAMES`](Self::NAMES), or a format with
/// parameters: `mx(element=int4,block_size=16,scale_mode=rceil)`, whose parameters `scale_bits`,
/// `scale_mode`, `shared_exp_method` and `flush_fp32_subnorms` may be left out, as may a block size of
/// 32; or as [`SlotFormat`] has it. Quark's names (`MXFP8E4M3`, `MX6`, `BFP16`, …) are understood.
///
/// ```
/// use microscaling::{BlockFormat, ElementFormat, MxFormat};
///
/// let mxfp4: BlockFormat = "mxfp4".parse()?;
/// assert_eq!(mxfp4, BlockFormat::Mx(MxFormat::new(ElementFormat::Fp4E2M1, 32)));
/// assert_eq!(mxfp4.bits_per_element(), 4.25);
/// # Ok::<(), microscaling::ParseFormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockFormat {
    /// An MX block (OCP MX v1.0, or with other parameters).
    Mx(MxFormat),
    /// A microexponent format.
    Microexponent(MicroexponentFormat),
    /// A block floating point format.
    Bfp(BfpFormat),
    /// NVFP4.
    Nvfp4(Nvfp4Format),
}

/// The MX blocks with a name: name, Quark's name, element, scale mode. All have blocks of 32 and 8 scale
/// bits.
const MX: [(&str, &str, ElementFormat, ScaleMode); 7] = {
    use ElementFormat::{Fp4E2M1, Fp6E2M3, Fp6E3M2, Fp8E4M3, Fp8E5M2, Int8};
    [
        ("mxfp8_e5m2", "MXFP8E5M2", Fp8E5M2, ScaleMode::Floor),
        ("mxfp8_e4m3", "MXFP8E4M3", Fp8E4M3, ScaleMode::Floor),
        ("mxfp6_e3m2", "MXFP6E3M2", Fp6E3M2, ScaleMode::Floor),
        ("mxfp6_e2m3", "MXFP6E2M3", Fp6E2M3, ScaleMode::Floor),
        ("mxfp4", "MXFP4E2M1", Fp4E2M1, ScaleMode::Floor),
        ("mxint8", "MXINT8", Int8, ScaleMode::Floor),
        ("mxfp8_rceil", "", Fp8E4M3, ScaleMode::Rceil),
    ]
};

/// The parameters of an MX block.
const MX_FIELDS: &[&str] = &[
    "element",
    "block_size",
    "scale_bits",
    "scale_mode",
    "shared_exp_method",
    "flush_fp32_subnorms",
];

const fn mx(element: ElementFormat, scale_mode: ScaleMode) -> BlockFormat {
    BlockFormat::Mx(MxFormat {
        scale_mode,
        ..MxFormat::new(element, 32)
    })
}

impl BlockFormat {
    /// The names without parameters: the concrete formats of OCP MX v1.0, NVIDIA's recipe for MXFP8
    /// (E4M3, scale mode `rceil`), the microexponents, BFP16 and NVFP4 without a tensor scale.
    pub const NAMES: [&'static str; 12] = [
        MX[0].0, MX[1].0, MX[2].0, MX[3].0, MX[4].0, MX[5].0, MX[6].0, "mx4", "mx6", "mx9",
        "bfp16", "nvfp4",
    ];

    /// Checks the parameters.
    ///
    /// # Errors
    /// Those of the format's own `validate`; NVFP4 is always valid.
    pub fn validate(&self) -> Result<(), FormatError> {
        match self {
            Self::Mx(format) => format.validate(),
            Self::Microexponent(format) => format.validate(),
            Self::Bfp(format) => format.validate(),
            Self::Nvfp4(_) => Ok(()),
        }
    }

    /// Replaces every element of a tensor by the value it has in this format, in place: the `quantize`
    /// of the format, see [`MxFormat::quantize`].
    ///
    /// # Errors
    /// Those of [`MxFormat::quantize`]. The data are untouched then.
    pub fn quantize(
        &self,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<(), QuantizeError> {
        match self {
            Self::Mx(format) => format.quantize(data, shape, axis, rounding, stream),
            Self::Microexponent(format) => format.quantize(data, shape, axis, rounding, stream),
            Self::Bfp(format) => format.quantize(data, shape, axis, rounding, stream),
            Self::Nvfp4(format) => format.quantize(data, shape, axis, rounding, stream),
        }
    }

    /// Elements in a block; 0 makes the whole axis one block.
    pub const fn block_size(&self) -> usize {
        match self {
            Self::Mx(format) => match format.shared_exp_method {
                SharedExpMethod::Max => format.block_size,
                SharedExpMethod::None => 1,
            },
            Self::Microexponent(format) => format.block_size,
            Self::Bfp(format) => format.block_size,
            Self::Nvfp4(_) => Nvfp4Format::BLOCK_SIZE,
        }
    }

    /// Bits of an element's own code, without any scale.
    ///
    /// The format must be [valid](Self::validate).
    pub const fn element_bits(&self) -> u32 {
        match self {
            Self::Mx(format) => format.element.bits(),
            // With the sign.
            Self::Microexponent(format) => 1 + format.mantissa_bits(),
            Self::Bfp(format) => 1 + format.mantissa_bits(),
            Self::Nvfp4(_) => ElementFormat::Fp4E2M1.bits(),
        }
    }

    /// Bits that an element takes in a full block, with its part of the block's scale and shifts. A
    /// tensor scale is not counted, nor is the scale of a block as long as its axis (block size 0).
    ///
    /// The format must be [valid](Self::validate).
    pub fn bits_per_element(&self) -> f64 {
        let block_size = self.block_size();
        let scale_bits = match self {
            Self::Mx(format) => f64::from(format.scale_bits),
            Self::Microexponent(format) => {
                let sub_blocks = block_size.div_ceil(format.sub_block_size);
                8.0 + f64::from(format.shift_bits) * sub_blocks as f64
            }
            Self::Bfp(_) | Self::Nvfp4(_) => 8.0,
        };
        let scale_bits = match block_size {
            0 => 0.0,
            size => scale_bits / size as f64,
        };
        f64::from(self.element_bits()) + scale_bits
    }
}

/// What the value of a parameter that has names may be.
fn one_of(names: impl IntoIterator<Item = &'static str>) -> String {
    let mut text = String::from("one of ");
    for (i, name) in names.into_iter().enumerate() {
        text += if i == 0 { "" } else { ", " };
        text += name;
    }
    text
}

fn parse_mx(mut parameters: Parameters<'_>) -> Result<BlockFormat, ParseFormatError> {
    let base = MxFormat::new(ElementFormat::Fp8E4M3, 32);
    let scale_bits = || "1 to 8".to_string();
    let elements = || one_of(ElementFormat::ALL.map(ElementFormat::name));
    let modes = || one_of(ScaleMode::ALL.map(ScaleMode::name));
    let methods = || one_of(SharedExpMethod::ALL.map(SharedExpMethod::name));
    if !parameters.has("element") {
        return Err(ParseFormatError::FieldValue {
            format: "mx",
            field: "element",
            value: String::new(),
            allowed: elements(),
        });
    }
    let format = MxFormat {
        element: parameters.take("element", "", base.element, elements)?,
        block_size: parameters.take("block_size", "block", base.block_size, || at_least(0))?,
        scale_bits: parameters.take("scale_bits", "", base.scale_bits, scale_bits)?,
        scale_mode: parameters.take("scale_mode", "", base.scale_mode, modes)?,
        shared_exp_method: parameters.take(
            "shared_exp_method",
            "",
            base.shared_exp_method,
            methods,
        )?,
        flush_fp32_subnorms: parameters.take("flush_fp32_subnorms", "", false, || {
            "true or false".to_string()
        })?,
    };
    parameters.finish()?;
    format.validate()?;
    Ok(BlockFormat::Mx(format))
}

impl FromStr for BlockFormat {
    type Err = ParseFormatError;

    /// The format that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |(name, alias, ..): &(&str, &str, _, _)| {
            *name == text || (!alias.is_empty() && *alias == text)
        };
        if let Some((_, _, element, scale_mode)) = MX.into_iter().find(named) {
            return Ok(mx(element, scale_mode));
        }
        // What a slot says without shared parameters.
        if let Some(slot) = SlotFormat::parse_own(text) {
            let unused = MxFormat::new(ElementFormat::Int8, 0);
            return slot.map(|slot| slot.block_format(&unused));
        }
        if let Some(parameters) = Parameters::of(text, "mx", MX_FIELDS) {
            return parameters.and_then(parse_mx);
        }
        let families = ["mx(…)", "bfp(…)", "microexponent(…)", "nvfp4(…)"];
        Err(ParseFormatError::Unknown(NameError {
            kind: "block format",
            value: text.to_string(),
            allowed: Self::NAMES.into_iter().chain(families).collect(),
        }))
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match *self {
            Self::Mx(format) => format,
            Self::Microexponent(format) => return SlotFormat::Microexponent(format).fmt(f),
            Self::Bfp(format) => return SlotFormat::Bfp(format).fmt(f),
            Self::Nvfp4(format) => return SlotFormat::Nvfp4(format).fmt(f),
        };
        let named = |(_, _, element, mode): &(_, _, _, _)| mx(*element, *mode) == *self;
        if let Some((name, ..)) = MX.iter().find(|row| named(row)) {
            return f.pad(name);
        }
        let usual = MxFormat::new(format.element, format.block_size);
        let mut text = format!(
            "mx(element={},block_size={}",
            format.element, format.block_size
        );
        if format.scale_bits != usual.scale_bits {
            text += &format!(",scale_bits={}", format.scale_bits);
        }
        if format.scale_mode != usual.scale_mode {
            text += &format!(",scale_mode={}", format.scale_mode);
        }
        if format.shared_exp_method != usual.shared_exp_method {
            text += &format!(",shared_exp_method={}", format.shared_exp_method);
        }
        if format.flush_fp32_subnorms {
            text += ",flush_fp32_subnorms=true";
        }
        text.push(')');
        f.pad(&text)
    }
}

impl From<MxFormat> for BlockFormat {
    fn from(format: MxFormat) -> Self {
        Self::Mx(format)
    }
}

impl From<MicroexponentFormat> for BlockFormat {
    fn from(format: MicroexponentFormat) -> Self {
        Self::Microexponent(format)
    }
}

impl From<BfpFormat> for BlockFormat {
    fn from(format: BfpFormat) -> Self {
        Self::Bfp(format)
    }
}

impl From<Nvfp4Format> for BlockFormat {
    fn from(format: Nvfp4Format) -> Self {
        Self::Nvfp4(format)
    }
}

impl_serde_by_text!(BlockFormat, "the name of a block format");
