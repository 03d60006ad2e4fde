//! Random settings that `resolve` allows.

use burn_mx::{
    AttentionSpecs, BlockFormat, ElementFormat, ElementwiseScope, GradientOperands, Hadamard,
    Headroom, MxSpecs, Rounding, SlotFormat,
};
use proptest::prelude::*;

use super::super::attention_points;
use super::random::Random;

/// Sets a field to a value from a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change(usize, u64);

fn any<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())].clone()
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    random: &mut Random,
    of: &[&str],
) -> Option<T> {
    let text = any(random, of);
    let value = text.parse::<T>();
    Some(value.unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// A name of the book, or any description.
fn slot(random: &mut Random) -> Option<SlotFormat> {
    match random.below(8) {
        0 => None,
        1 => Some(any(random, &ElementFormat::NAMED).into()),
        2 => parsed(
            random,
            &["fp4_e2m1", "fp8_e4m3", "fp8_e5m2", "int8", "fp6_e2m3"],
        ),
        3 => parsed(random, &BlockFormat::NAMES),
        4 => parsed(
            random,
            &[
                "nvfp4(tensor_scale=true)",
                "nvfp4(tensor_scale=true,square=true)",
                "nvfp4(tensor_scale=true,headroom=17/16)",
                "nvfp4(tensor_scale=true,eden=true)",
                "nvfp4(outer_size=0)",
                "nvfp4(four_over_six=true)",
                "mx(element=fp4_e2m1,block_size=16,scale_mode=rms)",
                "mx(element=fp8_e4m3,block_size=16,square=true)",
                "mx(element=fp8_e4m3,rounding=down,negative_zero=false)",
                "mx(element=fp4_e2m1,block_size=8,rounding=stochastic-b,random_bits=5)",
                "mx(element=fp8_e5m2,block_size=32,overflow=infinity)",
                "mx(element=fp6_e3m2,block_size=24,flush_inputs=true,flush_outputs=true)",
                "block(element=e2m1,scale=ue5m3,block_size=16,outer_size=32)",
                "block(element=int8,scale=float32,block_size=0)",
                "block(element=fp8_e4m3,scale=float32,block_size=128,square=true)",
            ],
        ),
        _ => Some(random.format().into()),
    }
}

fn rounding(random: &mut Random) -> Rounding {
    random.rounding()
}

fn some_rounding(random: &mut Random) -> Option<Rounding> {
    Some(rounding(random))
}

fn hadamard(random: &mut Random) -> Option<Hadamard> {
    let texts = [
        "16",
        "32",
        "64",
        "128",
        "32:step",
        "64:product",
        "16:none",
        "16:0xd7e8",
        "32:0x1",
    ];
    parsed(random, &texts)
}

fn unit(random: &mut Random) -> Option<burn_mx::Accumulation> {
    parsed(
        random,
        &[
            "hopper",
            "blackwell",
            "volta",
            "ampere",
            "cdna1",
            "cdna3",
            "xdna2",
            "hopper_promote128",
            "accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz)",
            "accumulator(order=exact,terms=16,output=f16_rne)",
        ],
    )
}

/// Points of attention by the seeds of the tests of points.
fn attention(random: &mut Random) -> Option<AttentionSpecs> {
    match random.below(4) {
        0 => parsed(random, AttentionSpecs::SCHEMES),
        _ => Some(attention_points::random(random.word()).1),
    }
}

type Set = fn(&mut MxSpecs, &mut Random);

/// A row for each field, several for what matters most.
const SETS: &[Set] = &[
    |s, r| s.w_elem_format = slot(r),
    |s, r| s.w_elem_format = slot(r),
    |s, r| s.a_elem_format = slot(r),
    |s, r| s.a_elem_format = slot(r),
    |s, r| s.w_elem_format_bp = slot(r),
    |s, r| s.a_elem_format_bp = slot(r),
    |s, r| s.a_elem_format_bp_ex = slot(r),
    |s, r| s.a_elem_format_bp_os = slot(r),
    |s, r| s.block_size = any(r, &[0, 1, 3, 8, 16, 32, 64]),
    |s, r| s.block_size = any(r, &[5, 16, 32, 33]),
    |s, r| s.scale_bits = r.below(9) as u32,
    |s, r| s.scale_mode = parsed(r, &["floor", "ceil", "even", "rceil", "rms"]).unwrap(),
    |s, r| s.shared_exp_method = parsed(r, &["max", "none"]).unwrap(),
    |s, r| s.mx_flush_fp32_subnorms = r.one_in(2),
    |s, r| (s.bfloat, s.fp) = (any(r, &[0, 16, 16, 10, 12, 20, 32]), 0),
    |s, r| (s.bfloat, s.fp) = (0, any(r, &[7, 9, 12, 16, 20, 29])),
    |s, r| s.bfloat_subnorms = r.one_in(2),
    |s, r| {
        s.elementwise_scope = match r.one_in(2) {
            true => ElementwiseScope::All,
            false => ElementwiseScope::Activations,
        }
    },
    |s, _| s.quantize_backprop = false,
    |s, r| s.round = rounding(r),
    |s, r| s.round = rounding(r),
    |s, r| s.round_weight = some_rounding(r),
    |s, r| s.round_output = some_rounding(r),
    |s, r| s.round_grad_weight = some_rounding(r),
    |s, r| s.round_grad_input = some_rounding(r),
    |s, r| s.round_mx_output = some_rounding(r),
    |s, r| s.round_mx_input_grad_input = some_rounding(r),
    |s, r| s.round_mx_weight_grad_input = some_rounding(r),
    |s, r| s.round_mx_grad_output_grad_input = some_rounding(r),
    |s, r| s.round_mx_input_grad_weight = some_rounding(r),
    |s, r| s.round_mx_grad_output_grad_weight = some_rounding(r),
    |s, _| s.softmax_exp2 = true,
    |s, _| s.vec_use_exp2 = true,
    |s, _| s.vec_use_recip = true,
    |s, r| s.hadamard_block_size = any(r, &[16, 32, 64, 128]),
    |s, r| s.hadamard_forward = hadamard(r),
    |s, r| s.hadamard_input_grad = hadamard(r),
    |s, r| s.hadamard_weight_grad = hadamard(r),
    |s, r| {
        let [a, b] = any(r, &[[4, 3], [17, 16], [3, 2], [255, 254]]);
        s.headroom_bp = Headroom::new(a, b).unwrap();
    },
    |s, _| s.gradient_operands = GradientOperands::Forward,
    |s, _| s.mask_clipped = true,
    |s, r| {
        s.dialect_w = parsed(r, &DIALECTS);
        with_dialect(s, r, true);
    },
    |s, r| {
        s.dialect_a = parsed(r, &DIALECTS);
        with_dialect(s, r, false);
    },
    |s, r| s.accumulator = unit(r),
    |s, r| s.accumulator_forward = unit(r),
    |s, r| s.accumulator_input_grad = unit(r),
    |s, r| s.accumulator_weight_grad = unit(r),
    |s, r| {
        s.hot_columns = parsed(
            r,
            &[
                "hot_columns(percent=10,format=mxfp8_e4m3)",
                "hot_columns(percent=50,multiple=4)",
                "hot_columns(percent=20,treatment=residual,format=nvfp4)",
                "hot_columns(percent=30,treatment=residual,score=error)",
                "hot_columns(percent=30,score=error,rounding=floor,format=int8)",
                "hot_columns(percent=40,chosen=fixed,ranking=3 1 0 2)",
            ],
        );
    },
    |s, _| s.mean_apart = true,
    |s, _| s.quantize_matmul = false,
    |s, r| s.attention = attention(r),
    |s, _| s.quantize_constants = true,
    |s, _| s.quantize_loss = true,
    |s, r| s.seed = r.word(),
];

const DIALECTS: [&str; 10] = [
    "compressed-tensors",
    "modelopt",
    "torchao",
    "quark",
    "ggml",
    "transformer-engine",
    "transformer-engine-fast-math",
    "triton-kernels",
    "microxcaling",
    "ocp",
];

/// One of the dialect's formats in its slot.
fn with_dialect(specs: &mut MxSpecs, random: &mut Random, of_weights: bool) {
    let (dialect, slot) = match of_weights {
        true => (specs.dialect_w, &mut specs.w_elem_format),
        false => (specs.dialect_a, &mut specs.a_elem_format),
    };
    let formats = dialect.unwrap().formats();
    let text = any(random, formats);
    *slot = Some(text.parse().unwrap());
}

/// A preset or weights in FP8 beside inputs in FP4, then changes in turn.
pub(super) type Settings = (Option<usize>, Vec<Change>);

pub(super) fn settings() -> impl Strategy<Value = Settings> {
    let change = (0..SETS.len(), any_seed()).prop_map(|(field, seed)| Change(field, seed));
    let preset = prop::option::of(0..MxSpecs::PRESETS.len());
    (preset, prop::collection::vec(change, 0..14))
}

pub(super) fn any_seed() -> impl Strategy<Value = u64> {
    proptest::prelude::any::<u64>().no_shrink()
}

/// The specs after the changes that `resolve` allows.
pub(super) fn specs((preset, changes): &Settings, seed: u64) -> MxSpecs {
    let mut specs = match preset {
        Some(preset) => MxSpecs::preset(MxSpecs::PRESETS[*preset]).unwrap(),
        None => MxSpecs {
            a_elem_format: Some(ElementFormat::FP4_E2M1.into()),
            w_elem_format: Some(ElementFormat::FP8_E4M3.into()),
            ..MxSpecs::none()
        },
    };
    specs.seed = seed;
    for Change(field, seed) in changes {
        let mut changed = specs.clone();
        SETS[*field](&mut changed, &mut Random::new(*seed));
        if changed.resolve().is_ok() {
            specs = changed;
        }
    }
    specs
}
