//! [`ResolvedSpecs`] in one line.

use std::fmt::{self, Display};

use microscaling::{ScaleMode, SharedExpMethod};

use super::{ResolvedSpecs, Slot, SlotFormat};

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
        parts.extend(specs.remarks());
        if self.float_format().is_some() {
            parts.push(match specs.fp {
                0 => format!("bfloat{}", specs.bfloat),
                fp => format!("fp{fp}"),
            });
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
