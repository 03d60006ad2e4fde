//! The fields of attention, alone and together.

use burn_mx_kernels::internal::accumulated::kind_of;
use microscaling_product::{Accumulation, OperandKind, OperandType};

use super::recipe::contradiction;
use crate::specs::{
    AttentionBackward, AttentionSpecs, MxSpecs, PointFormat, ProductKind, RowSums, SpecsError,
    ValueAxis,
};

/// The formats of one number for each row.
const OF_A_ROW: &str = "an element such as fp8_e4m3, bfloat10 to bfloat32, fp10 to fp29, or none";
/// The largest factor of probabilities whose inverse and products are far from float32's ends.
const LARGEST_SCALE: usize = 1 << 16;

impl MxSpecs {
    /// Checks the formats of attention.
    pub(super) fn check_attention(&self) -> Result<(), SpecsError> {
        let Some(attention) = self.attention else {
            return Ok(());
        };
        attention.check()?;
        if self.quantize_backprop {
            return Ok(());
        }
        let reason = "quantize_backprop is false, so gradients are float32";
        for (field, point) in attention.saved().into_iter().chain(attention.gradients()) {
            if let Some(format) = point {
                return contradiction(field, &format, reason, "none");
            }
        }
        for (field, unit) in attention.gradient_accumulators() {
            if let Some(unit) = unit {
                return contradiction(field, &unit, reason, "none");
            }
        }
        Ok(())
    }
}

impl AttentionSpecs {
    /// The format of the second product's left operand.
    pub(crate) fn left_of_value(&self) -> Option<PointFormat> {
        match self.tile {
            0 => self.probabilities,
            _ => self.exponentials,
        }
    }

    /// The formats of gradients inside of attention, by their fields.
    fn gradients(&self) -> [(&'static str, Option<PointFormat>); 4] {
        [
            ("attention.d_output", self.d_output),
            ("attention.d_output_dp", self.d_output_dp),
            ("attention.d_probabilities", self.d_probabilities),
            ("attention.d_scores", self.d_scores),
        ]
    }

    /// The formats of the other operands of gradient products, by their fields.
    fn saved(&self) -> [(&'static str, Option<PointFormat>); 4] {
        [
            ("attention.q_bp", self.q_bp),
            ("attention.k_bp", self.k_bp),
            ("attention.v_bp", self.v_bp),
            ("attention.probabilities_bp", self.probabilities_bp),
        ]
    }

    /// The matrix units of gradient products, by their fields.
    fn gradient_accumulators(&self) -> [(&'static str, Option<Accumulation>); 4] {
        [
            ("attention.dv_accumulator", self.dv_accumulator),
            ("attention.dp_accumulator", self.dp_accumulator),
            ("attention.dq_accumulator", self.dq_accumulator),
            ("attention.dk_accumulator", self.dk_accumulator),
        ]
    }

    /// The format of the output's gradient where dP = dO·vᵀ.
    pub(crate) fn d_output_of_dp(&self) -> Option<PointFormat> {
        self.d_output_dp.or(self.d_output)
    }

    fn check(&self) -> Result<(), SpecsError> {
        self.check_blocks()?;
        let scale = self.probability_scale;
        if !(1..=LARGEST_SCALE).contains(&scale) {
            return Err(SpecsError::OutOfRange {
                field: "attention.probability_scale",
                value: scale,
                allowed: format!("1 to {LARGEST_SCALE}"),
            });
        }
        if scale != 1 && self.left_of_value().is_none() {
            let (reason, allowed) = match self.tile {
                0 => ("`attention.probabilities` has no format", "1"),
                _ => (
                    "`attention.exponentials`, the left operand in tiles, has no format",
                    "1",
                ),
            };
            return contradiction("attention.probability_scale", &scale, reason, allowed);
        }
        if let (Some(format), 1..) = (self.probabilities, self.tile) {
            let reason = "with `attention.tile` the left operand is the exponentials";
            let allowed = "none, with the format as `attention.exponentials`";
            return contradiction("attention.probabilities", &format, reason, allowed);
        }
        if self.row_sums == RowSums::Exact && self.exponentials.is_none() {
            let reason = "`attention.exponentials` has no format, so they are exact";
            return contradiction("attention.row_sums", &"exact", reason, "rounded");
        }
        for (field, point) in self.saved() {
            if let (Some(format), AttentionBackward::Float) = (point, self.backward) {
                let reason =
                    "`attention.backward` is float, so gradient products read unrounded operands";
                return contradiction(field, &format, reason, "none");
            }
        }
        self.check_lines()?;
        self.check_accumulators()?;
        self.check_gradient_accumulators()
    }

    /// Checks the formats themselves, and that numbers of rows have no blocks.
    fn check_blocks(&self) -> Result<(), SpecsError> {
        let points = [
            ("attention.q", self.q),
            ("attention.k", self.k),
            ("attention.v", self.v),
            ("attention.scores", self.scores),
            ("attention.scaled_scores", self.scaled_scores),
            ("attention.differences", self.differences),
            ("attention.exponentials", self.exponentials),
            ("attention.probabilities", self.probabilities),
            ("attention.output", self.output),
        ];
        let points = points.into_iter().chain(self.saved());
        for (field, point) in points.chain(self.gradients()) {
            if let Some(PointFormat::Block(format)) = point {
                format.validate().map_err(|error| SpecsError::Format {
                    field,
                    format: format.to_string(),
                    error: Box::new(error),
                })?;
            }
        }
        let rows = [
            ("attention.maximum", self.maximum),
            ("attention.sum", self.sum),
            ("attention.statistics", self.statistics),
        ];
        for (field, point) in rows {
            if let Some(PointFormat::Block(format)) = point {
                let reason = "a row has one such number, which is no block";
                return contradiction(field, &format, reason, OF_A_ROW);
            }
        }
        if self.v_axis == ValueAxis::Features && !matches!(self.v, Some(PointFormat::Block(_))) {
            let reason = "`attention.v` has no blocks";
            return contradiction("attention.v_axis", &"features", reason, "keys");
        }
        if let Some(range) = self.v_range {
            let reason = match self.v {
                Some(PointFormat::Element(element)) if range.get() <= element.max() => {
                    return Ok(());
                }
                Some(PointFormat::Element(_)) => "`attention.v` has no element as large",
                _ => "`attention.v` is not an element without a scale",
            };
            let allowed = "none, or at most the largest element that `attention.v` names";
            return contradiction("attention.v_range", &range, reason, allowed);
        }
        Ok(())
    }

    /// Checks lines of blocks of several rows.
    fn check_lines(&self) -> Result<(), SpecsError> {
        let lines = [
            ("attention.q_rows", self.q_rows, self.q),
            ("attention.k_rows", self.k_rows, self.k),
        ];
        for (field, rows, point) in lines {
            let reason = match point {
                _ if rows == 0 => continue,
                Some(PointFormat::Block(format)) if format.square => "its format has square blocks",
                Some(PointFormat::Block(_)) if self.qk_accumulator.is_some() => {
                    "`attention.qk_accumulator` takes blocks along the summed axis alone"
                }
                Some(PointFormat::Block(_)) => continue,
                _ => "its format has no blocks",
            };
            return contradiction(field, &rows, reason, "0");
        }
        Ok(())
    }

    fn check_accumulators(&self) -> Result<(), SpecsError> {
        let forward = ProductKind::Forward;
        let qk = ("attention.qk_accumulator", self.qk_accumulator);
        check_accumulator(qk, forward, [self.q, self.k])?;
        let operands = [self.left_of_value(), self.v];
        let pv = ("attention.pv_accumulator", self.pv_accumulator);
        check_accumulator(pv, forward, operands)?;
        let (Some(accumulator), Some(PointFormat::Block(format))) = (self.pv_accumulator, self.v)
        else {
            return Ok(());
        };
        let field = "attention.pv_accumulator";
        if self.v_axis == ValueAxis::Features {
            let reason = "the value's blocks lie along `features`, not along the summed axis";
            return contradiction(field, &accumulator, reason, "none, or `v_axis` keys");
        }
        let group = format.group_size();
        let fits = group > 0 && self.tile.is_multiple_of(group) && !format.tensor_scale;
        if self.tile > 0 && !fits {
            let reason = "a tile does not hold whole blocks of the value with their scales";
            let allowed = "none, or a `tile` that is a multiple of the block size of `v`";
            return contradiction(field, &accumulator, reason, allowed);
        }
        Ok(())
    }

    /// The units of gradient products take blocks along the summed axis, too, and the forward pass has few of them there.
    fn check_gradient_accumulators(&self) -> Result<(), SpecsError> {
        let [dv, dp, dq, dk] = self.gradient_accumulators();
        let of_value = self.v.filter(|_| self.v_axis == ValueAxis::Keys);
        let products = [
            (
                dv,
                self.d_output,
                self.probabilities_bp,
                self.left_of_value(),
                P_ALONG_KEYS,
            ),
            (dp, self.d_output_of_dp(), self.v_bp, of_value, V_ALONG_KEYS),
            (dq, self.d_scores, self.k_bp, self.k, K_ALONG_FEATURES),
            (dk, self.d_scores, self.q_bp, self.q, Q_ALONG_FEATURES),
        ];
        for ((field, unit), gradient, own, forward, reason) in products {
            let Some(accumulator) = unit else { continue };
            let reads_forward = self.backward == AttentionBackward::Quantized && own.is_none();
            let forward = forward.filter(|_| reads_forward);
            if matches!(forward, Some(PointFormat::Block(format)) if !format.square) {
                let allowed = "none, or a format of its own for the gradient product: `q_bp`, `k_bp`, `v_bp` or `probabilities_bp`";
                return contradiction(field, &accumulator, reason, allowed);
            }
            if field == dp.0 && reads_forward && self.v_range.is_some() {
                let reason = "`attention.v_range` gives channels of the value scales that do not factor out of the sum";
                return contradiction(field, &accumulator, reason, "none, or a format as `v_bp`");
            }
            let saved = match (own, field == dp.0) {
                (Some(own), _) => Some(own),
                (None, true) => self.v.filter(|_| reads_forward),
                (None, false) => forward,
            };
            check_accumulator((field, unit), ProductKind::InputGradient, [gradient, saved])?;
        }
        Ok(())
    }
}

const P_ALONG_KEYS: &str =
    "the blocks of the probabilities lie along the keys, and the product sums over the queries";
const V_ALONG_KEYS: &str =
    "the blocks of the value lie along the keys, and the product sums over the features";
const K_ALONG_FEATURES: &str =
    "the blocks of the key lie along the features, and the product sums over the keys";
const Q_ALONG_FEATURES: &str =
    "the blocks of the query lie along the features, and the product sums over the queries";

/// The kind of an operand with this format, as an accumulator sees it.
pub(crate) fn kind_of_point(point: Option<PointFormat>) -> Option<OperandKind> {
    match point {
        None => Some(OperandType::Float32.into()),
        Some(PointFormat::Block(format)) => kind_of(Some(&format), None),
        Some(PointFormat::Element(element)) => Some(element.into()),
        Some(PointFormat::Float(format)) => kind_of(None, Some(format)),
    }
}

fn check_accumulator(
    (field, accumulator): (&'static str, Option<Accumulation>),
    product: ProductKind,
    operands: [Option<PointFormat>; 2],
) -> Result<(), SpecsError> {
    let Some(accumulator) = accumulator else {
        return Ok(());
    };
    let [Some(lhs), Some(rhs)] = operands.map(kind_of_point) else {
        let reason = "an operand has other factors than one scale a block";
        let allowed = "none, or operands with one scale a block";
        return contradiction(field, &accumulator, reason, allowed);
    };
    match accumulator.of(lhs, rhs) {
        Ok(_) => Ok(()),
        Err(error) => Err(SpecsError::Accumulator {
            field,
            accumulator: accumulator.to_string(),
            product,
            error: error.to_string(),
        }),
    }
}
