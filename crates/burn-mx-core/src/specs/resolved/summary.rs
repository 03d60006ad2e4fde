//! [`ResolvedSpecs`] in one line.

use std::fmt::{self, Display};

use microscaling::{Rounding, ScaleMode, SharedExpMethod};

use crate::specs::{ElementwiseScope, ResolvedSpecs, Slot, SlotFormat};

impl Display for ResolvedSpecs {
    /// A summary, such as `w fp8_e4m3, a fp8_e4m3, block 32, bfloat16, round even`. Fields with default values and fields
    /// without effect are left out; [`MxSpecs::to_json`](crate::MxSpecs::to_json) of [`specs`](Self::specs) has every field.
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
        parts.extend(specs.remarks());
        if self.float_format().is_some() {
            let everywhere = match specs.elementwise_scope {
                ElementwiseScope::All => " everywhere",
                ElementwiseScope::Activations => "",
            };
            parts.push(match specs.fp {
                0 => format!("bfloat{}{everywhere}", specs.bfloat),
                fp => format!("fp{fp}{everywhere}"),
            });
        }
        parts.extend(self.roundings());
        parts.extend(self.flags());
        if self.is_random() && specs.seed != 0 {
            parts.push(format!("seed {}", specs.seed));
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

impl ResolvedSpecs {
    /// The roundings that differ from the rounding that they default to.
    fn roundings(&self) -> Vec<String> {
        let (round, gradients) = (self.round(), self.round_grad_input());
        let is_default = round == Rounding::default();
        let mut parts = Vec::from_iter((!is_default).then(|| format!("round {round}")));
        let mut differs = |field: &str, rounding: Rounding, default: Rounding| {
            if rounding != default {
                parts.push(format!("{field} {rounding}"));
            }
        };
        differs("round_weight", self.round_weight(), round);
        differs("round_output", self.round_output(), round);
        differs("round_mx_output", self.round_mx_output(), round);
        if !self.quantize_backprop() {
            return parts;
        }
        differs("round_grad_weight", self.round_grad_weight(), round);
        differs("round_grad_input", gradients, round);
        let of_products = [
            (
                "round_mx_input_grad_input",
                self.round_mx_input_grad_input(),
            ),
            (
                "round_mx_weight_grad_input",
                self.round_mx_weight_grad_input(),
            ),
            (
                "round_mx_grad_output_grad_input",
                self.round_mx_grad_output_grad_input(),
            ),
            (
                "round_mx_input_grad_weight",
                self.round_mx_input_grad_weight(),
            ),
            (
                "round_mx_grad_output_grad_weight",
                self.round_mx_grad_output_grad_weight(),
            ),
        ];
        let (_, first) = of_products[0];
        match of_products.iter().all(|(_, rounding)| *rounding == first) {
            true => differs("round_mx_*_grad_*", first, gradients),
            false => {
                for (field, rounding) in of_products {
                    differs(field, rounding, gradients);
                }
            }
        }
        parts
    }

    /// The switches of elements and elementwise ops that are not at their default.
    fn flags(&self) -> impl Iterator<Item = String> {
        let specs = self.specs();
        let has_blocks = Slot::ALL
            .iter()
            .any(|slot| matches!(specs.slot_format(*slot), Some(SlotFormat::Element(_))));
        let is_elementwise = self.float_format().is_some();
        [
            (
                "mx_flush_fp32_subnorms",
                specs.mx_flush_fp32_subnorms && has_blocks,
            ),
            (
                "no bfloat_subnorms",
                !specs.bfloat_subnorms && is_elementwise,
            ),
            ("softmax_exp2", specs.softmax_exp2 && is_elementwise),
            ("vec_use_exp2", specs.vec_use_exp2 && is_elementwise),
            ("vec_use_recip", specs.vec_use_recip && is_elementwise),
        ]
        .into_iter()
        .filter(|(_, is_on)| *is_on)
        .map(|(name, _)| name.to_owned())
    }
}
