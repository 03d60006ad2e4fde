//! The neighbours of a block's rule.

use super::model::ScaleChange;
use super::model::{BlockConversion, BlockModel};
use crate::element::format::CodeFormat;
use crate::element::modes::ElementRounding;
use crate::element::neighbouring_rules;
use crate::set::NeighbouringRule;
use microscaling::{NonFinite, ScaleMode};

/// The neighbours of a rule, for blocks of this format.
pub(super) fn neighbours(
    model: &BlockModel,
    rule: &BlockConversion,
) -> Vec<(NeighbouringRule, BlockConversion)> {
    let plan = model
        .element
        .or_else(|| CodeFormat::Element(model.format.element).plan().ok());
    let elements = neighbouring_rules(&rule.element, plan.as_ref());
    let elements = elements.into_iter().filter(|(neighbour, element)| {
        let of_library = model.of_library(element).is_some() || neighbour.field == "negative zero";
        model.element.is_some() || of_library
    });
    let mut found: Vec<(NeighbouringRule, BlockConversion)> = elements
        .map(|(neighbour, element)| (neighbour, BlockConversion { element, ..*rule }))
        .collect();
    found.extend(scale_changes(model).into_iter().map(|(name, scale)| {
        let neighbour = NeighbouringRule {
            field: "scale",
            name,
        };
        (neighbour, BlockConversion { scale, ..*rule })
    }));
    found
}

/// Other scales, in words.
fn scale_changes(model: &BlockModel) -> Vec<(String, ScaleChange)> {
    let mut found = Vec::new();
    let Some(element) = &model.element else {
        return found;
    };
    let mut add = |name: String, scale| found.push((name, scale));
    add(
        "scale one too large where amax = 2^k".to_owned(),
        ScaleChange::OneMoreAtPowers,
    );
    let has_modes = model.format.has_exponent() && !model.format.has_fixed_steps();
    if has_modes {
        if model.format.scale_mode == ScaleMode::Floor {
            add(
                "scale rounded up to the next power of two".to_owned(),
                ScaleChange::OneMoreBetweenPowers,
            );
        }
        for (mode, words) in [
            (ScaleMode::Floor, "scale rounded down (scale mode floor)"),
            (
                ScaleMode::Ceil,
                "scale rounded up, of float32's last binade down (scale mode ceil)",
            ),
            (
                ScaleMode::Even,
                "scale of the rounded amax (scale mode even)",
            ),
            (
                ScaleMode::Rceil,
                "scale rounded up so that amax fits (scale mode rceil)",
            ),
        ] {
            if mode != model.format.scale_mode {
                add(words.to_owned(), ScaleChange::Mode(mode));
            }
        }
    } else if model.scale.is_some() && !model.format.four_over_six {
        add(
            "scale rounded up".to_owned(),
            ScaleChange::Rounded(ElementRounding::TowardPositive),
        );
        add(
            "scale rounded down".to_owned(),
            ScaleChange::Rounded(ElementRounding::TowardZero),
        );
        add(
            "scale rounded with ties away from zero".to_owned(),
            ScaleChange::Rounded(ElementRounding::TiesToAway),
        );
    }
    if !model.format.tensor_scale {
        add(
            "scale of subnormal inputs as of the smallest normal input".to_owned(),
            ScaleChange::SubnormalsAsNormal,
        );
    }
    add(
        "scale code one too large".to_owned(),
        ScaleChange::Shifted(1),
    );
    add(
        "scale code one too small".to_owned(),
        ScaleChange::Shifted(-1),
    );
    if model.format.non_finite == NonFinite::OfBlock && element.bits > 1 {
        add(
            "NaN and Inf do not make their block NaN".to_owned(),
            ScaleChange::NanIgnored,
        );
    }
    found
}
