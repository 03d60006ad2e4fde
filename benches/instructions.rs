//! The kernels whose instructions `.ci/instructions.py` counts: each runs once under valgrind's callgrind, on one thread.
//!
//! `instructions` lists the kernels with their numbers of elements; `instructions NAME` runs one of them.

use std::hint::black_box;

use microscaling::{
    BlockFormat, FloatFormat, FormatError, OperandQuantization, Packed, RandomStream, Rounding,
};
use microscaling_product::{Axis, Matrices, Panels, Side};

/// Rows and columns of the tensors, all of which together fit into the second-level cache.
const SIZE: usize = 128;
/// Elements of a tensor; of a product, its multiplications.
const ELEMENTS: usize = SIZE * SIZE;

/// A kernel: its name, the elements that it handles, and the work, of which everything but a last call is preparation.
type Kernel = (&'static str, usize, fn());

const KERNELS: [Kernel; 13] = [
    ("quantize mxfp8_e4m3, last axis", ELEMENTS, || {
        quantize("mxfp8_e4m3", 1, Rounding::NearestEven)
    }),
    ("quantize mxfp8_e4m3, first axis", ELEMENTS, || {
        quantize("mxfp8_e4m3", 0, Rounding::NearestEven)
    }),
    ("quantize mxfp8_e4m3, stochastic", ELEMENTS, || {
        quantize("mxfp8_e4m3", 1, Rounding::Stochastic)
    }),
    ("quantize mxfp8_rceil, last axis", ELEMENTS, || {
        quantize("mxfp8_rceil", 1, Rounding::NearestEven)
    }),
    ("quantize nvfp4, last axis", ELEMENTS, || {
        quantize("nvfp4", 1, Rounding::NearestEven)
    }),
    ("quantize nvfp4, first axis", ELEMENTS, || {
        quantize("nvfp4", 0, Rounding::NearestEven)
    }),
    ("quantize mx6, last axis", ELEMENTS, || {
        quantize("mx6", 1, Rounding::NearestEven)
    }),
    ("quantize nf4, last axis", ELEMENTS, || {
        quantize("nf4", 1, Rounding::NearestEven)
    }),
    ("round to bfloat16", ELEMENTS, || {
        round(FloatFormat::bfloat(16))
    }),
    ("round to fp of 8 bits", ELEMENTS, || {
        round(FloatFormat::fp(8))
    }),
    ("pack mxfp8_e4m3", ELEMENTS, || pack("mxfp8_e4m3")),
    ("unpack mxfp4", ELEMENTS, || unpack("mxfp4")),
    ("product of mxfp8_e4m3", ELEMENTS * SIZE, product),
];

fn main() {
    let name = std::env::args().nth(1).filter(|name| name != "--bench");
    match name {
        None => KERNELS
            .iter()
            .for_each(|(name, elements, _)| println!("{elements}\t{name}")),
        Some(name) => {
            let kernel = KERNELS.iter().find(|(kernel, ..)| *kernel == name);
            let Some((.., run)) = kernel else {
                let names = KERNELS.map(|(name, ..)| name);
                eprintln!("NAME is {name:?}, expected one of {names:?}");
                std::process::exit(2);
            };
            run();
        }
    }
}

/// The instructions of this function and of its callees are counted, and no others.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    black_box(work)();
}

/// Numbers of ordinary magnitudes, always the same.
fn numbers() -> Vec<f32> {
    let stream = RandomStream::new(1, 2);
    let unit = |word: u32| f64::from(word) / f64::from(u32::MAX) - 0.5;
    let words = (0..ELEMENTS as u64).map(|at| (stream.draw(2 * at), stream.draw(2 * at + 1)));
    words
        .map(|(value, scale)| (unit(value) * (8.0 * unit(scale)).exp2()) as f32)
        .collect()
}

fn named(format: &str) -> BlockFormat {
    format.parse().expect("the format has a name")
}

fn quantize(format: &str, axis: usize, rounding: Rounding) {
    let format = named(format);
    let run = |data: &mut [f32]| {
        let rounder = rounding.with(RandomStream::new(3, 4));
        let done = format.quantize(black_box(data), &[SIZE, SIZE], axis, rounder);
        done.expect("the tensor fits the format");
    };
    // The set-up of a first call is not measured.
    run(&mut numbers());
    let mut data = numbers();
    measured(&mut || run(&mut data));
}

fn round(format: Result<FloatFormat, FormatError>) {
    let format = format.expect("there is a format with these bits");
    let run = |data: &mut [f32]| {
        let rounder = Rounding::NearestEven.with(RandomStream::new(3, 4));
        format.round_slice(black_box(data), rounder);
    };
    run(&mut numbers());
    let mut data = numbers();
    measured(&mut || run(&mut data));
}

fn packed(format: &str) -> Packed {
    let rounder = Rounding::NearestEven.with(RandomStream::new(3, 4));
    let packed = Packed::encode(
        named(format),
        black_box(&numbers()),
        &[SIZE, SIZE],
        1,
        rounder,
    );
    packed.expect("the tensor fits the format")
}

fn pack(format: &str) {
    drop(packed(format));
    let rounder = Rounding::NearestEven.with(RandomStream::new(3, 4));
    let (format, data) = (named(format), numbers());
    measured(&mut || {
        let packed = Packed::encode(format, black_box(&data), &[SIZE, SIZE], 1, rounder);
        drop(black_box(packed));
    });
}

fn unpack(format: &str) {
    let packed = packed(format);
    drop(packed.decode());
    measured(&mut || drop(black_box(packed.decode())));
}

fn product() {
    let data = numbers();
    let quantization = OperandQuantization {
        blocks: Some((named("mxfp8_e4m3"), Rounding::NearestEven)),
        ..OperandQuantization::default()
    };
    let operand = |side, [free, summed]: [usize; 2]| {
        let [free, summed] = [free, summed].map(|stride| Axis {
            length: SIZE,
            stride,
        });
        let matrices = Matrices {
            data: &data,
            starts: &[0],
            free,
            summed,
            group: SIZE,
        };
        Panels::quantize(side, matrices, quantization).expect("the operand fits the format")
    };
    let (lhs, rhs) = (operand(Side::Lhs, [SIZE, 1]), operand(Side::Rhs, [1, SIZE]));
    let mut result = vec![0.0; ELEMENTS];
    let mut run = || {
        let done = Panels::multiply(&lhs, &rhs, &[(0, 0)], black_box(&mut result));
        done.expect("the operands fit");
    };
    run();
    measured(&mut run);
}
