//! The sources of the kernels of products with accumulators.

use super::{array, output_array, scalar, scalars, source};
use crate::cube::accumulate::sums::{Adding, Chain, ResultElements, ScalesAt, Structure, Width};
use crate::cube::accumulate::terms::{Content, Lines, Nested, Slots, Terms, Type};
use crate::cube::accumulate::{sums, tensor_scales_kernel, terms};
use crate::cube::numbers::wide::OutputFormat;
use crate::cube::pack::Form;
use crate::cube::quantize::rules::Format;
use crate::cube::statistics::blocks::Blocks;
use cubecl::prelude::*;
use microscaling::BlockFormat;

#[test]
fn words() {
    let format = |text: &str| -> BlockFormat { text.parse().expect("the format is sound") };
    let mxfp8 = Some(Form::of(format("mxfp8_e4m3"), 32));
    let nvfp4 = Some(Form::of(format("nvfp4(tensor_scale=true)"), 16));
    for (name, form, content) in [
        ("bfloat16", None, Content::Element),
        ("mxfp8", mxfp8, Content::Scaled),
        ("nvfp4", nvfp4, Content::Fixed),
        ("nvfp4_scales", nvfp4, Content::Scale),
    ] {
        // Neighbouring lines, and these of windows.
        for (across, in_windows) in [(false, false), (true, false), (true, true)] {
            source(&format!("terms_{name}_{across}_{in_windows}"), |builder| {
                let source = array(builder);
                let windows = match in_windows {
                    true => ComptimeOptionExpand::Some(array(builder)),
                    false => ComptimeOptionExpand::None,
                };
                let words = output_array(builder);
                let blocks = scalars::<Blocks>(builder);
                let codes = scalar::<usize>(builder);
                let slots = scalars::<Slots>(builder);
                let lines = scalars::<Lines>(builder);
                let [free, summed] = [(); 2].map(|()| scalars::<Nested>(builder));
                let [element, scale] = [(); 2].map(|()| scalars::<Type>(builder));
                let count = scalar::<usize>(builder);
                terms::terms_kernel::expand(
                    &mut builder.scope,
                    source,
                    windows,
                    words,
                    blocks,
                    codes,
                    slots,
                    lines,
                    free,
                    summed,
                    element,
                    scale,
                    count,
                    Terms {
                        content,
                        form,
                        across,
                    },
                );
            });
        }
    }
}

#[test]
fn sums() {
    let terms = ScalesAt::Terms;
    for (name, adding, scales_at) in [
        ("single", Adding::Joint(Width::Single), terms),
        ("split", Adding::Joint(Width::Split), terms),
        ("double", Adding::Joint(Width::Double), terms),
        ("groups", Adding::Groups, ScalesAt::Groups),
        (
            "promoted",
            Adding::Joint(Width::Single),
            ScalesAt::Promotion,
        ),
        ("late", Adding::Late { interleave: true }, terms),
        (
            "pairs",
            Adding::Pairs {
                terms: 4,
                flush: true,
            },
            terms,
        ),
        ("in_turn", Adding::InTurn, terms),
        (
            "integers",
            Adding::Integers { saturate: true },
            ScalesAt::Promotion,
        ),
    ] {
        source(&format!("sums_{name}"), |builder| {
            let lhs = array(builder);
            let rhs = array(builder);
            let mut scales = || match scales_at {
                ScalesAt::Terms => ComptimeOptionExpand::None,
                _ => ComptimeOptionExpand::Some(array(builder)),
            };
            let (lhs_scales, rhs_scales) = (scales(), scales());
            let matrices = array(builder);
            let result = output_array(builder);
            let chain = scalars::<Chain>(builder);
            let output = scalars::<OutputFormat>(builder);
            let elements = scalars::<ResultElements>(builder);
            sums::sums_kernel::expand(
                &mut builder.scope,
                lhs,
                rhs,
                lhs_scales,
                rhs_scales,
                matrices,
                result,
                chain,
                output,
                elements,
                Structure {
                    adding,
                    promotes: true,
                    scales_at,
                },
            );
        });
    }
}

#[test]
fn tensor_scales() {
    let nvfp4: BlockFormat = "nvfp4(tensor_scale=true)"
        .parse()
        .expect("the format is sound");
    source("tensor_scales_accumulated", |builder| {
        let values = output_array(builder);
        let lhs = array(builder);
        let rhs = array(builder);
        let [last_of_lhs, last_of_rhs, elements] = [(); 3].map(|()| scalar::<usize>(builder));
        tensor_scales_kernel::expand(
            &mut builder.scope,
            values,
            lhs,
            rhs,
            last_of_lhs,
            last_of_rhs,
            elements,
            [Some(Format::of(nvfp4)), None],
        );
    });
}
