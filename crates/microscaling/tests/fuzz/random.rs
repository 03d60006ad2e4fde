//! The parts of a case, from its seed alone.

use microscaling::{
    BlockFormat, ElementFormat, FloatFormat, Headroom, OuterScale, RandomStream, Rounding,
    ScaleFormat, ScaleMode, SharedExpMethod, SpecialCodes, SubScales, Subnormals,
};

/// A tensor.
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) axis: usize,
    pub(crate) data: Vec<f32>,
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn range(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from + 1) as usize) as i64
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub(crate) fn stream(&mut self) -> RandomStream {
        RandomStream::new(self.word(), self.word() % 3)
    }

    pub(crate) fn rounding(&mut self) -> Rounding {
        self.any(&Rounding::ALL)
    }

    pub(crate) fn deterministic_rounding(&mut self) -> Rounding {
        self.any(&[
            Rounding::NearestAway,
            Rounding::NearestEven,
            Rounding::TowardZero,
        ])
    }

    /// A named scale format, or powers of two. Their codes have the parity of float32's exponents with bias 63, and the other
    /// parity with bias 62.
    fn scale_format(&mut self) -> ScaleFormat {
        const POWERS: [&str; 2] = [
            "float(exponent_bits=7,mantissa_bits=0,bias=63,specials=ieee)",
            "float(exponent_bits=7,mantissa_bits=0,bias=62,specials=ieee)",
        ];
        let text = match self.one_in(5) {
            true => self.any(&POWERS),
            false => self.any(&ScaleFormat::NAMES),
        };
        text.parse().unwrap()
    }

    fn headroom(&mut self) -> Headroom {
        if self.one_in(2) {
            return Headroom::NONE;
        }
        let denominator = self.range(1, 255);
        let numerator = self.range(denominator, 255.min(2 * denominator - 1));
        Headroom::new(numerator as u16, denominator as u16).expect("at least 1 and less than 2")
    }

    fn block_size(&mut self) -> usize {
        match self.below(4) {
            0 => self.range(1, 70) as usize,
            1 => self.any(&[1, 2, 8, 16, 64, 300]),
            _ => self.any(&[16, 32]),
        }
    }

    pub(crate) fn format(&mut self) -> BlockFormat {
        match self.below(10) {
            0 => {
                // The model has no blocks that are rounded again.
                let names =
                    BlockFormat::NAMES.map(|name| if name == "bfp16ebs8" { "bfp16" } else { name });
                let name = self.any(&names);
                name.parse().expect("it is one")
            }
            1 => BlockFormat::bfp(self.range(10, 32) as u32, self.block_size()).unwrap(),
            2 => {
                let block_size = self.block_size();
                let bit_width = self.range(10, 32) as u32;
                let sub_block_size = self.range(1, block_size.min(20) as i64) as usize;
                let shift_bits = self.range(0, 8) as u32;
                BlockFormat::microexponent(bit_width, block_size, sub_block_size, shift_bits)
                    .unwrap()
            }
            3 => loop {
                let block_size = match self.one_in(8) {
                    true => 0,
                    false => self.block_size(),
                };
                let scale: ScaleFormat = self.scale_format();
                let sub_scales = match self.one_in(6) {
                    true => SubScales::new(self.any(&[8, 4, 2, 16]), self.any(&[4, 2, 1])),
                    false => None,
                };
                let outer = self.one_in(4).then(|| OuterScale {
                    size: block_size * self.any(&[0, 1, 2, 3, 8]),
                    scale: self.scale_format(),
                });
                let format = BlockFormat {
                    sub_scales,
                    outer,
                    eden: self.one_in(8),
                    sign_scales: self.one_in(4),
                    subnormal_scales: self.one_in(2),
                    tensor_scale: self.one_in(2),
                    square: self.one_in(4),
                    headroom: self.headroom(),
                    ..BlockFormat::float_scale(self.element_or_tables(), scale, block_size)
                };
                if format.validate().is_ok() {
                    break format;
                }
            },
            4..6 => BlockFormat {
                square: self.one_in(3),
                headroom: self.headroom(),
                four_over_six: self.one_in(3),
                ..BlockFormat::nvfp4(!self.one_in(3))
            },
            _ => self.power_format(),
        }
    }

    /// A format whose scales are powers of two.
    fn power_format(&mut self) -> BlockFormat {
        let scale_mode = self.any(&ScaleMode::POWERS);
        let element = match scale_mode {
            ScaleMode::Rms => ElementFormat::FP4_E2M1,
            _ => self.element(),
        };
        let square = self.one_in(4);
        let method = match square || !self.one_in(5) {
            true => SharedExpMethod::Max,
            false => SharedExpMethod::None,
        };
        let whole = !square && self.one_in(8);
        let by_largest = scale_mode != ScaleMode::Rms && method == SharedExpMethod::Max;
        BlockFormat {
            sign_scales: self.one_in(4) && by_largest && !square,
            scale: match self.one_in(3) {
                true => ScaleFormat::exponent(self.range(1, 8) as u32).unwrap(),
                false => ScaleFormat::E8M0,
            },
            scale_mode,
            shared_exp_method: method,
            subnormals: match self.one_in(4) {
                true => Subnormals::FlushBlocks,
                false => Subnormals::Kept,
            },
            square,
            headroom: self.headroom(),
            ..BlockFormat::mx(element, if whole { 0 } else { self.block_size() })
        }
    }

    /// Numbers of a table in one of four cases.
    fn element_or_tables(&mut self) -> ElementFormat {
        if !self.one_in(4) {
            return self.element();
        }
        if self.one_in(3) {
            let name = self.any(&ElementFormat::TABLE_NAMES);
            return format!("table({name})").parse().unwrap();
        }
        // As many bits for each: 2^(bits − 1) < length ≤ 2^bits.
        let bits = self.range(2, 8);
        let count = 1 + self.below(16);
        let mut table = || {
            let length = self.range((1 << (bits - 1)) + 1, 1 << bits) as usize;
            let mut numbers = vec![0.0_f32, 1.0];
            while numbers.len() < length {
                let number = match self.one_in(3) {
                    true => self.range(-64, 64) as f32 / 8.0,
                    false => f32::from_bits(
                        ((self.range(95, 130) << 23 | self.range(0, (1 << 23) - 1)) as u32)
                            | ((self.range(0, 1) as u32) << 31),
                    ),
                };
                let is_new = numbers
                    .iter()
                    .all(|other| other.to_bits() != number.to_bits());
                if is_new {
                    numbers.insert(self.below(numbers.len() + 1), number);
                }
            }
            numbers
        };
        let tables: Vec<Vec<f32>> = (0..count).map(|_| table()).collect();
        let tables: Vec<&[f32]> = tables.iter().map(Vec::as_slice).collect();
        ElementFormat::tables(&tables).unwrap()
    }

    /// One with a name, or any other one.
    fn element(&mut self) -> ElementFormat {
        loop {
            let [a, b, c] = [self.range(0, 16), self.range(0, 16), self.range(-140, 140)];
            let element = match self.range(0, 4) {
                0 => ElementFormat::fixed(a as u32, (a + c / 10) as i32),
                1 => {
                    let specials = self.any(&SpecialCodes::ALL);
                    let usual = (1 << (a.clamp(1, 9) - 1)) - 1;
                    let bias = if self.one_in(4) { c } else { usual };
                    ElementFormat::float(a as u32, b as u32, bias as i32, specials)
                }
                _ => return self.any(&ElementFormat::NAMED),
            };
            if let Ok(element) = element {
                return element;
            }
        }
    }

    pub(crate) fn float_format(&mut self) -> FloatFormat {
        let format = match self.one_in(2) {
            true => FloatFormat::bfloat(self.range(10, 32) as u32),
            false => FloatFormat::fp(self.range(7, 29) as u32),
        };
        format
            .expect("so many bits are allowed")
            .with_subnormals(!self.one_in(3))
    }

    /// A tensor, of at least two axes if that is wanted: most of them small, a few large enough for threads.
    pub(crate) fn tensor(&mut self, two_axes: bool) -> Tensor {
        let rank = self.range(if two_axes { 2 } else { 1 }, 4) as usize;
        let most = if self.one_in(60) { 300_000 } else { 1500 };
        let axis = self.below(rank);
        let mut left = most;
        let mut shape = vec![1; rank];
        let first = self.below(rank);
        for i in 0..rank {
            let at = (first + i) % rank;
            let length = match self.below(6) {
                0 if !self.one_in(10) => 1,
                0 => 0,
                1 if most > 1500 => left,
                1 => self.any(&[16, 32, 64, 256]),
                _ => 1 + self.below(left.min(if i == 0 { most } else { 40 })),
            };
            shape[at] = length.min(left);
            left /= shape[at].max(1);
        }
        let data = self.values(shape.iter().product());
        Tensor { shape, axis, data }
    }

    /// Numbers of one kind, with some of others among them.
    pub(crate) fn values(&mut self, count: usize) -> Vec<f32> {
        let center = match self.below(4) {
            0 => self.range(-149, 127),
            1 => self.any(&[-149, -133, -127, -126, -118, -110, 120, 126, 127]),
            _ => self.range(-6, 6),
        };
        let spread = self.any(&[0, 1, 4, 12, 40]);
        let significand = self.any(&[0x007f_ffff_u32, 0x007f_0000, 0x0070_0000, 0x0040_0000, 0]);
        let (special, zero, subnormal) = (
            self.any(&[0, 0, 0, 3, 60]),
            self.any(&[0, 2, 100, 900]),
            self.any(&[0, 0, 5, 500]),
        );
        let all = self.one_in(30);
        let number = |random: &mut Self| {
            let word = random.word();
            let (bits, kind) = (word as u32, (word >> 32) as u32 % 1000);
            if all {
                return f32::from_bits(bits);
            }
            let sign = bits & 1 << 31;
            let below = |count: u32, least: u32| (least..least + count).contains(&kind);
            if below(special, 0) {
                let specials = [
                    f32::INFINITY.to_bits(),
                    f32::NAN.to_bits(),
                    0x7f80_0001,
                    0x7fff_ffff,
                ];
                return f32::from_bits(sign | specials[bits as usize % 4]);
            }
            if below(zero, special) {
                return f32::from_bits(sign);
            }
            if below(subnormal, special + zero) {
                return f32::from_bits(bits & 0x807f_ffff);
            }
            let exponent = center + random.range(-spread, spread);
            let field = (exponent + 127).clamp(0, 254) as u32;
            // Next to what has few bits, too.
            let few = bits & significand;
            let next = match bits >> 23 & 15 {
                0 => few.wrapping_add(1),
                1 => few.wrapping_sub(1),
                _ => few,
            };
            f32::from_bits(sign | (field << 23 | next & 0x007f_ffff))
        };
        (0..count).map(|_| number(self)).collect()
    }
}
