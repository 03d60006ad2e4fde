//! The strategies of cubek for a product, by a table: from the shapes, the layouts and the device alone.

use burn_backend::{DType, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;
use cubecl::ir::SemanticType;
use cubek::matmul::components::tile::TileMatmulKind::{Cmma, Mma};
use cubek::matmul::definition::{MatmulElems, MatmulSetupError};
use cubek::matmul::launch::Strategy as Cubek;
use cubek::matmul::routines::BlueprintStrategy::Inferred;
use cubek::matmul::routines::ordered_double_buffering::OrderedSelectionArgs;
use cubek::matmul::routines::simple::SimpleArgs;
use cubek::matmul::routines::specialized::{SpecializedAlgorithm, SpecializedStrategy};

use super::rounded::{Bindings, ResultRounding, launch, launch_tma};

/// A product without an axis of this length is small: any strategy takes a few microseconds.
const LONG: usize = 512;
/// An axis of less than this length fills no tile of the strategies with the TMA.
const SHORT: usize = 64;
/// A layer with more features than this is wide. The table has layers of 2048 and of 8192.
const WIDE: usize = 4096;
/// The rows of a tensor map begin at multiples of this number of bytes.
const ROW_BYTES: usize = 16;
/// The multiplications of a product that is worth a trial, where the user wants trials.
#[cfg(feature = "autotune")]
const WORTH_A_TRIAL: usize = 1 << 30;

/// A strategy of cubek. The order of its sums follows from the shapes. The TMA is the unit of NVIDIA's GPUs, from Hopper on, that
/// copies tiles; `mma` and `cmma` are two ways to use matrix units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Strategy {
    SpecializedTmaMma,
    SimpleTmaMma,
    /// With many rows in a tile.
    SimpleTmaCmma,
    OrderedDoubleCmma,
    SimpleCyclicCmma,
    /// True float32: each unit multiplies small tiles.
    SimpleUnit,
    /// The same, which loads tiles while it multiplies others.
    #[cfg(feature = "autotune")]
    DoubleUnit,
    /// True float32: each unit computes one element. No shape and no device is refused.
    Naive,
}

impl Strategy {
    #[cfg(feature = "autotune")]
    pub(super) const ALL: [Self; 8] = [
        Self::SpecializedTmaMma,
        Self::SimpleTmaMma,
        Self::SimpleTmaCmma,
        Self::OrderedDoubleCmma,
        Self::SimpleCyclicCmma,
        Self::SimpleUnit,
        Self::DoubleUnit,
        Self::Naive,
    ];

    /// Launches a product whose kernel rounds the result.
    ///
    /// # Errors
    ///
    /// If the strategy does not fit the shapes, the layouts or the device. Then nothing was launched.
    ///
    /// # Panics
    ///
    /// If the strategy [rounds nothing](Self::rounds).
    pub(super) fn launch_rounded<R: CubeRuntime>(
        self,
        client: &ComputeClient<R>,
        bindings: Bindings<R>,
        elements: &MatmulElems,
        how: ResultRounding,
    ) -> Result<(), MatmulSetupError> {
        match self.of_cubek() {
            Cubek::SpecializedTmaMma(_) => {
                let mma = SpecializedStrategy { tile_matmul: Mma };
                let strategy = Inferred(mma);
                launch_tma::<R, SpecializedAlgorithm>(client, bindings, &strategy, elements, how)
            }
            Cubek::SimpleTmaMma(strategy) | Cubek::SimpleTmaCmma(strategy) => {
                launch_tma(client, bindings, &strategy, elements, how)
            }
            Cubek::OrderedDoubleCmma(strategy) => {
                launch(client, bindings, &strategy, elements, how)
            }
            Cubek::SimpleCyclicCmma(strategy) => launch(client, bindings, &strategy, elements, how),
            Cubek::SimpleUnit(strategy) => launch(client, bindings, &strategy, elements, how),
            #[cfg(feature = "autotune")]
            Cubek::DoubleUnit(strategy) => launch(client, bindings, &strategy, elements, how),
            _ => unreachable!("burn-mx: {self:?} rounds nothing"),
        }
    }

    /// Whether a kernel of the strategy can round results.
    pub(super) fn rounds(self) -> bool {
        self != Self::Naive
    }

    pub(super) fn of_cubek(self) -> Cubek {
        let simple = |tile_matmul, multi_rows| SimpleArgs {
            tile_matmul,
            multi_rows,
        };
        match self {
            Self::SpecializedTmaMma => Cubek::SpecializedTmaMma(Default::default()),
            Self::SimpleTmaMma => Cubek::SimpleTmaMma(Inferred(simple(Mma, false))),
            Self::SimpleTmaCmma => Cubek::SimpleTmaCmma(Inferred(simple(Cmma, true))),
            Self::OrderedDoubleCmma => Cubek::OrderedDoubleCmma(Inferred(OrderedSelectionArgs {
                tile_matmul: Cmma,
                partition_k: Some(2),
                row_count: Some(4),
                rows_per_plane: Some(2),
            })),
            Self::SimpleCyclicCmma => Cubek::SimpleCyclicCmma(Inferred(simple(Cmma, false))),
            Self::SimpleUnit => Cubek::SimpleUnit(Default::default()),
            #[cfg(feature = "autotune")]
            Self::DoubleUnit => Cubek::DoubleUnit(Default::default()),
            Self::Naive => Cubek::Naive,
        }
    }
}

/// One operand as its strategy depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OperandStrides {
    /// Whether columns, not rows, are contiguous.
    by_columns: bool,
    /// Whether a tensor map of three axes describes it: aligned rows, and the axes before the last two are one.
    fits_tensor_map: bool,
    batches: Vec<usize>,
}

impl OperandStrides {
    /// Reads a shape, strides in elements, and the bytes of an element.
    fn of(shape: &[usize], strides: &[usize], bytes: usize) -> Self {
        let last = shape.len() - 1;
        let by_columns = strides[last - 1] < strides[last];
        // The axis that is contiguous, and the one across.
        let (along, across) = match by_columns {
            true => (last - 1, last),
            false => (last, last - 1),
        };
        let mut fits_tensor_map = strides[along] == 1
            && strides[across] >= shape[along]
            && (strides[across] * bytes).is_multiple_of(ROW_BYTES);
        let batches = &shape[..last - 1];
        let is_batched = batches.iter().any(|length| *length > 1);
        let mut matrix = strides[across] * shape[across];
        for (axis, length) in batches.iter().enumerate().rev() {
            // cubek steps over all batches by the stride of this axis, even if the axis has one element.
            let is_step = is_batched && axis + 1 == batches.len();
            fits_tensor_map &= *length == 1 && !is_step || strides[axis] == matrix;
            matrix *= length;
        }
        Self {
            by_columns,
            fits_tensor_map,
            batches: batches.to_vec(),
        }
    }
}

/// A product `[.., M, K] · [.., K, N]` as its strategies depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    m: usize,
    n: usize,
    k: usize,
    /// Whether operands are bfloat16 and the device has matrix units for these, else they are float32.
    is_bfloat16: bool,
    has_tma: bool,
    lhs: OperandStrides,
    rhs: OperandStrides,
}

impl Problem {
    pub(super) fn of<R: CubeRuntime>(lhs: &CubeTensor<R>, rhs: &CubeTensor<R>) -> Self {
        let layout = |tensor: &CubeTensor<R>| {
            let bytes = tensor.dtype.size();
            OperandStrides::of(tensor.meta.shape(), tensor.meta.strides(), bytes)
        };
        let [rows, columns] = [lhs.shape(), rhs.shape()];
        let last = rows.num_dims() - 1;
        Self {
            m: rows[last - 1],
            n: columns[last],
            k: rows[last],
            is_bfloat16: lhs.dtype == DType::BF16,
            has_tma: (lhs.client.properties()).supports_type(SemanticType::TensorMap),
            lhs: layout(lhs),
            rhs: layout(rhs),
        }
    }

    fn batches(&self) -> usize {
        let of = |layout: &OperandStrides| layout.batches.iter().product::<usize>();
        of(&self.lhs).max(of(&self.rhs))
    }

    /// Whether the fastest strategy is worth a trial.
    #[cfg(feature = "autotune")]
    pub(super) fn is_worth_a_trial(&self) -> bool {
        let multiplications = [self.m, self.n, self.k, self.batches()]
            .into_iter()
            .fold(1, usize::saturating_mul);
        multiplications >= WORTH_A_TRIAL
    }

    /// The strategies in the order in which they are tried: the first one that does not refuse multiplies.
    pub(super) fn strategies(&self) -> Vec<Strategy> {
        use Strategy::*;
        let exact = [SimpleUnit, Naive];
        if !self.is_bfloat16 {
            return exact.to_vec();
        }
        let first = self.by_table();
        let others = [SpecializedTmaMma, SimpleTmaMma, SimpleTmaCmma]
            .into_iter()
            .filter(|strategy| self.may_use_tma() && Some(*strategy) != first);
        let strategies = first.into_iter().chain(others).chain([SimpleCyclicCmma]);
        strategies.chain(exact).collect()
    }

    /// The strategies of a trial, of which the fastest multiplies from then on.
    #[cfg(feature = "autotune")]
    pub(super) fn candidates(&self) -> Vec<Strategy> {
        let mut strategies = self.strategies();
        let another = match self.is_bfloat16 {
            true => Strategy::OrderedDoubleCmma,
            false => Strategy::DoubleUnit,
        };
        strategies.retain(|strategy| ![another, Strategy::Naive].contains(strategy));
        strategies.push(another);
        strategies
    }

    fn may_use_tma(&self) -> bool {
        let axes = [self.m, self.n, self.k];
        self.has_tma
            && axes.iter().all(|length| *length >= SHORT)
            && axes.iter().any(|length| *length >= LONG)
            && self.lhs.batches == self.rhs.batches
            && self.lhs.fits_tensor_map
            && self.rhs.fits_tensor_map
    }

    /// By layouts, the strategy that Burn's trials took on an NVIDIA H100 for the 21 products of a training step: a transformer block
    /// in MXFP8, 2048 features, 16 heads, 2 sequences of 1024 tokens.
    fn by_table(&self) -> Option<Strategy> {
        use Strategy::*;
        if !self.may_use_tma() {
            return None;
        }
        let is_batched = self.batches() > 1;
        Some(match [self.lhs.by_columns, self.rhs.by_columns] {
            // The output of a layer from 2048 features to 8192 or back; then from 2048 to 2048, and scores of attention.
            [false, true] if !is_batched && self.n.max(self.k) > WIDE => SpecializedTmaMma,
            [false, true] => SimpleTmaCmma,
            // The input's gradient of a layer, whose sums are longer than its matrices, and attention's products.
            [false, false] if is_batched => OrderedDoubleCmma,
            [false, false] if self.k > self.m.max(self.n) => SimpleTmaMma,
            // Gradients of weights, and of attention's operands.
            [true, false] if is_batched => SimpleTmaMma,
            _ => SpecializedTmaMma,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Strategy::*;
    use super::*;

    /// A problem of contiguous bfloat16 operands on a device with the TMA; the operands may be transposed.
    fn problem(batches: &[usize], [m, k, n]: [usize; 3], transposed: [bool; 2]) -> Problem {
        let layout = |rows: usize, columns: usize, transposed| {
            let shape = [batches, &[rows, columns]].concat();
            let last = shape.len() - 1;
            let [mut across, mut along] = [last - 1, last];
            if transposed {
                std::mem::swap(&mut across, &mut along);
            }
            let mut strides = vec![0; shape.len()];
            let mut stride = 1;
            for axis in [along, across].into_iter().chain((0..last - 1).rev()) {
                strides[axis] = stride;
                stride *= shape[axis];
            }
            OperandStrides::of(&shape, &strides, 2)
        };
        Problem {
            m,
            n,
            k,
            is_bfloat16: true,
            has_tma: true,
            lhs: layout(m, k, transposed[0]),
            rhs: layout(k, n, transposed[1]),
        }
    }

    /// The products of the step on the H100 and what Burn's trials took, from the notes of that run.
    #[test]
    fn the_table_is_that_of_the_trials() {
        let [plain, lhs, rhs] = [[false, false], [true, false], [false, true]];
        for (batches, lengths, transposed, expected) in [
            (&[][..], [2048, 2048, 2048], lhs, SpecializedTmaMma),
            (&[], [2048, 2048, 2048], plain, SpecializedTmaMma),
            (&[], [2048, 2048, 8192], lhs, SpecializedTmaMma),
            (&[], [8192, 2048, 2048], lhs, SpecializedTmaMma),
            (&[], [2048, 2048, 8192], plain, SpecializedTmaMma),
            (&[], [2048, 8192, 2048], plain, SimpleTmaMma),
            (&[], [2048, 2048, 8192], rhs, SpecializedTmaMma),
            (&[], [2048, 8192, 2048], rhs, SpecializedTmaMma),
            (&[], [2048, 2048, 2048], rhs, SimpleTmaCmma),
            (&[2, 16], [1024, 128, 1024], rhs, SimpleTmaCmma),
            (&[2, 16], [1024, 1024, 128], lhs, SimpleTmaMma),
            (&[2, 16], [1024, 1024, 128], plain, OrderedDoubleCmma),
        ] {
            let strategies = problem(batches, lengths, transposed).strategies();
            assert_eq!(
                strategies[0], expected,
                "{batches:?} {lengths:?} {transposed:?}"
            );
            assert_eq!(strategies.last(), Some(&Naive));
            let mut distinct = strategies.clone();
            distinct.dedup();
            assert_eq!(distinct.len(), strategies.len(), "{strategies:?}");
        }
    }

    #[test]
    fn the_tma_gets_only_what_it_can_read() {
        let plain = [false, false];
        let large = || problem(&[], [2048, 2048, 2048], plain);
        assert!(large().may_use_tma());
        let without = [SimpleCyclicCmma, SimpleUnit, Naive];
        let small = [
            problem(&[], [64, 64, 64], plain),
            problem(&[], [8, 2048, 2048], plain),
            problem(&[], [2048, 2048, 1], plain),
            problem(&[], [0, 2048, 2048], plain),
            // Rows of 2050 and 4098 bytes.
            problem(&[], [2048, 1025, 2048], plain),
            problem(&[], [2048, 2048, 2049], plain),
        ];
        for problem in small {
            assert_eq!(problem.strategies(), without, "{problem:?}");
        }
        let mut broadcast = problem(&[4], [1024, 1024, 1024], plain);
        broadcast.rhs = problem(&[1], [1024, 1024, 1024], plain).rhs;
        assert_eq!(broadcast.strategies(), without);
        let older = Problem {
            has_tma: false,
            ..large()
        };
        assert_eq!(older.strategies(), without);
        let wide = Problem {
            is_bfloat16: false,
            ..large()
        };
        assert_eq!(wide.strategies(), [SimpleUnit, Naive]);
    }

    #[test]
    fn tensor_maps_describe_these_layouts() {
        let fits = |shape: &[usize], strides: &[usize]| {
            OperandStrides::of(shape, strides, 2).fits_tensor_map
        };
        assert!(fits(&[64, 128], &[128, 1]));
        assert!(fits(&[64, 128], &[1, 64]));
        assert!(fits(&[64, 100], &[128, 1]), "pitched rows");
        assert!(fits(&[2, 3, 64, 128], &[24576, 8192, 128, 1]));
        assert!(fits(&[1, 1, 64, 128], &[7, 5, 128, 1]), "one matrix");
        assert!(
            fits(&[1, 4, 64, 128], &[7, 8192, 128, 1]),
            "the first axis has one element"
        );
        assert!(
            !fits(&[4, 1, 64, 128], &[8192, 128, 128, 1]),
            "one head, swapped with the rows"
        );
        assert!(!fits(&[64, 100], &[100, 1]), "rows of 200 bytes");
        assert!(!fits(&[64, 128], &[256, 2]), "every other column");
        assert!(!fits(&[64, 128], &[0, 1]), "one row, broadcast");
        assert!(!fits(&[3, 64, 128], &[0, 128, 1]), "one matrix, broadcast");
        assert!(
            !fits(&[2, 3, 64, 128], &[8192, 16384, 128, 1]),
            "swapped batches"
        );
        assert!(
            !fits(&[2, 3, 64, 128], &[65536, 8192, 128, 1]),
            "a part of a batch"
        );
    }
}
