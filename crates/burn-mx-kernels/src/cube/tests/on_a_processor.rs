//! Runs CUDA's source of the kernels without a GPU: a compiler of C++ takes the unchanged source, and a small program stands for the GPU. The program
//! has planes of 32 units, shared memory, and IEEE's float32. The kernels have the host's bits.

use std::io::Write;
use std::process::{Command, Stdio};

use cubecl::prelude::*;
use microscaling::{
    BlockFormat, FloatFormat, OperandQuantization, RandomHadamard, RandomStream, Rounder, Rounding,
    Signs,
};

use super::sources::{
    job, known, layout, output, scalar, scalars, source_for, source_of_rows, tensor,
};
use super::{ordinary_numbers, rounding_to_bfloat};
use crate::cube::functions::rows::{RowFunction, RowNorm, Units};
use crate::cube::numbers::float::Float32;
use crate::cube::numbers::random::Stream;
use crate::cube::quantize::hadamard::HadamardKind;
use crate::cube::quantize::hadamard::whole_blocks::whole_blocks_kernel;
use crate::cube::quantize::rules::tables;
use crate::cube::quantize::{UNITS, shared_kernel};
use crate::kernel_op::KernelOp;
use crate::kernel_op::norm::{Norm, Normalization};
use crate::kernel_op::softmax::Softmax;

/// How a kernel is launched.
struct Launch {
    cube: (u32, u32),
    cubes: u32,
    /// Floats as patterns, then words, each group padded to a multiple of 8 bytes.
    scalars: Vec<u32>,
    buffers: Vec<Vec<u32>>,
}

/// The buffers after a kernel has run.
fn run(name: &str, source: &str, launch: Launch) -> Vec<Vec<u32>> {
    let folder = tempfile::tempdir().expect("a folder for a program");
    let path = |name: &str| folder.path().join(name);
    let program = format!("{source}\nint main() {{ return run({name}); }}\n");
    std::fs::write(path("kernel.cpp"), program).expect("the folder is there");
    std::fs::write(path("cuda_runtime.h"), include_str!("cuda_runtime.h"))
        .expect("the folder is there");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let status = Command::new(&compiler)
        .args([
            "-std=c++17",
            "-O1",
            "-w",
            "-ffp-contract=off",
            "-fno-strict-aliasing",
            "-I.",
        ])
        .args(["kernel.cpp", "-o", "kernel"])
        .current_dir(folder.path())
        .status()
        .unwrap_or_else(|error| {
            panic!("`{compiler}`, a compiler of C++ (CXX names another): {error}")
        });
    assert!(status.success(), "{name} is compiled");

    let Launch {
        cube: (x, y),
        cubes,
        scalars,
        buffers,
    } = launch;
    let shape = vec![x, y, cubes];
    let lengths: Vec<usize> = buffers.iter().map(Vec::len).collect();
    let sent = [shape, scalars].into_iter().chain(buffers);
    let sent: Vec<u8> = sent
        .flat_map(|words| std::iter::once(words.len() as u32).chain(words))
        .flat_map(u32::to_le_bytes)
        .collect();
    let mut child = Command::new(path("kernel"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("it reads");
    input.write_all(&sent).expect("it reads all");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{name}: {}", output.status);
    let (words, _) = output.stdout.as_chunks::<4>();
    let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
    lengths
        .into_iter()
        .map(|length| words.by_ref().take(length).collect())
        .collect()
}

/// Numbers of every size, with zeros, ties, NaN and Inf, and blocks of 16 that are all zero or subnormal.
fn numbers(length: usize, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 1);
    let number = |i: u64| {
        let (word, block) = (stream.draw(i), stream.draw((1 << 32) | (i / 16)));
        let exponent = match block % 8 {
            0 => 0,
            1 => word % 255,
            _ => (block >> 8) % 200 + 30 - word % 8,
        };
        let pattern = word & 0x807f_ffff | exponent << 23;
        f32::from_bits(match (word >> 9) % 16 {
            0 => 0,
            1..6 => pattern & 0xfff0_0000,
            6 if block >> 3 & 15 == 0 => pattern | 0x7f80_0000,
            _ => pattern,
        })
    };
    (0..length as u64).map(number).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn assert_same(got: &[u32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len());
    let got = got.iter().map(|word| f32::from_bits(*word));
    let pairs = got.zip(expected).enumerate();
    let differ = |(_, (got, expected)): &(usize, (f32, &f32))| {
        got.to_bits() != expected.to_bits() && !(got.is_nan() && expected.is_nan())
    };
    let different: Vec<_> = pairs.filter(differ).collect();
    let some = &different[..different.len().min(8)];
    assert!(
        different.is_empty(),
        "{what}: {} differ: {some:?}",
        different.len()
    );
}

fn words_of(stream: RandomStream) -> [u32; 4] {
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let [[a, b], [c, d]] = [stream.seed(), stream.stream()].map(halves);
    [a, b, c, d]
}

/// Units that share a block.
#[test]
fn blocks() {
    const ROWS: usize = 24;
    const LENGTH: usize = 256;
    let bfloat16 = FloatFormat::bfloat(16).expect("16 bits are allowed");
    let stream = RandomStream::new(0x1234_5678_9abc, 77);
    let formats = [
        "mxfp8_e4m3",
        "mxfp4",
        "mx9",
        "bfp16",
        "nvfp4",
        "nvfp4(tensor_scale=true)",
        "hif4",
        "nf4",
    ];
    for (i, format) in formats.into_iter().enumerate() {
        for rounding in [
            Rounding::NearestEven,
            Rounding::NearestAway,
            Rounding::Stochastic,
        ] {
            let elementwise = (i % 2 == 0).then_some((bfloat16, Rounding::NearestEven));
            let parsed: BlockFormat = format.parse().expect("the format is sound");
            let op = KernelOp::Quantize {
                axis: 1,
                quantization: OperandQuantization {
                    elementwise,
                    blocks: Some((parsed, rounding)),
                    stream,
                    ..OperandQuantization::default()
                },
            };
            let x = match parsed.tensor_scale {
                true => ordinary_numbers(ROWS * LENGTH, 1),
                false => numbers(ROWS * LENGTH, 1),
            };
            let mut expected = x.clone();
            op.apply(&mut expected, &[ROWS, LENGTH], [None, None]);

            let job = job(elementwise, format, rounding);
            let block = parsed.block_size.min(LENGTH);
            let layout = layout(&job, block);
            let name = format!("processor_{i}_{rounding}");
            let cube = (UNITS as u32, 1);
            let source = source_for(&name, CubeDim::new_1d(cube.0), |builder| {
                let input = tensor::<u32>(builder);
                let out = output::<u32>(builder);
                let known = known(builder, Some(job.format));
                let stream = scalars::<Stream>(builder);
                let count = scalar::<usize>(builder);
                let scope = &mut builder.scope;
                shared_kernel::expand::<u32>(scope, input, out, known, stream, count, layout, job);
            });
            let blocks = x.len() / block;
            let mut buffers = vec![bits(&x), vec![0; x.len()]];
            if parsed.tensor_scale {
                let mut rounded = x.clone();
                if let Some((float, _)) = elementwise {
                    float.round_slice(&mut rounded, Rounder::NearestEven);
                }
                let magnitudes = rounded.iter().map(|x| x.abs());
                buffers.push(vec![magnitudes.fold(0.0, f32::max).to_bits()]);
            }
            if let Some(element) = job.format.tables() {
                buffers.push(tables::words(element));
            }
            let launch = Launch {
                cube,
                cubes: x.len().div_ceil(4 * UNITS) as u32,
                scalars: words_of(stream)
                    .into_iter()
                    .chain([blocks as u32])
                    .collect(),
                buffers,
            };
            let buffers = run(&name, &source, launch);
            assert_same(&buffers[1], &expected, &format!("{format} {rounding}"));
        }
    }
}

/// Rows in registers, in planes that exchange their sums by shuffles, and rows that stay in memory.
#[test]
fn rows() {
    let rounding = rounding_to_bfloat(16);
    let softmax = Softmax {
        rounding,
        base2: false,
    };
    for length in [1, 17, 256, 300, 1024, 2050, 9000] {
        let [layer, rms] =
            [Norm::Layer, Norm::Rms].map(|norm| Normalization::new(norm, 1e-5, rounding));
        let of = |norm| RowNorm::of(norm, length);
        // With the number of rows and of parameters that they take, and of outputs. A logarithm is the C library's own.
        let functions = [
            (
                KernelOp::Softmax(softmax),
                RowFunction::Softmax(softmax),
                1,
                0,
                1,
            ),
            (
                KernelOp::SoftmaxBackward(softmax),
                RowFunction::SoftmaxBackward(softmax),
                2,
                0,
                1,
            ),
            (KernelOp::Norm(layer), RowFunction::Norm(of(layer)), 1, 2, 1),
            (
                KernelOp::NormBackward(layer),
                RowFunction::NormBackward(of(layer)),
                2,
                1,
                2,
            ),
            (KernelOp::Norm(rms), RowFunction::Norm(of(rms)), 1, 1, 1),
            (
                KernelOp::NormBackward(rms),
                RowFunction::NormBackward(of(rms)),
                2,
                1,
                2,
            ),
        ];
        for (i, (op, function, of_rows, parameters, outputs)) in functions.into_iter().enumerate() {
            // Not a multiple of the rows of a cube.
            const ROWS: usize = 5;
            let shape = [ROWS, length];
            let mut tensors: Vec<Vec<f32>> = (0..of_rows)
                .map(|i| match i {
                    0 => numbers(ROWS * length, 3),
                    _ => ordinary_numbers(ROWS * length, 4 + i),
                })
                .chain((0..parameters).map(|i| ordinary_numbers(length, 9 + i)))
                .collect();
            let inputs: Vec<Vec<u32>> = tensors.iter().map(|x| bits(x)).collect();
            let mut expected = tensors.remove(0);
            let mut others = tensors.into_iter();
            let second = op.apply(&mut expected, &shape, [others.next(), others.next()]);

            let units = Units::of(length, true);
            let (along, across) = units.cube();
            let places = outputs + function.places_to_work_in(units);
            let name = format!("processor_rows_{length}_{i}");
            let source = source_of_rows(
                &name,
                function,
                units,
                (inputs.len(), places),
                Float32::Device,
            );
            let count = inputs.len();
            let room = (0..places).map(|_| vec![0; ROWS * length]);
            let launch = Launch {
                cube: (along, across),
                cubes: (ROWS as u32).div_ceil(across),
                scalars: vec![(-0_f32).to_bits(), 0, ROWS as u32, length as u32],
                buffers: inputs.into_iter().chain(room).collect(),
            };
            let buffers = run(&name, &source, launch);
            assert_same(&buffers[count], &expected, &format!("{op:?} {shape:?}"));
            if let Some(second) = second {
                assert_same(
                    &buffers[count + 1],
                    &second,
                    &format!("products of {op:?} {shape:?}"),
                );
            }
        }
    }
}

/// Hadamard transforms in registers.
#[test]
fn transforms() {
    let shape = [3, 384];
    let x = numbers(shape[0] * shape[1], 5);
    let random = RandomStream::new(4, 4);
    let repeated = 0x5a5a_1234_9876_cdef_0246_8ace_1357_9bdf_u128;
    let words = [0, 32, 64, 96].map(|shift| (repeated >> shift) as u32);
    for block in [16, 32, 64, 128] {
        for (signs, words) in [
            (Signs::from(random), words_of(random)),
            (Signs::Repeated(repeated), words),
        ] {
            for inverse in [false, true] {
                let kind = HadamardKind {
                    repeated: matches!(signs, Signs::Repeated(_)),
                    inverse,
                };
                let op = KernelOp::Hadamard {
                    axis: 1,
                    transform: RandomHadamard { block_size: block },
                    signs,
                    inverse,
                };
                let mut expected = x.clone();
                op.apply(&mut expected, &shape, [None, None]);
                let name = "processor_hadamard";
                let source = source_for(name, CubeDim::new_1d(128), |builder| {
                    let input = tensor::<u32>(builder);
                    let out = output::<u32>(builder);
                    let signs = scalars::<Stream>(builder);
                    let zero = scalar::<f32>(builder);
                    let [elements, axis_length] = [(); 2].map(|()| scalar::<usize>(builder));
                    let scope = &mut builder.scope;
                    whole_blocks_kernel::expand(
                        scope,
                        input,
                        out,
                        signs,
                        zero,
                        elements,
                        axis_length,
                        block,
                        kind,
                    );
                });
                let zero = [(-0_f32).to_bits(), 0];
                let launch = Launch {
                    cube: (128, 1),
                    cubes: x.len().div_ceil(128 * 16) as u32,
                    scalars: zero
                        .into_iter()
                        .chain(words)
                        .chain([x.len() as u32, shape[1] as u32])
                        .collect(),
                    buffers: vec![bits(&x), vec![0; x.len()]],
                };
                let buffers = run(name, &source, launch);
                assert_same(&buffers[1], &expected, &format!("{op:?}"));
            }
        }
    }
}
