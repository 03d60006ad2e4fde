//! The kernels as CUDA's source, which can be written without a GPU.

mod accumulating;
mod packing;

use cubecl::Compiler;
use cubecl::cuda::CudaCompiler;
use cubecl::prelude::*;
use microscaling::{BlockFormat, FloatFormat, Rounding};

use super::rounding_to_bfloat;
use crate::cube::functions::column_sums::sums_kernel;
use crate::cube::functions::rows::{RowFunction, RowNorm, Units, rows_kernel};
use crate::cube::numbers::float::Float32;
use crate::cube::numbers::random::Stream;
use crate::cube::product::{ResultRounding, scaled_kernel};
use crate::cube::quantize::both_axes::both_axes_kernel;
use crate::cube::quantize::eden::eden_kernel;
use crate::cube::quantize::hadamard::whole_blocks::whole_blocks_kernel;
use crate::cube::quantize::hadamard::{HadamardKind, transform_kernel};
use crate::cube::quantize::known::{self, KnownExpand};
use crate::cube::quantize::rules::Format;
use crate::cube::quantize::square::square_kernel;
use crate::cube::quantize::{
    BlockLayout, Job, UNITS, quantize_kernel, scale_kernel, shared_kernel,
};
use crate::cube::statistics::{Places, blocks_kernel, parts_kernel};
use crate::kernel_op::norm::{Norm, Normalization};
use crate::kernel_op::softmax::{LogSoftmax, Softmax};

/// Writes the source of the kernel that `write` writes, if somebody asks for a file.
fn source(name: &str, write: impl FnOnce(&mut KernelBuilder)) {
    written(name, &source_for(name, CubeDim::new_2d(16, 8), write));
}

/// The same of a kernel with the cubes of quantization.
fn quantizing_source(name: &str, write: impl FnOnce(&mut KernelBuilder)) {
    written(
        name,
        &source_for(name, CubeDim::new_1d(UNITS as u32), write),
    );
}

fn written(name: &str, source: &str) {
    if let Some(folder) = std::env::var_os("MX_CUDA_SOURCES") {
        let path = std::path::Path::new(&folder).join(format!("{name}.cu"));
        std::fs::write(path, source).expect("the folder is there");
    }
}

/// The source for cubes of these units.
pub(super) fn source_for(
    name: &str,
    cube: CubeDim,
    write: impl FnOnce(&mut KernelBuilder),
) -> String {
    let mut builder = KernelBuilder::default();
    cubecl::ir::AddressType::U32.register(&mut builder.scope);
    write(&mut builder);
    let settings = KernelSettings::default().cube_dim(cube).kernel_name(name);
    let definition = builder.build(settings);
    let kernel = CudaCompiler::default()
        .compile(
            definition,
            &Default::default(),
            ExecutionMode::Unchecked,
            u32::as_type_native_unchecked().storage_type(),
        )
        .expect("the kernel is one that CUDA has");
    let source = kernel.to_string();
    assert!(source.contains("__global__"), "{source}");
    source
}

pub(super) fn tensor<T: CubePrimitive>(builder: &mut KernelBuilder) -> NativeExpand<Tensor<T>> {
    builder.input_tensor(T::as_type(&builder.scope)).into()
}

pub(super) fn output<T: CubePrimitive>(builder: &mut KernelBuilder) -> NativeExpand<Tensor<T>> {
    builder.output_tensor(T::as_type(&builder.scope)).into()
}

pub(super) fn scalar<T: CubePrimitive>(builder: &mut KernelBuilder) -> NativeExpand<T> {
    let storage = T::as_type(&builder.scope).storage_type();
    builder.scalar(storage).into()
}

/// A structure of scalars alone.
pub(super) fn scalars<T: LaunchArg>(builder: &mut KernelBuilder) -> T::ExpandType {
    // A scalar's argument says nothing, and so does the structure's.
    T::expand(&().dynamic_cast(), builder)
}

fn array(builder: &mut KernelBuilder) -> NativeExpand<Array<u32>> {
    builder.input_array(u32::as_type(&builder.scope)).into()
}

/// The format with its numbers computed as CUDA's devices do.
fn on_cuda(format: BlockFormat) -> Format {
    let mut format = Format::of(format);
    format.float32 = Float32::Device;
    format
}

/// The job of quantization as CUDA's devices do it.
pub(super) fn job(
    elementwise: Option<(FloatFormat, Rounding)>,
    format: &str,
    rounding: Rounding,
) -> Job {
    let format: BlockFormat = format.parse().expect("the format is sound");
    let mut job = Job::of(elementwise, (format, rounding));
    job.format = on_cuda(format);
    job
}

/// Whole blocks along the last of two axes.
pub(super) fn layout(job: &Job, block: usize) -> BlockLayout {
    BlockLayout {
        axis: 1,
        rank: 2,
        block,
        sub_block: job.format.sub_block_length(block),
        whole: true,
    }
}

/// The facts that a kernel of this format knows.
pub(super) fn known(builder: &mut KernelBuilder, format: Option<Format>) -> KnownExpand {
    known::expand(format, || array(builder))
}

/// Writes the source of a kernel of quantization. Its arguments are those that all such kernels have, the given ones, and the job.
macro_rules! quantizing {
    ($name:expr, $kernel:ident, $job:ident, $($argument:expr),+) => {
        quantizing_source($name, |builder| {
            let input = tensor::<u32>(builder);
            let out = output::<u16>(builder);
            let known = known(builder, Some($job.format));
            let stream = scalars::<Stream>(builder);
            let count = scalar::<usize>(builder);
            $kernel::expand::<u16>(
                &mut builder.scope, input, out, known, stream, count, $($argument,)+ $job,
            );
        })
    };
}

fn output_array(builder: &mut KernelBuilder) -> NativeExpand<Array<u32>> {
    builder.output_array(u32::as_type(&builder.scope)).into()
}

const BFLOAT16: fn() -> FloatFormat = || FloatFormat::bfloat(16).expect("16 bits are allowed");

#[test]
fn sums_of_columns() {
    source("column_sums", |builder| {
        let values = builder.input_array(f32::as_type(&builder.scope)).into();
        let sums = output_array(builder);
        let [rows, columns] = [(); 2].map(|()| scalar::<usize>(builder));
        let scope = &mut builder.scope;
        sums_kernel::expand(
            scope,
            values,
            sums,
            rows,
            columns,
            BFLOAT16(),
            Rounding::NearestEven,
        );
    });
}

#[test]
fn square_blocks() {
    for (name, format) in [
        ("mxfp8", "mx(element=fp8_e4m3,block_size=32,square=true)"),
        ("nvfp4", "nvfp4(square=true)"),
        (
            "rms",
            "mx(element=fp4_e2m1,block_size=32,scale_mode=rms,square=true)",
        ),
        ("four_over_six", "nvfp4(square=true,four_over_six=true)"),
        (
            "if4",
            "block(element=table(if4),scale=ue4m3,block_size=32,square=true)",
        ),
    ] {
        let bfloat16 = Some((BFLOAT16(), Rounding::NearestEven));
        let job = job(bfloat16, format, Rounding::Stochastic);
        quantizing!(&format!("square_{name}"), square_kernel, job, 1, 2, 3, 32);
    }
}

#[test]
fn quantization() {
    let named = [
        "mxfp8_e4m3",
        "mxfp4",
        "mx9",
        "bfp16",
        "nvfp4",
        "hif4",
        "nf4",
        "if4",
    ];
    let named = named.map(|name| (name, name));
    let looks_twice = [
        ("rms", "mx(element=fp4_e2m1,block_size=32,scale_mode=rms)"),
        ("four_over_six", "nvfp4(four_over_six=true)"),
    ];
    for (name, format) in named.into_iter().chain(looks_twice) {
        for rounding in [Rounding::NearestEven, Rounding::Stochastic] {
            let bfloat16 = Some((BFLOAT16(), Rounding::NearestEven));
            let job = job(bfloat16, format, rounding);
            quantizing!(
                &format!("quantize_{name}_{rounding}"),
                quantize_kernel,
                job,
                layout(&job, 32)
            );
            // Blocks that are looked at twice have one unit each.
            if !job.format.looks_twice() {
                quantizing!(
                    &format!("shared_{name}_{rounding}"),
                    shared_kernel,
                    job,
                    layout(&job, job.format.block_length(64))
                );
            }
        }
    }
}

#[test]
fn quantization_along_both_axes() {
    for format in ["mxfp8_e4m3", "mx9", "nvfp4"] {
        let bfloat16 = Some((BFLOAT16(), Rounding::NearestEven));
        let job = job(bfloat16, format, Rounding::NearestEven);
        quantizing_source(&format!("both_axes_{format}"), |builder| {
            let input = tensor::<u32>(builder);
            let [along_last, along_rows] = [(); 2].map(|()| output::<u16>(builder));
            let [of_last, of_rows] = [(); 2].map(|()| known(builder, Some(job.format)));
            let stream = scalars::<Stream>(builder);
            let scope = &mut builder.scope;
            both_axes_kernel::expand::<u16>(
                scope, input, along_last, along_rows, of_last, of_rows, stream, 2, job, job,
            );
        });
    }
}

#[test]
fn operands_in_units_of_their_tensor_scale() {
    for (name, format) in [
        ("units", "nvfp4(tensor_scale=true)"),
        (
            "units_four_over_six",
            "nvfp4(tensor_scale=true,four_over_six=true)",
        ),
    ] {
        let job = job(None, format, Rounding::NearestEven).in_units();
        quantizing!(
            &format!("quantize_{name}"),
            quantize_kernel,
            job,
            layout(&job, 16)
        );
    }
    source("tensor_scale", |builder| {
        let word = output_array(builder);
        let format = "nvfp4(tensor_scale=true)".parse();
        let format = on_cuda(format.expect("the format is sound"));
        scale_kernel::expand(&mut builder.scope, word, format);
    });
    for (name, by_device) in [("scaled", true), ("scaled_by_integers", false)] {
        source(name, |builder| {
            let words = output_array(builder);
            let [lhs, rhs] = [(); 2].map(|()| ComptimeOptionExpand::Some(array(builder)));
            let elements = scalar::<usize>(builder);
            let how = Some(ResultRounding {
                format: BFLOAT16(),
                rounding: Rounding::NearestEven,
            });
            scaled_kernel::expand(
                &mut builder.scope,
                words,
                lhs,
                rhs,
                elements,
                by_device,
                how,
            );
        });
    }
}

#[test]
fn scales_that_are_corrected() {
    let format = "block(element=fp4_e2m1,scale=ue4m3,tensor_scale=true,block_size=16,eden=true)";
    let job = job(None, format, Rounding::Stochastic).in_units();
    quantizing!("eden", eden_kernel, job, 1, 2, 128);
}

#[test]
fn statistics_of_blocks() {
    let formats = [
        ("mxfp8", "mxfp8_e4m3"),
        ("mx9", "mx9"),
        ("rms", "mx(element=fp4_e2m1,block_size=32,scale_mode=rms)"),
        ("four_over_six", "nvfp4(four_over_six=true)"),
        ("hif4", "hif4"),
        ("if4", "if4"),
    ];
    let parse = |text: &str| text.parse::<BlockFormat>().expect("the format is sound");
    let formats = formats.map(|(name, format)| (name, Some(on_cuda(parse(format)))));
    for (name, format) in formats.into_iter().chain([("none", None)]) {
        source(&format!("statistics_{name}"), |builder| {
            let before = array(builder);
            let after = array(builder);
            let known = known(builder, format);
            let figures = output_array(builder);
            let words = output_array(builder);
            let places = scalars::<Places>(builder);
            let blocks = scalar::<usize>(builder);
            let first_word = scalar::<usize>(builder);
            blocks_kernel::expand(
                &mut builder.scope,
                before,
                after,
                known,
                figures,
                words,
                places,
                blocks,
                first_word,
                format,
            );
        });
    }
}

#[test]
fn statistics_of_parts() {
    source("statistics_parts", |builder| {
        let figures = array(builder);
        let words = output_array(builder);
        let places = scalars::<Places>(builder);
        let parts = scalar::<usize>(builder);
        parts_kernel::expand(&mut builder.scope, figures, words, places, parts);
    });
}

#[test]
fn transforms() {
    let kinds = [false, true].map(|repeated| HadamardKind {
        repeated,
        inverse: repeated,
    });
    let each =
        [Float32::Device, Float32::Integers].map(|float32| kinds.map(|kind| (kind, float32)));
    for (kind, float32) in each.into_iter().flatten() {
        let inverse = if kind.inverse { "inverse_" } else { "" };
        source(&format!("{inverse}hadamard_{float32:?}"), |builder| {
            let input = tensor::<u32>(builder);
            let out = output::<u32>(builder);
            let signs = scalars::<Stream>(builder);
            let zero = scalar::<f32>(builder);
            let blocks = scalar::<usize>(builder);
            transform_kernel::expand(
                &mut builder.scope,
                input,
                out,
                signs,
                zero,
                blocks,
                1,
                2,
                64,
                kind,
                float32,
            );
        });
    }
    for kind in kinds {
        let inverse = if kind.inverse { "inverse_" } else { "" };
        source(&format!("{inverse}hadamard_whole_blocks"), |builder| {
            let input = tensor::<u32>(builder);
            let out = output::<u32>(builder);
            let signs = scalars::<Stream>(builder);
            let zero = scalar::<f32>(builder);
            let [elements, axis_length] = [(); 2].map(|()| scalar::<usize>(builder));
            whole_blocks_kernel::expand(
                &mut builder.scope,
                input,
                out,
                signs,
                zero,
                elements,
                axis_length,
                64,
                kind,
            );
        });
    }
}

#[test]
fn functions_of_rows() {
    let rounding = rounding_to_bfloat(16);
    let softmax = Softmax {
        rounding,
        base2: false,
    };
    let logarithm = LogSoftmax { rounding };
    let norm = |norm, length| RowNorm::of(Normalization::new(norm, 1e-5, rounding), length);
    for length in [1024, 2048, 100_000] {
        let [layer, rms] = [Norm::Layer, Norm::Rms].map(|kind| norm(kind, length));
        let functions = [
            ("softmax", RowFunction::Softmax(softmax), 1, 1),
            (
                "softmax_backward",
                RowFunction::SoftmaxBackward(softmax),
                2,
                1,
            ),
            ("log_softmax", RowFunction::LogSoftmax(logarithm), 1, 1),
            (
                "log_softmax_backward",
                RowFunction::LogSoftmaxBackward(logarithm),
                2,
                1,
            ),
            ("layer_norm", RowFunction::Norm(layer), 3, 1),
            (
                "layer_norm_backward",
                RowFunction::NormBackward(layer),
                3,
                2,
            ),
            ("rms_norm", RowFunction::Norm(rms), 2, 1),
            ("rms_norm_backward", RowFunction::NormBackward(rms), 3, 2),
        ];
        for (name, function, inputs, outputs) in functions {
            let units = Units::of(length, true);
            let name = match units.keeps_rows() {
                true => format!("rows_{length}_{name}"),
                false => format!("long_rows_{name}"),
            };
            let tensors = (inputs, outputs + function.places_to_work_in(units));
            let source = source_of_rows(&name, function, units, tensors, Float32::Device);
            written(&name, &source);
        }
    }
    let (function, units) = (RowFunction::Softmax(softmax), Units::of(1024, false));
    let name = "softmax_by_integers";
    written(
        name,
        &source_of_rows(name, function, units, (1, 1), Float32::Integers),
    );
}

pub(super) fn source_of_rows(
    name: &str,
    function: RowFunction,
    units: Units,
    (inputs, outputs): (usize, usize),
    float32: Float32,
) -> String {
    let (along, across) = units.cube();
    source_for(name, CubeDim::new_2d(along, across), |builder| {
        let mut tensors =
            [(); 2].map(|()| Sequence::<Tensor<u32>>::__expand_new(&mut builder.scope));
        for _ in 0..inputs {
            let input = tensor::<u32>(builder);
            tensors[0].__expand_push_method(&mut builder.scope, input);
        }
        for _ in 0..outputs {
            let out = output::<u32>(builder);
            tensors[1].__expand_push_method(&mut builder.scope, out);
        }
        let zero = scalar::<f32>(builder);
        let rows = scalar::<usize>(builder);
        let length = scalar::<usize>(builder);
        let [inputs, outputs] = tensors;
        rows_kernel::expand(
            &mut builder.scope,
            inputs,
            outputs,
            zero,
            rows,
            length,
            function,
            units,
            float32,
        );
    })
}
