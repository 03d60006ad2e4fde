//! The sources of the kernels that pack and unpack.

use super::{array, known, output_array, scalar, scalars, source};
use crate::cube::numbers::random::Stream;
use crate::cube::pack::{self, Form};
use crate::cube::statistics::blocks::Blocks;
use microscaling::Rounding;

#[test]
fn packing() {
    let formats = [
        ("mxfp8", "mxfp8_e4m3"),
        ("mxint8", "mxint8"),
        ("mx6", "mx6"),
        ("nvfp4", "nvfp4(tensor_scale=true)"),
        ("hif4", "hif4"),
        ("nf4", "nf4"),
        ("if4", "if4"),
    ];
    for (name, format) in formats {
        let form = Form::of(format.parse().expect("the format is sound"), 32);
        source(&format!("scales_{name}"), |builder| {
            let values = array(builder);
            let known = known(builder, Some(form.format));
            let grids = output_array(builder);
            let scales = output_array(builder);
            let blocks = scalars::<Blocks>(builder);
            let count = scalar::<usize>(builder);
            pack::scales_kernel::expand(
                &mut builder.scope,
                values,
                known,
                grids,
                scales,
                blocks,
                count,
                form,
            );
        });
        source(&format!("codes_{name}"), |builder| {
            let values = array(builder);
            let grids = array(builder);
            let known = known(builder, Some(form.format));
            let words = output_array(builder);
            let stream = scalars::<Stream>(builder);
            let blocks = scalars::<Blocks>(builder);
            let elements = scalar::<usize>(builder);
            let count = scalar::<usize>(builder);
            pack::codes_kernel::expand(
                &mut builder.scope,
                values,
                grids,
                known,
                words,
                stream,
                blocks,
                elements,
                count,
                form,
                Rounding::Stochastic,
            );
        });
        source(&format!("records_{name}"), |builder| {
            let grids = array(builder);
            let scales = array(builder);
            let known = known(builder, Some(form.format));
            let words = output_array(builder);
            let [codes, blocks, count] = [(); 3].map(|()| scalar::<usize>(builder));
            pack::records_kernel::expand(
                &mut builder.scope,
                grids,
                scales,
                known,
                words,
                codes,
                blocks,
                count,
                form,
            );
        });
        source(&format!("unpack_{name}"), |builder| {
            let words = array(builder);
            let known = known(builder, Some(form.format));
            let values = output_array(builder);
            let blocks = scalars::<Blocks>(builder);
            let codes = scalar::<usize>(builder);
            let tensor_scale = scalar::<u32>(builder);
            let elements = scalar::<usize>(builder);
            pack::values_kernel::expand(
                &mut builder.scope,
                words,
                known,
                values,
                blocks,
                codes,
                tensor_scale,
                elements,
                form,
            );
        });
    }
}
