//! Formats drawn at random, as `microscaling`'s fuzzer draws them: a device gives the bits of the slice functions for every format
//! that can be described.
//!
//! `MX_RANDOM_FORMATS=1000` draws this number. The message of a failure has the number of its case.

#[path = "../../crates/microscaling/tests/fuzz/random.rs"]
#[allow(dead_code, reason = "the fuzzer has more uses for it")]
mod random;

use burn_mx::{BlockFormat, MxKernels, Packed, RandomStream, Rounding, Statistics};
use microscaling::Comparison;

use super::statistics::assert_figures;
use super::support::*;
use crate::backend::TestBackend;
use random::{Random, Tensor};

type B = TestBackend;

/// Cases that take about half a minute on Mesa's driver for processors, which compiles kernels for each.
const USUAL: u64 = 60;

struct Case {
    format: BlockFormat,
    rounding: Rounding,
    stream: RandomStream,
    tensor: Tensor,
}

impl Case {
    /// Every other one has a scale that is a float, and half of these tables, sub-scales, an outer scale or MS-EDEN.
    fn draw(random: &mut Random, number: u64) -> Self {
        let is_wanted = |format: &BlockFormat| match number % 4 {
            0 | 2 => true,
            1 => !format.has_exponent(),
            _ => {
                let has_levels = format.sub_scales.is_some() || format.outer.is_some();
                format.element.is_table() || has_levels || format.eden
            }
        };
        let mut format = random.format();
        while !is_wanted(&format) {
            format = random.format();
        }
        let has_eden = format.eden;
        Self {
            format,
            rounding: match has_eden && random.one_in(2) {
                true => Rounding::Stochastic,
                false => random.rounding(),
            },
            stream: random.stream(),
            tensor: random.tensor(format.square),
        }
    }

    fn on_device(&self) -> burn_backend::tensor::FloatTensor<B> {
        tensor::<B>(&self.tensor.data, &self.tensor.shape)
    }

    fn quantized(&self, rounding: Rounding) -> Vec<f32> {
        let Tensor { shape, axis, data } = &self.tensor;
        let mut quantized = data.clone();
        self.format
            .quantize(&mut quantized, shape, *axis, rounding.with(self.stream))
            .expect("the format is sound");
        quantized
    }

    fn assert_quantizes(&self, what: &str) {
        let Self {
            format,
            rounding,
            stream,
            ..
        } = *self;
        let got = B::mx_quantize(self.on_device(), self.tensor.axis, format, rounding, stream);
        assert_same(&values::<B>(got), &self.quantized(rounding), what);
    }

    fn assert_marks(&self, what: &str) {
        let (format, axis) = (self.format, self.tensor.axis);
        let mut expected = vec![1.0; self.tensor.data.len()];
        format
            .mask_clipped(&self.tensor.data, &self.tensor.shape, axis, &mut expected)
            .expect("the format is sound");
        let ones = tensor::<B>(&vec![1.0; expected.len()], &self.tensor.shape);
        let op = mask_clipped(axis, format);
        let got = B::kernel(op, [ones, self.on_device()]);
        assert_same(&values::<B>(got), &expected, what);
    }

    fn assert_packs(&self, what: &str) {
        let Tensor { shape, axis, data } = &self.tensor;
        let rounder = self.rounding.with(self.stream);
        let expected = Packed::encode(self.format, data, shape, *axis, rounder);
        let got = B::kernels().pack(
            self.on_device(),
            *axis,
            self.format,
            self.rounding,
            self.stream,
        );
        assert!(got == expected, "{what}: not the bytes of the host");
        if let Ok(packed) = expected {
            let unpacked = B::kernels().unpack(&packed.view(), &Default::default());
            assert_same(&values::<B>(unpacked), &packed.decode(), what);
        }
    }

    fn assert_looks(&self, what: &str) {
        let Tensor { shape, axis, data } = &self.tensor;
        let quantized = self.quantized(Rounding::NearestEven);
        let comparison = Comparison {
            original: data,
            quantized: &quantized,
            shape,
            axis: *axis,
            format: Some(self.format),
        };
        let expected = Statistics::of(comparison).expect("all fits");
        let after = tensor::<B>(&quantized, shape);
        let both = [&self.on_device(), &after];
        let seen = B::kernels().quantization_statistics(both, *axis, Some(self.format));
        assert_figures(&seen.read(), &expected, what);
    }
}

#[test]
fn formats_at_random() {
    let cases = std::env::var("MX_RANDOM_FORMATS").map_or(USUAL, |count| {
        count.parse().expect("MX_RANDOM_FORMATS is a number")
    });
    for number in 0..cases {
        let random = &mut Random::new(number);
        let case = Case::draw(random, number);
        let Tensor { shape, axis, .. } = &case.tensor;
        let what = format!(
            "case {number}, {}, {}, {shape:?} along {axis}",
            case.format, case.rounding
        );
        println!("{what}");
        case.assert_quantizes(&what);
        match random.below(3) {
            0 => case.assert_marks(&what),
            1 => case.assert_packs(&what),
            _ => case.assert_looks(&what),
        }
    }
}
