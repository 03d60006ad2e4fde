//! [`ResolvedSpecs`] in one line.

use std::fmt::{self, Display};

use microscaling::{ScaleMode, SharedExpMethod};

use super::{GradientOperands, ResolvedSpecs, Slot, SlotFormat};

impl Display for ResolvedSpecs {
    /// A summary of the formats, such as `w fp8_e4m3, a fp8_e4m3, block 32, bfloat16`. Fields with default values and
    /// roundings are left out; [`MxSpecs::to_json`](crate::MxSpecs::to_json) of [`specs`](Self::specs) has every field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("no emulation");
        }
        let specs = self.specs();
        let mut parts = Vec::new();
        let mut has_elements = false;
        for slot in Slot::ALL {
            let Some(format) = self.block_format(slot) else {
                continue;
            };
            let named = specs.slot_format(slot).expect("what resolves is set");
            has_elements |= matches!(named, SlotFormat::Element(_));
            if !slot.is_backward() || Some(format) != self.block_format(slot.forward()) {
                let slot = slot.field().replace("_elem_format", "");
                parts.push(format!("{slot} {named}"));
            }
        }
        if has_elements {
            parts.push(match (specs.shared_exp_method, specs.block_size) {
                (SharedExpMethod::None, _) => "one scale an element".into(),
                (SharedExpMethod::Max, 0) => "one block an axis".into(),
                (SharedExpMethod::Max, size) => format!("block {size}"),
            });
            if specs.scale_bits != 8 {
                parts.push(format!("{} scale bits", specs.scale_bits));
            }
            if specs.scale_mode != ScaleMode::Floor {
                parts.push(format!("scale mode {}", specs.scale_mode));
            }
        }
        let gradients = [self.hadamard_input_grad(), self.hadamard_weight_grad()];
        let both = gradients[0] == gradients[1];
        let transforms = [
            (self.hadamard_forward(), "forward Hadamard"),
            (gradients[0].filter(|_| both), "Hadamard"),
            (gradients[0].filter(|_| !both), "input gradient Hadamard"),
            (gradients[1].filter(|_| !both), "weight gradient Hadamard"),
        ];
        for (transform, name) in transforms {
            parts.extend(transform.map(|transform| format!("{name} {transform}")));
        }
        if !specs.headroom_bp.is_none() {
            parts.push(format!("backward headroom {}", specs.headroom_bp));
        }
        if specs.gradient_operands == GradientOperands::Forward {
            parts.push("gradients of forward operands".into());
        }
        if specs.mask_clipped {
            parts.push("clipped ones masked".into());
        }
        for (accumulation, name) in [
            (specs.accumulator, "accumulator"),
            (specs.accumulator_forward, "forward accumulator"),
            (specs.accumulator_input_grad, "input gradient accumulator"),
            (specs.accumulator_weight_grad, "weight gradient accumulator"),
        ] {
            parts.extend(accumulation.map(|accumulation| format!("{name} {accumulation}")));
        }
        if !specs.quantize_matmul {
            parts.push("no blocks between activations".into());
        }
        if specs.quantize_constants {
            parts.push("constants in blocks".into());
        }
        if self.float_format().is_some() {
            parts.push(match specs.fp {
                0 => format!("bfloat{}", specs.bfloat),
                fp => format!("fp{fp}"),
            });
        }
        if specs.quantize_loss {
            parts.push("emulated loss".into());
        }
        if !specs.quantize_backprop {
            parts.push("forward only".into());
        }
        if self.has_static_input() {
            parts.push("static input".into());
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use crate::specs::MxSpecs;

    #[test]
    fn partial_json_loads_and_resolves() {
        for (json, summary) in [
            (
                r#"{ "w_elem_format": "fp8_e4m3", "a_elem_format": "fp8_e5m2", "block_size": 32,
                    "scale_bits": 8, "bfloat": 16 }"#,
                "w fp8_e4m3, a fp8_e5m2, block 32, bfloat16",
            ),
            (
                r#"{ "w_elem_format": "fp6_e3m2", "a_elem_format": "fp6_e3m2", "block_size": 32,
                    "scale_bits": 8, "bfloat": 16, "round": "even", "quantize_backprop": false }"#,
                "w fp6_e3m2, a fp6_e3m2, block 32, bfloat16, forward only",
            ),
            (
                r#"{ "w_elem_format": "fp4_e2m1", "a_elem_format": "fp6_e2m3",
                    "w_elem_format_bp": "fp6_e3m2", "a_elem_format_bp": "int8",
                    "a_elem_format_bp_ex": "fp8_e5m2", "a_elem_format_bp_os": "fp8_e4m3",
                    "block_size": 16, "scale_bits": 8, "fp": 16, "round": "floor" }"#,
                "w fp4_e2m1, a fp6_e2m3, w_bp fp6_e3m2, a_bp int8, a_bp_ex fp8_e5m2, \
                 a_bp_os fp8_e4m3, block 16, fp16",
            ),
            (
                r#"{ "w_elem_format": "int8", "a_elem_format": "int8", "block_size": 32 }"#,
                "w int8, a int8, block 32",
            ),
            (
                r#"{ "bfloat": 12, "round": "nearest", "bfloat_subnorms": false }"#,
                "bfloat12",
            ),
            ("{}", "no emulation"),
        ] {
            let specs = MxSpecs::from_json(json).unwrap();
            assert_eq!(specs.resolve().unwrap().to_string(), summary, "{json}");
        }
    }
}
