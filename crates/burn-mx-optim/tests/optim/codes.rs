//! The codecs against plain searches, on ordinary and on unusual numbers.

use burn_mx_optim::{Map, PackedState, StateFormat};
use half::{bf16, f16};
use microscaling::{RandomStream, Rounder};

use crate::normal;

const EVEN: Rounder = Rounder::NearestEven;
const ALL: [&str; 9] = [
    "bfloat16",
    "fp8",
    "mxfp8_e4m3",
    "dynamic8",
    "dynamic8_unsigned",
    "dynamic4",
    "linear4_zero",
    "linear4",
    "coat",
];

fn pack(format: &str, data: &[f32], shape: &[usize], rounder: Rounder) -> PackedState {
    let format: StateFormat = format.parse().unwrap();
    PackedState::encode(format, data, shape, rounder).unwrap()
}

#[test]
fn elementwise_floats_are_those_of_half() {
    let mut data = normal(4000, 1);
    data.extend([0.0, -0.0, 1e-41, -3e-39, 1e38, 6e-8, f32::INFINITY]);
    for (place, x) in data.iter_mut().enumerate() {
        *x *= 2f32.powi(place as i32 % 60 - 30);
    }
    let shape = [data.len()];
    let [bfloat, float] = ["bfloat16", "fp16"].map(|format| pack(format, &data, &shape, EVEN));
    assert_eq!([bfloat.bytes(), float.bytes()], [2 * data.len(); 2]);
    let pairs = bfloat.decode().into_iter().zip(float.decode());
    for (x, (bfloat, float)) in data.iter().zip(pairs) {
        assert_eq!(bfloat.to_bits(), bf16::from_f32(*x).to_f32().to_bits());
        assert_eq!(float.to_bits(), f16::from_f32(*x).to_f32().to_bits());
    }
    // All 256 codes of E5M2: the upper byte of float16.
    let all: Vec<f32> = (0..=255u16)
        .map(|code| f16::from_bits(code << 8).to_f32())
        .collect();
    let packed = pack("fp8", &all, &[256], EVEN);
    assert_eq!(packed.bytes(), 256);
    for (x, y) in all.iter().zip(packed.decode()) {
        assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
    }
    // A NaN whose payload is in the lower half.
    let nan = f32::from_bits(0x7f80_0001);
    assert!(pack("bfloat16", &[nan], &[1], EVEN).decode()[0].is_nan());
}

#[test]
fn maps_take_the_nearest_number() {
    let maps = [
        ("dynamic8", Map::Dynamic8, 256),
        ("dynamic8_unsigned", Map::Dynamic8Unsigned, 256),
        ("dynamic4", Map::Dynamic4, 128),
        ("linear4_zero", Map::Linear4Zero, 128),
    ];
    for (name, map, block) in maps {
        // The last block is short.
        let data: Vec<f32> = match name.contains("unsigned") || name.contains("zero") {
            true => normal(3000, 2).iter().map(|x| x * x).collect(),
            false => normal(3000, 2),
        };
        let decoded = pack(name, &data, &[50, 60], EVEN).decode();
        for (data, decoded) in data.chunks(block).zip(decoded.chunks(block)) {
            let scale = data.iter().fold(0.0, |a: f32, x| a.max(x.abs()));
            for (x, y) in data.iter().zip(decoded) {
                let distance = |q: f32| (f64::from(q) - f64::from(x / scale)).abs();
                let nearest = map.numbers().into_iter().map(distance).fold(1.0, f64::min);
                assert!(
                    distance(y / scale) <= nearest + 1e-7,
                    "{name}: {x} became {y}"
                );
            }
        }
    }
}

#[test]
fn linear4_scales_by_rows_and_columns() {
    let shape = [5, 6, 7];
    let data: Vec<f32> = normal(210, 3).iter().map(|x| x * x).collect();
    let decoded = pack("linear4", &data, &shape, EVEN).decode();
    for (at, (x, y)) in data.iter().zip(decoded).enumerate() {
        let (row, column) = (at / 7, at % 7);
        let of_row = data[row * 7..][..7].iter().fold(0.0, |a: f32, x| a.max(*x));
        let of_column = data[column..]
            .iter()
            .step_by(7)
            .fold(0.0, |a: f32, x| a.max(*x));
        let scale = of_row.min(of_column);
        let candidates = (1..=16).map(|k| k as f32 / 16.0 * scale);
        let nearest = candidates.min_by(|a, b| (a - x).abs().total_cmp(&(b - x).abs()));
        assert_eq!(y, nearest.unwrap(), "{at}");
    }
    // Codes of two elements in a byte, a scale for each of 30 rows and 7 columns.
    assert_eq!(pack("linear4", &data, &shape, EVEN).bytes(), 105 + 4 * 37);
}

#[test]
fn zeros_stay_zeros_and_nan_spoils_its_block_alone() {
    for name in ALL.into_iter().chain(["logarithmic2"]) {
        for shape in [vec![600], vec![20, 30], vec![0], vec![3, 0], vec![]] {
            let count = shape.iter().product();
            let zeros = pack(name, &vec![0.0; count], &shape, EVEN);
            assert_eq!(zeros.decode(), vec![0.0; count], "{name} {shape:?}");
        }
        let mut data = vec![1.0; 1024];
        data[0] = f32::NAN;
        let decoded = pack(name, &data, &[1024], EVEN).decode();
        assert!(decoded[0].is_nan(), "{name}");
        assert_eq!(decoded[256..], vec![1.0; 768], "{name}");
        data[0] = f32::INFINITY;
        let decoded = pack(name, &data, &[1024], EVEN).decode();
        assert!(!decoded[0].is_finite(), "{name}");
    }
}

#[test]
fn stochastic_rounding_is_right_on_average() {
    // The first number fixes the scale.
    for (format, x) in [
        ("linear4", 0.40),
        ("dynamic4", 0.5),
        ("mxfp8_e4m3", 0.47),
        ("bfloat16", 0.4711),
    ] {
        let mut data = vec![x; 40_000];
        data.iter_mut().step_by(32).for_each(|x| *x = 1.0);
        let stochastic = Rounder::Stochastic(RandomStream::new(7, 7));
        let decoded = pack(format, &data, &[40_000], stochastic).decode();
        let others: Vec<f64> = decoded
            .iter()
            .filter(|y| **y != 1.0)
            .map(|y| f64::from(*y))
            .collect();
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        assert!((mean / f64::from(x) - 1.0).abs() < 5e-3, "{format}: {mean}");
        let mut values: Vec<u64> = others.iter().map(|y| y.to_bits()).collect();
        values.sort();
        values.dedup();
        assert_eq!(values.len(), 2, "{format}: both neighbours");
        // Another stream gives other numbers, the same stream the same.
        let again = |stream| {
            let rounder = Rounder::Stochastic(RandomStream::new(7, stream));
            pack(format, &data, &[40_000], rounder).decode()
        };
        assert_eq!(again(7), decoded);
        assert_ne!(again(8), decoded);
    }
}

#[test]
fn formats_are_their_texts() {
    let more = [
        "bfloat12",
        "fp7",
        "dynamic8(block_size=2048)",
        "coat(block_size=16)",
        "logarithmic2",
        "nvfp4",
        "block(element=int8,scale=float32,block_size=2048)",
    ];
    for text in ALL.into_iter().chain(more) {
        let format: StateFormat = text.parse().unwrap();
        assert_eq!(format.to_string().parse(), Ok(format), "{text}");
    }
    let named: StateFormat = "dynamic4(block_size=128)".parse().unwrap();
    assert_eq!(named.to_string(), "dynamic4");
    let wrong = [
        "",
        "dynamic8(block_size=-1)",
        "dynamic8(block_size=0)",
        "coat(",
        "coat()",
        "bfloat9",
        "fp17",
        "bfloat32",
        "mx(element=fp4,block_size=-8)",
    ];
    for text in wrong {
        let error = text.parse::<StateFormat>().unwrap_err();
        assert!(!error.is_empty(), "{text}");
    }
}

#[test]
fn records_with_other_bytes_are_refused() {
    let data: Vec<f32> = normal(600, 5).iter().map(|x| x * x).collect();
    for name in ALL.into_iter().chain(["logarithmic2"]) {
        let state = pack(name, &data, &[20, 30], EVEN);
        let json = serde_json::to_value(&state).unwrap();
        let back: PackedState = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(back, state, "{name}");
        for (field, value) in [
            ("shape", serde_json::json!([20, 31])),
            ("shape", serde_json::json!([usize::MAX, 3])),
            ("elements", serde_json::json!([])),
            ("format", serde_json::json!("mxfp4")),
            ("format", serde_json::json!("fp99")),
            ("tensor_scale", serde_json::json!(1.0)),
        ] {
            let mut changed = json.clone();
            changed[field] = value;
            assert!(
                serde_json::from_value::<PackedState>(changed).is_err(),
                "{name}: {field}"
            );
        }
    }
}
