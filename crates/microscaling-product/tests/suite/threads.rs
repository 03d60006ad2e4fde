//! Work that is divided among threads gives the bits of one thread.

use microscaling::{BlockFormat, FloatFormat, OperandQuantization, RandomStream, Rounding};
use microscaling_product::{Axis, DenseAxis, Line, Matrices, Panels, Side};
use proptest::prelude::*;
use proptest::sample::select;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::LazyLock;

/// From one thread, of which all others are compared with.
static POOLS: LazyLock<Vec<ThreadPool>> = LazyLock::new(|| {
    let pool = |threads| ThreadPoolBuilder::new().num_threads(threads).build();
    [1, 2, 3, 5, 16]
        .map(|threads| pool(threads).unwrap())
        .into()
});

/// Panels of a tensor as [outer, rows, columns], along either axis, and their product with a few columns.
fn products(
    blocks: (BlockFormat, Rounding),
    [outer, rows, columns]: [usize; 3],
    data: &[f32],
) -> Vec<Vec<u32>> {
    let starts: Vec<usize> = (0..outer).map(|i| i * rows * columns).collect();
    let [row, column] =
        [(rows, columns), (columns, 1)].map(|(length, stride)| Axis { length, stride });
    let quantization = OperandQuantization {
        elementwise: Some((FloatFormat::bfloat(16).unwrap(), Rounding::NearestEven)),
        blocks: Some(blocks),
        ..OperandQuantization::default()
    };
    let product = |(free, summed): (Axis, Axis)| {
        let matrices = Matrices {
            data,
            starts: &starts,
            free,
            summed,
            group: summed.length,
        };
        let lhs = Panels::quantize(Side::Lhs, matrices, quantization).unwrap();
        let few = 1 + columns % 100;
        let lengths = [1, few, summed.length];
        let write = |line: Line, values: &mut [f32]| values.fill((line.index % 7) as f32);
        let rhs = Panels::from_lines(Side::Rhs, DenseAxis::Summed, lengths, write).unwrap();
        let pairs: Vec<_> = (0..outer).map(|i| (i, 0)).collect();
        let mut result = vec![0.0; outer * free.length * few];
        Panels::multiply(&lhs, &rhs, &pairs, &mut result).unwrap();
        result.into_iter().map(f32::to_bits).collect()
    };
    [(row, column), (column, row)].map(product).into()
}

/// Lengths of 2^17 to 2^19 elements.
fn shapes() -> impl Strategy<Value = [usize; 3]> {
    let outer = select(vec![1, 2, 3, 8_usize]);
    let rows = prop_oneof![1..20_usize, select(vec![32, 33, 64, 100]), 100..1500_usize];
    let elements = (1_usize << 17)..=1 << 19;
    (outer, rows, elements).prop_map(|(outer, rows, elements)| {
        let columns = elements.div_ceil(outer * rows);
        [outer, rows, columns]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_shape_on_any_number_of_threads(
        name in select(BlockFormat::NAMES.to_vec()),
        tensor_scale in any::<bool>(),
        rounding in select(vec![Rounding::NearestEven, Rounding::Stochastic]),
        shape in shapes(),
    ) {
        let format: BlockFormat = match tensor_scale {
            true => "nvfp4(tensor_scale=true)".parse().unwrap(),
            false => name.parse().unwrap(),
        };
        prop_assume!(format.significant_bits() <= 8);
        let stream = RandomStream::new(5, 6);
        let number = |i| f32::from_bits(stream.draw(i) & 0x80ff_ffff | (120 + (i as u32 % 5)) << 23);
        let count: usize = shape.iter().product();
        let data: Vec<f32> = (0..count as u64).map(number).collect();
        let all = |pool: &ThreadPool| pool.install(|| products((format, rounding), shape, &data));
        let expected = all(&POOLS[0]);
        for pool in &POOLS[1..] {
            let threads = pool.current_num_threads();
            prop_assert!(all(pool) == expected, "{format} {rounding} {shape:?}: {threads} threads");
        }
    }
}
