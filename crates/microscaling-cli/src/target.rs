//! The layouts that `convert` writes: one for all weights, or a tool's layouts, one for each format.

use microscaling::safetensors::{CheckpointLayout, IntegerLayout, PackedFiles};
use microscaling::{NameError, WeightLayout};
use microscaling_checkpoint::{QuantizedLayer, QuantizedLayers, Schemes, WeightKind};
use std::fmt::{self, Display};
use std::str::FromStr;

/// The layout that weights get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToLayout {
    /// One layout for every weight.
    Layout(CheckpointLayout),
    /// The layouts of compressed-tensors, one for each format.
    CompressedTensors,
    /// The layouts of NVIDIA Model Optimizer: NVFP4, MXFP8, and FP8 with a scale for the tensor, each row or each block.
    ModelOpt,
    /// `quant_method: fp8`: FP8 E4M3 with a scale for each block of rows and columns, in `weight_scale_inv`.
    Fp8,
    /// GPTQ's or AWQ's layout of integers.
    Integers(IntegerLayout),
}

/// The layouts of integers that are written for layers of every model.
pub(crate) const INTEGERS: [IntegerLayout; 3] = [
    IntegerLayout::Gptq,
    IntegerLayout::GptqV2,
    IntegerLayout::Awq,
];

/// The layout of a new weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewLayout {
    Packed(CheckpointLayout),
    Integers(IntegerLayout),
    /// FP8 with scales of compressed-tensors.
    Float,
}

impl NewLayout {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Packed(layout) => layout.name(),
            Self::Integers(layout) => layout.name(),
            Self::Float => "float-quantized",
        }
    }
}

impl FromStr for NewLayout {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(layout) = INTEGERS.into_iter().find(|layout| layout.name() == name) {
            return Ok(Self::Integers(layout));
        }
        let integers = INTEGERS.map(IntegerLayout::name).join(", ");
        let packed = name.parse().map(Self::Packed);
        packed.map_err(|error: NameError| format!("{error}, {integers}"))
    }
}

/// The tools that a target may be.
pub(crate) const TOOLS: [(&str, ToLayout); 3] = [
    ("compressed-tensors", ToLayout::CompressedTensors),
    ("modelopt", ToLayout::ModelOpt),
    ("fp8", ToLayout::Fp8),
];

/// The tool whose config describes the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    CompressedTensors,
    ModelOpt,
    Fp8,
    /// AutoGPTQ, GPTQModel and AutoAWQ.
    Integers,
    GptOss,
    /// No tool reads a config of this layout.
    None,
}

/// The tool whose words a config has.
pub(crate) fn tool_of(schemes: &Schemes) -> Option<Tool> {
    Some(match schemes.method.as_deref()? {
        "compressed-tensors" => Tool::CompressedTensors,
        "modelopt" => Tool::ModelOpt,
        "fp8" => Tool::Fp8,
        "mxfp4" => Tool::GptOss,
        _ => return None,
    })
}

impl Display for ToLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(layout) => layout.fmt(f),
            Self::Integers(layout) => f.pad(layout.name()),
            tool => {
                let named = TOOLS.iter().find(|(_, target)| target == tool);
                f.pad(named.expect("every tool has a name").0)
            }
        }
    }
}

impl FromStr for ToLayout {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some((_, tool)) = TOOLS.iter().find(|(known, _)| *known == name) {
            return Ok(*tool);
        }
        match name.parse() {
            Ok(NewLayout::Packed(layout)) => Ok(Self::Layout(layout)),
            Ok(NewLayout::Integers(layout)) => Ok(Self::Integers(layout)),
            Ok(NewLayout::Float) => unreachable!("no name gives this layout"),
            Err(error) => Err(format!(
                "{error}, {}",
                TOOLS.map(|(name, _)| name).join(", ")
            )),
        }
    }
}

/// A tensor of the input under another name and shape, with the same bytes or another number.
pub(crate) struct Retold {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) shape: Vec<usize>,
    /// The F32 number in place of the tensor's, if the layout stores the reciprocal.
    pub(crate) number: Option<f32>,
}

/// How a weight is written.
pub(crate) enum WrittenForm {
    /// Packed, in this layout.
    Packed(CheckpointLayout),
    /// The same integers in another layout, and whether the weight is symmetric.
    Repacked {
        layout: IntegerLayout,
        is_symmetric: bool,
    },
    /// By the same bytes.
    Retold(Vec<Retold>),
    /// Unchanged.
    Kept,
}

impl ToLayout {
    pub(crate) fn tool(self) -> Tool {
        match self {
            Self::CompressedTensors => Tool::CompressedTensors,
            Self::ModelOpt => Tool::ModelOpt,
            Self::Fp8 => Tool::Fp8,
            Self::Integers(_) => Tool::Integers,
            Self::Layout(CheckpointLayout::Weights(layout)) => match layout {
                WeightLayout::ModelOptNvfp4 => Tool::ModelOpt,
                WeightLayout::GptOss => Tool::GptOss,
                WeightLayout::Mxfp4PackQuantized
                | WeightLayout::Mxfp6PackQuantized
                | WeightLayout::Mxfp8Quantized
                | WeightLayout::Nvfp4PackQuantized => Tool::CompressedTensors,
                _ => Tool::None,
            },
            Self::Layout(CheckpointLayout::Microscaling) => Tool::None,
        }
    }

    /// The layout that integers get.
    pub(crate) fn of_integers(self) -> Option<IntegerLayout> {
        match self {
            Self::CompressedTensors => Some(IntegerLayout::PackQuantized),
            Self::Integers(layout) => Some(layout),
            _ => None,
        }
    }

    /// How a weight is written; `None` if the target cannot hold the weight.
    pub(crate) fn form(
        self,
        read: &PackedFiles<'_>,
        layer: &QuantizedLayer,
    ) -> Option<WrittenForm> {
        match (self, &layer.kind) {
            (Self::Layout(layout), WeightKind::Packed(format)) => {
                let has = match layout {
                    CheckpointLayout::Microscaling => true,
                    CheckpointLayout::Weights(layout) => layout.has(*format),
                };
                has.then_some(WrittenForm::Packed(layout))
            }
            (Self::Layout(CheckpointLayout::Microscaling), _) => Some(WrittenForm::Kept),
            (Self::CompressedTensors, WeightKind::Packed(format)) => {
                let layouts = [
                    WeightLayout::Nvfp4PackQuantized,
                    WeightLayout::Mxfp4PackQuantized,
                    WeightLayout::Mxfp6PackQuantized,
                    WeightLayout::Mxfp8Quantized,
                ];
                let layout = layouts.into_iter().find(|layout| layout.has(*format))?;
                Some(WrittenForm::Packed(layout.into()))
            }
            (Self::ModelOpt, WeightKind::Packed(format)) => {
                // Both tools have the same tensors of MXFP8.
                let layouts = [WeightLayout::ModelOptNvfp4, WeightLayout::Mxfp8Quantized];
                let layout = layouts.into_iter().find(|layout| layout.has(*format))?;
                Some(WrittenForm::Packed(layout.into()))
            }
            (Self::CompressedTensors | Self::Integers(_), WeightKind::Integers { .. }) => {
                let of_tool = ["int-quantized", "pack-quantized"].contains(&layer.layout);
                let layout = self.of_integers()?;
                if layout.name() == layer.layout || self == Self::CompressedTensors && of_tool {
                    return Some(WrittenForm::Kept);
                }
                let weight = read.integers().get(&layer.name)?;
                let fits = weight.fits(layout, &layer.name, |name| read.tensor(name));
                let (is_symmetric, _) = fits.ok()?;
                Some(WrittenForm::Repacked {
                    layout,
                    is_symmetric,
                })
            }
            (
                _,
                WeightKind::Scaled {
                    scales,
                    block,
                    is_e4m3: true,
                },
            ) => self.scaled(read, layer, scales, block),
            _ => None,
        }
    }

    /// FP8 codes stay; their scales get another name and shape.
    fn scaled(
        self,
        read: &PackedFiles<'_>,
        layer: &QuantizedLayer,
        scales: &str,
        block: &[usize],
    ) -> Option<WrittenForm> {
        let mut stored = read.tensor(scales)?.shape;
        let [outputs, inputs] = layer.shape[..].try_into().ok()?;
        if let [rows, 1, columns, 1] = stored[..] {
            stored = vec![rows, columns];
        }
        let is_tensor = stored.len() < 2 && *block == [outputs, inputs];
        let is_row = *block == [1, inputs]
            && stored.iter().product::<usize>() == outputs
            && stored.len() < 3;
        let (end, shape) = match self {
            Self::CompressedTensors if is_tensor => ("_scale", vec![1]),
            Self::CompressedTensors if is_row => ("_scale", vec![outputs, 1]),
            Self::CompressedTensors if stored.len() == 2 => ("_scale", stored),
            Self::ModelOpt if is_tensor => ("_scale", vec![]),
            Self::ModelOpt if is_row => ("_scale", vec![outputs]),
            Self::ModelOpt if stored.len() == 2 && *block == [128, 128] => {
                ("_scale", vec![stored[0], 1, stored[1], 1])
            }
            Self::Fp8 if stored.len() == 2 => ("_scale_inv", stored),
            _ => return None,
        };
        let kept = |name: &str| Retold {
            from: name.to_owned(),
            to: name.to_owned(),
            shape: layer.shape.clone(),
            number: None,
        };
        let scales = Retold {
            from: scales.to_owned(),
            to: format!("{}{end}", layer.name),
            shape,
            number: None,
        };
        Some(WrittenForm::Retold(vec![kept(&layer.name), scales]))
    }

    /// The lengths of a block that all weights have, which the config of `fp8` names once.
    pub(crate) fn one_block(layers: &QuantizedLayers) -> Option<Vec<u64>> {
        let blocks = layers.known.values().filter_map(|layer| match &layer.kind {
            WeightKind::Scaled { block, .. } => Some((block, &layer.shape)),
            _ => None,
        });
        let blocks: Vec<_> = blocks.collect();
        let longest = |axis: usize| blocks.iter().map(|(block, _)| block[axis]).max();
        let one = [longest(0)?, longest(1)?];
        // A weight that is shorter than a block has one block.
        let fits = |(block, shape): &(&Vec<usize>, &Vec<usize>)| {
            (0..2).all(|axis| {
                block[axis] == one[axis] || block[axis] >= shape[axis] && one[axis] >= shape[axis]
            })
        };
        blocks
            .iter()
            .all(fits)
            .then(|| one.map(|x| x as u64).to_vec())
    }
}
