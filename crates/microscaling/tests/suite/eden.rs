//! MS-EDEN: stochastic rounding of scales in place of elements.

use microscaling::{
    BlockFormat, ElementFormat, Headroom, Packed, RandomHadamard, RandomStream, Rounder, Rounding,
    ScaleFormat,
};
use proptest::prelude::*;

/// NVFP4 as Quartet II has it for gradients.
fn format() -> BlockFormat {
    BlockFormat {
        tensor_scale: true,
        eden: true,
        headroom: Headroom::new(1581, 1600).unwrap(),
        ..BlockFormat::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE4M3, 16)
    }
}

/// The two E4M3 neighbours of a positive number, and the nearer one.
fn e4m3(x: f64) -> [f64; 3] {
    let step = (x.log2().floor().max(-6.0) - 3.0).exp2();
    let low = (x / step).floor() * step;
    let high = low + step;
    let is_even = (low / step) % 2.0 == 0.0;
    let nearest = match (x - low).total_cmp(&(high - x)) {
        std::cmp::Ordering::Less => low,
        std::cmp::Ordering::Greater => high,
        std::cmp::Ordering::Equal => {
            if is_even {
                low
            } else {
                high
            }
        }
    };
    [low, high, nearest]
}

/// q of a number in units of its scale.
fn e2m1(x: f64) -> f64 {
    let numbers = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let mut best = 0;
    for (i, number) in numbers.iter().enumerate() {
        let (own, other) = ((x.abs() - number).abs(), (x.abs() - numbers[best]).abs());
        if own < other || (own == other && i % 2 == 0) {
            best = i;
        }
    }
    numbers[best].copysign(x)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The definition, in float64: scales between the two neighbours of c · S, elements half to even.
    #[test]
    fn the_definition(
        seed in any::<u64>(),
        rows in 1..5_usize,
        length in 1..300_usize,
        spread in 0..6_i32,
    ) {
        let source = RandomStream::new(seed, 1);
        let number = |i: u64| {
            let uniform = f64::from(source.draw(2 * i)) / 2_147_483_648.0 - 1.0;
            let scale = f64::from(source.draw(2 * i + 1) % (1 + 3 * spread as u32));
            (uniform * (-scale).exp2()) as f32
        };
        let x: Vec<f32> = (0..(rows * length) as u64).map(number).collect();
        let rounder = Rounder::Stochastic(RandomStream::new(seed, 2));
        let mut q = x.clone();
        format().quantize(&mut q, &[rows, length], 1, rounder).unwrap();
        // Along the other axis, with the draws of other positions.
        let turn = |x: &[f32], [a, b]: [usize; 2]| -> Vec<f32> {
            (0..a * b).map(|i| x[i % a * b + i / a]).collect()
        };
        let mut turned = turn(&x, [rows, length]);
        format().quantize(&mut turned, &[length, rows], 0, rounder).unwrap();
        let turned = turn(&turned, [length, rows]);
        let amax = x.iter().fold(0.0_f64, |max, x| max.max(f64::from(x.abs())));
        prop_assume!(amax > 0.0);
        let h = 1581.0 / 1600.0;
        let t = amax / (256.0 * 6.0) * h;
        let groups = x.chunks(length).zip(q.chunks(length)).zip(turned.chunks(length));
        for ((x, q), turned) in groups {
            let groups = x.chunks(128).zip(q.chunks(128)).zip(turned.chunks(128));
            for ((x, q), turned) in groups {
                let scale = |block: &[f32]| {
                    let amax = block.iter().fold(0.0_f64, |max, x| max.max(f64::from(x.abs())));
                    e4m3((amax / 6.0 / t * h).clamp(2_f64.powi(-9), 448.0))[2]
                };
                let (mut squares, mut products) = (0.0, 0.0);
                for block in x.chunks(16) {
                    let c = scale(block);
                    for x in block {
                        let u = f64::from(*x) / (t * c);
                        squares += u * u;
                        products += u * e2m1(u);
                    }
                }
                let s = if products == 0.0 { 1.0 } else { squares / products };
                for ((x, q), turned) in x.chunks(16).zip(q.chunks(16)).zip(turned.chunks(16)) {
                    let c = scale(x);
                    let [low, high, _] = e4m3(c * s);
                    for q in [q, turned] {
                        let is = |c_of_result: f64| {
                            x.iter().zip(q).all(|(x, q)| {
                                let u = f64::from(*x) / (t * c);
                                let exact = e2m1(u) * t * c_of_result;
                                (f64::from(*q) - exact).abs() <= 1e-5 * exact.abs() || is_tie(u)
                            })
                        };
                        prop_assert!(is(low) || is(high), "{x:?} {q:?} {low} {high}");
                    }
                }
            }
        }
    }
}

/// 2^−70 times a tensor gives 2^−70 times the result, bit for bit. Its tensor scale is so small that the loops for ordinary groups do
/// not take it.
#[test]
fn small_tensors_are_rounded_alike() {
    let source = RandomStream::new(11, 1);
    let small = 2_f32.powi(-70);
    for (case, block_size) in (0..200_u64).zip([16, 16, 8, 128, 2].into_iter().cycle()) {
        let format = BlockFormat {
            block_size,
            ..format()
        };
        let rows = 1 + (source.draw(2 * case) % 4) as usize;
        let length = 1 + (source.draw(2 * case + 1) % 300) as usize;
        let stream = RandomStream::new(case, 2);
        let numbers = (0..(rows * length) as u64).map(|i| match stream.draw(2 * i) % 8 {
            0 => 0.0,
            // Ties.
            1 => (stream.draw(2 * i + 1) as i32 >> 28) as f32 / 8.0,
            kind => stream.draw(2 * i + 1) as i32 as f32 * 2_f32.powi(-31 - kind as i32),
        });
        let x: Vec<f32> = numbers.collect();
        for (shape, axis) in [([rows, length], 1), ([length, rows], 0)] {
            let quantize = |mut x: Vec<f32>| {
                let rounder = Rounder::Stochastic(RandomStream::new(case, 3));
                format.quantize(&mut x, &shape, axis, rounder).unwrap();
                x
            };
            let expected = quantize(x.clone()).into_iter().map(|q| q * small);
            let result = quantize(x.iter().map(|x| x * small).collect());
            let expected: Vec<u32> = expected.map(f32::to_bits).collect();
            let result: Vec<u32> = result.into_iter().map(f32::to_bits).collect();
            assert_eq!(result, expected, "{format} {shape:?} {axis}");
        }
    }
}

/// Whether float32 may see on the other side of a tie what float64 sees on this side.
fn is_tie(u: f64) -> bool {
    let ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    ties.iter().any(|tie| (u.abs() - tie).abs() < 1e-5)
}

/// The mean of results, over many rotations, is the number; rounding half to even has no such mean, and rounding each element
/// stochastically has more noise.
#[test]
fn no_bias_and_less_noise() {
    let source = RandomStream::new(5, 0);
    let uniform = |i: u64| (f64::from(source.draw(i)) + 0.5) / 4_294_967_296.0;
    let x: Vec<f32> = (0..128)
        .map(|i| {
            ((-2.0 * uniform(2 * i).ln()).sqrt()
                * (std::f64::consts::TAU * uniform(2 * i + 1)).cos()) as f32
        })
        .collect();
    let power: f64 = x.iter().map(|x| f64::from(x * x)).sum();
    let runs = 4000;
    let measure = |format: BlockFormat, rounding: Rounding| -> [f64; 2] {
        let (mut along, mut noise) = (0.0, 0.0);
        for run in 0..runs {
            let rotation = RandomHadamard { block_size: 128 };
            let signs = RandomStream::new(run, 3);
            let mut rotated = x.clone();
            rotation.transform(&mut rotated, &[128], 0, signs).unwrap();
            let before = rotated.clone();
            let rounder = rounding.with(RandomStream::new(run, 4));
            format.quantize(&mut rotated, &[128], 0, rounder).unwrap();
            for (x, q) in before.iter().zip(&rotated) {
                along += f64::from(*x) * f64::from(*q);
                noise += f64::from(q - x).powi(2);
            }
        }
        // A rotation keeps products: this is the part of the mean result that points along x.
        [
            along / power / runs as f64 - 1.0,
            noise / power / runs as f64,
        ]
    };
    let eden = measure(format(), Rounding::Stochastic);
    let even = measure(format(), Rounding::NearestEven);
    let plain = BlockFormat {
        eden: false,
        headroom: Headroom::new(17, 16).unwrap(),
        ..format()
    };
    let stochastic = measure(plain, Rounding::Stochastic);
    assert!(eden[0].abs() < 1e-3, "{eden:?}");
    assert!(even[0] < -3e-3, "{even:?}");
    assert!(stochastic[0].abs() < 1e-3, "{stochastic:?}");
    // The paper's table 1: 9.8e-3 and 23.5e-3.
    assert!(2.0 * eden[1] < stochastic[1], "{eden:?} {stochastic:?}");
}

/// Other roundings do not see the field, and threads and instruction sets change no bit.
#[test]
fn where_it_matters() {
    let x: Vec<f32> = (0..300 * 1024)
        .map(|i| ((i * 2_654_435_761_u64 % 10_007) as f32) - 5000.0)
        .collect();
    let quantize = |format: BlockFormat, rounding: Rounding, axis: usize| {
        let mut q = x.clone();
        let rounder = rounding.with(RandomStream::new(1, 2));
        format
            .quantize(&mut q, &[300, 1024], axis, rounder)
            .unwrap();
        q
    };
    let other = BlockFormat {
        eden: false,
        ..format()
    };
    for axis in [0, 1] {
        assert_ne!(
            quantize(format(), Rounding::Stochastic, axis),
            quantize(other, Rounding::Stochastic, axis)
        );
        let one = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        let seven = rayon::ThreadPoolBuilder::new()
            .num_threads(7)
            .build()
            .unwrap();
        let run = || quantize(format(), Rounding::Stochastic, axis);
        assert_eq!(one.install(run), seven.install(run));
    }
}

#[test]
fn what_has_no_eden() {
    for text in [
        "nvfp4(eden=true)",
        "nvfp4(eden=true,tensor_scale=true,square=true)",
        "nvfp4(eden=true,tensor_scale=true,four_over_six=true)",
        "nvfp4(eden=true,tensor_scale=true,block_size=48)",
        "block(element=table(nf4),scale=ue4m3,block_size=16,tensor_scale=true,eden=true)",
    ] {
        let error = text.parse::<BlockFormat>().unwrap_err().to_string();
        assert!(
            error.contains("eden is true, expected false"),
            "{text}: {error}"
        );
    }
    let text = "nvfp4(tensor_scale=true,eden=true,headroom=1581/1600)";
    let parsed: BlockFormat = text.parse().unwrap();
    assert_eq!(parsed.to_string().parse::<BlockFormat>().unwrap(), parsed);
    let rounder = Rounder::Stochastic(RandomStream::new(0, 0));
    let error = Packed::encode(parsed, &[1.0; 16], &[16], 0, rounder).unwrap_err();
    assert!(error.to_string().contains("eden=true"), "{error}");
    Packed::encode(parsed, &[1.0; 16], &[16], 0, Rounder::NearestEven).unwrap();
    let error = "mx(element=fp4_e2m1,headroom=15/16)"
        .parse::<BlockFormat>()
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("headroom is 15/16, expected at least 1"),
        "{error}"
    );
}
