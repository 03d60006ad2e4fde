//! Launches a product by the first strategy that the shapes and the device allow.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use burn_backend::{DType, TensorMetadata};
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeRuntime, CubeTuneId};
use cubecl::ir::StorageType;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::{MatmulAutotuneKey, launch_ref};
use cubek::std::InputBinding;

use super::rounded::{Bindings, ResultRounding};
use super::strategy::{Problem, Strategy};
use crate::cube::waiting::waiting;

/// A kind of products, a strategy, how its kernel rounds, and whether the kernel adds a bias.
type StrategyKey = (
    CubeTuneId,
    MatmulAutotuneKey,
    Strategy,
    Option<(ResultRounding, bool)>,
);

/// A rounding of results, and a bias that is added.
pub(super) type LaunchEpilogue<'a, R> = (ResultRounding, Option<&'a CubeTensor<R>>);

/// Whether the device computes products of this kind by a strategy. Strategies that were not tried have no entry.
static KNOWN: LazyLock<Mutex<HashMap<StrategyKey, bool>>> = LazyLock::new(Default::default);

/// The product of two matrices of bfloat16, or of float32, in float32, and whether its kernel did the epilogue.
///
/// Shapes, layouts and the device decide the strategy, so its sums have the same order in each run. Only users who ask CubeCL for
/// extensive tuning, and not for reproducible products, get trials.
///
/// # Panics
///
/// If the device computes no strategy.
pub(super) fn multiply<R: CubeRuntime>(
    lhs: CubeTensor<R>,
    rhs: CubeTensor<R>,
    epilogue: Option<LaunchEpilogue<'_, R>>,
) -> (CubeTensor<R>, bool) {
    let output = init_matmul_output(&lhs, &rhs, DType::F32);
    if output.shape().num_elements() == 0 {
        return (output, epilogue.is_some());
    }
    let problem = Problem::of(&lhs, &rhs);
    #[cfg(feature = "autotune")]
    if problem.is_worth_a_trial() && trial::is_wanted() {
        trial::multiply(lhs, rhs, output.clone());
        return (output, false);
    }
    let is_done = multiply_by_first(&problem.strategies(), [&lhs, &rhs], &output, epilogue);
    (output, is_done)
}

/// Multiplies by the first strategy that is not refused. Returns whether its kernel did the epilogue.
fn multiply_by_first<R: CubeRuntime>(
    strategies: &[Strategy],
    [lhs, rhs]: [&CubeTensor<R>; 2],
    output: &CubeTensor<R>,
    epilogue: Option<LaunchEpilogue<'_, R>>,
) -> bool {
    let mut refused = Vec::new();
    for (number, &strategy) in (1..).zip(strategies) {
        let own = epilogue.filter(|_| strategy.rounds());
        // A compiler may take the strategy without the epilogue alone.
        for own in own.map(Some).into_iter().chain([None]) {
            let text = || text(lhs, rhs, strategy, number, strategies.len());
            match try_one(strategy, [lhs, rhs], output, own, text) {
                Ok(()) => return own.is_some(),
                Err(error) => refused.push(format!("{strategy:?}: {}", error.trim())),
            }
        }
    }
    panic!("burn-mx: a matrix product failed: {}", refused.join("; "))
}

/// Launches a strategy. The first time waits until the device has compiled and computed it: so an error of the compiler has the
/// same effect as a refusal.
fn try_one<R: CubeRuntime>(
    strategy: Strategy,
    [lhs, rhs]: [&CubeTensor<R>; 2],
    output: &CubeTensor<R>,
    epilogue: Option<LaunchEpilogue<'_, R>>,
    text: impl FnOnce() -> String,
) -> Result<(), String> {
    let key = (
        CubeTuneId::new(&lhs.client, &lhs.device),
        key(lhs, rhs),
        strategy,
        epilogue.map(|(how, bias)| (how, bias.is_some())),
    );
    let is_known = known().get(&key).copied();
    let launch = || launch(strategy, lhs, rhs, output, epilogue).map_err(|error| error.to_string());
    match is_known {
        Some(false) => return Err("refused before".to_owned()),
        Some(true) => return launch(),
        None => {}
    }
    let text = text();
    let client = &lhs.client;
    // Errors of other operations must not look like this strategy's, and threads may share a stream: nobody else uses the device.
    let first = || {
        client.flush().map_err(|error| error.to_string())?;
        Ok(waiting(&text, || {
            // Compiles, as this thread has the device.
            launch()?;
            let computed = cubecl::future::block_on(client.sync());
            known().insert(key, computed.is_ok());
            computed.map_err(|error| {
                log::warn!("{text} failed: {error}");
                error.to_string()
            })
        }))
    };
    let tried: Result<Result<(), String>, String> = client
        .exclusive(first)
        .unwrap_or_else(|error| panic!("burn-mx: {text} failed: {error}"));
    tried.unwrap_or_else(|error| panic!("burn-mx: an operation failed: {error}"))
}

fn known() -> MutexGuard<'static, HashMap<StrategyKey, bool>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the product and the strategy that a program waits for.
fn text<R: CubeRuntime>(
    lhs: &CubeTensor<R>,
    rhs: &CubeTensor<R>,
    strategy: Strategy,
    number: usize,
    of: usize,
) -> String {
    let [lhs, rhs] = [lhs.shape(), rhs.shape()];
    let (lhs, rhs) = (&lhs[..], &rhs[..]);
    format!("product {lhs:?} · {rhs:?}, strategy {number} of {of}: {strategy:?}")
}

fn key<R: CubeRuntime>(lhs: &CubeTensor<R>, rhs: &CubeTensor<R>) -> MatmulAutotuneKey {
    MatmulAutotuneKey::generate(
        &lhs.client,
        lhs.meta.shape(),
        rhs.meta.shape(),
        lhs.meta.strides(),
        rhs.meta.strides(),
        lhs.dtype.into(),
        rhs.dtype.into(),
        DType::F32.into(),
        None,
        None,
    )
}

/// # Errors
///
/// If the strategy does not fit the shapes, the layouts or the device. Then nothing was launched.
fn launch<R: CubeRuntime>(
    strategy: Strategy,
    lhs: &CubeTensor<R>,
    rhs: &CubeTensor<R>,
    output: &CubeTensor<R>,
    epilogue: Option<LaunchEpilogue<'_, R>>,
) -> Result<(), MatmulSetupError> {
    let dtype: StorageType = lhs.dtype.into();
    let mut elements = MatmulElems::from_globals(&MatmulGlobalElems {
        lhs: dtype,
        rhs: dtype,
        out: DType::F32.into(),
    });
    let client = &lhs.client;
    let [lhs, rhs] = [lhs, rhs].map(|tensor| InputBinding::new(tensor.clone().binding(), dtype));
    let output = output.clone().binding();
    match epilogue {
        Some((how, bias)) => {
            let bindings = Bindings {
                lhs,
                rhs,
                output,
                bias: bias.map(|bias| bias.clone().into_linear_view()),
            };
            strategy.launch_rounded(client, bindings, &elements, how)
        }
        None => launch_ref(
            &strategy.of_cubek(),
            client,
            lhs,
            rhs,
            output,
            &mut elements,
        ),
    }
}

/// The fastest strategy of a few, for users who ask for it.
#[cfg(feature = "autotune")]
mod trial {
    use std::sync::OnceLock;

    use burn_cubecl::tensor::CubeTensor;
    use burn_cubecl::{CubeRuntime, CubeTuneId};
    use cubecl::config::autotune::AutotuneLevel;
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    use cubecl::tune::{LocalTuner, Tunable, TunableSet, local_tuner};
    use cubek::matmul::launch::MatmulAutotuneKey;
    use microscaling_product::are_products_reproducible;

    use super::{Problem, Strategy};

    /// Operands and product, and whether the product is one of a trial.
    type Tensors<R> = (CubeTensor<R>, CubeTensor<R>, CubeTensor<R>, bool);

    pub(super) fn is_wanted() -> bool {
        static LEVEL: OnceLock<bool> = OnceLock::new();
        let is_extensive = || {
            use AutotuneLevel::{Extensive, Full};
            matches!(CubeClRuntimeConfig::get().autotune.level, Extensive | Full)
        };
        !are_products_reproducible() && *LEVEL.get_or_init(is_extensive)
    }

    pub(super) fn multiply<R: CubeRuntime>(
        lhs: CubeTensor<R>,
        rhs: CubeTensor<R>,
        output: CubeTensor<R>,
    ) {
        static TUNER: LocalTuner<MatmulAutotuneKey, CubeTuneId> = local_tuner!();
        let strategies = TUNER.init(|| {
            let set = TunableSet::new(key::<R>, inputs::<R>);
            (Strategy::ALL.into_iter()).fold(set, |set, strategy| {
                set.with(Tunable::new(
                    &format!("{strategy:?}"),
                    move |tensors: Tensors<R>| by(strategy, tensors),
                ))
            })
        });
        let id = CubeTuneId::new(&lhs.client, &lhs.device);
        let client = lhs.client.clone();
        TUNER.execute(&id, &client, strategies, (lhs, rhs, output, false));
    }

    /// The product by a strategy. After the trial, another one multiplies where this one cannot: a kind of products may have some that
    /// the fastest strategy does not fit.
    fn by<R: CubeRuntime>(
        strategy: Strategy,
        (lhs, rhs, output, is_trial): Tensors<R>,
    ) -> Result<(), String> {
        let problem = Problem::of(&lhs, &rhs);
        let candidates = problem.candidates();
        let place = candidates.iter().position(|c| *c == strategy);
        let tried = place.ok_or_else(|| "no candidate".to_owned());
        let tried = tried.and_then(|place| {
            let text = || super::text(&lhs, &rhs, strategy, place + 1, candidates.len());
            super::try_one(strategy, [&lhs, &rhs], &output, None, text)
        });
        if tried.is_ok() || is_trial {
            return tried;
        }
        super::multiply_by_first(&problem.strategies(), [&lhs, &rhs], &output, None);
        Ok(())
    }

    fn key<R: CubeRuntime>((lhs, rhs, ..): &Tensors<R>) -> MatmulAutotuneKey {
        super::key(lhs, rhs)
    }

    fn inputs<R: CubeRuntime>(
        _: &MatmulAutotuneKey,
        (lhs, rhs, output, _): &Tensors<R>,
    ) -> Tensors<R> {
        (lhs.clone(), rhs.clone(), output.copy(), true)
    }
}

/// On the device that wgpu finds, which has no matrix units for bfloat16 if that is Mesa's driver for processors.
#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use std::panic::AssertUnwindSafe;

    use burn_backend::ops::FloatTensorOps;
    use burn_backend::{TensorData, read_sync};
    use burn_cubecl::CubeBackend;
    use burn_wgpu::WgpuRuntime;
    use cubecl::zspace::{metadata::Metadata, shape, strides};
    use microscaling::{FloatFormat, RandomStream, Rounding};

    use super::*;

    type B = CubeBackend<WgpuRuntime, f32, i32, u32>;
    type DeviceTensor = CubeTensor<WgpuRuntime>;

    /// Eighths up to 4 of both signs, whose products and sums are exact.
    fn eighths(shape: &[usize], seed: usize) -> DeviceTensor {
        let number = |i: usize| (((i + seed) * 37 % 65) as f32 - 32.0) / 8.0;
        let values: Vec<f32> = (0..shape.iter().product()).map(number).collect();
        B::float_from_data(TensorData::new(values, shape.to_vec()), &Default::default())
    }

    fn values(tensor: DeviceTensor) -> Vec<f32> {
        let data = read_sync(B::float_into_data(tensor)).expect("the device computes");
        data.into_vec().expect("it holds f32")
    }

    /// The product by three loops on the host, of tensors of equal batches.
    fn expected(lhs: &DeviceTensor, rhs: &DeviceTensor) -> Vec<f32> {
        let (rows, columns) = (lhs.shape(), rhs.shape());
        let last = rows.num_dims() - 1;
        let (m, k, n) = (rows[last - 1], rows[last], columns[last]);
        let batches: usize = rows[..last - 1].iter().product();
        let [lhs, rhs] = [lhs, rhs].map(|tensor| values(tensor.clone()));
        let element = |batch: usize, row: usize, column: usize| {
            let lhs = &lhs[(batch * m + row) * k..][..k];
            let rhs = rhs[batch * k * n..].iter().skip(column).step_by(n);
            lhs.iter().zip(rhs).map(|(x, y)| x * y).sum()
        };
        let place = |i: usize| (i / (m * n), i / n % m, i % n);
        (0..batches * m * n)
            .map(place)
            .map(|(batch, row, column)| element(batch, row, column))
            .collect()
    }

    /// Formats that the exact products do not fit.
    fn roundings() -> [ResultRounding; 2] {
        let format = |bits| FloatFormat::bfloat(bits).expect("it has 10 to 32 bits");
        let rounded = |bits, rounding| ResultRounding {
            format: format(bits),
            rounding,
        };
        [
            rounded(16, Rounding::NearestEven),
            rounded(11, Rounding::TowardZero),
        ]
    }

    #[test]
    fn strangers_operands_are_multiplied() {
        let wide = eighths(&[5, 16], 3);
        // Rows of 12 elements in memory of 16.
        let pitched = CubeTensor::new(
            wide.client.clone(),
            wide.handle.clone(),
            Metadata::new(shape![5, 12], strides![16, 1]),
            wide.device.clone(),
            DType::F32,
        );
        let transposed = |shape: &[usize]| B::float_transpose(eighths(shape, 1));
        let swapped = B::float_swap_dims(eighths(&[4, 3, 6], 2), 0, 1);
        for (lhs, rhs) in [
            (eighths(&[1, 1], 1), eighths(&[1, 1], 2)),
            (eighths(&[0, 3, 4], 1), eighths(&[0, 4, 5], 2)),
            (eighths(&[2, 0], 1), eighths(&[0, 3], 2)),
            (pitched.clone(), eighths(&[12, 7], 2)),
            (eighths(&[7, 5], 2), pitched.clone()),
            (B::float_transpose(pitched), eighths(&[5, 7], 2)),
            (transposed(&[33, 9]), transposed(&[65, 33])),
            (swapped, eighths(&[3, 6, 5], 4)),
            (eighths(&[1, 4097], 1), eighths(&[4097, 1], 2)),
            (eighths(&[600, 130], 1), eighths(&[130, 70], 2)),
        ] {
            let what = (lhs.shape(), rhs.shape());
            let expected = expected(&lhs, &rhs);
            let product = |how: Option<ResultRounding>| {
                let epilogue = how.map(|how| (how, None));
                let (product, is_done) = multiply(lhs.clone(), rhs.clone(), epilogue);
                assert_eq!(is_done, how.is_some(), "{what:?}");
                values(product)
            };
            assert_eq!(product(None), expected, "{what:?}");
            assert_eq!(product(None), expected, "{what:?}, again");
            for how in roundings() {
                let mut rounded = expected.clone();
                (how.format).round_slice(&mut rounded, how.rounding.with(RandomStream::new(0, 0)));
                assert_eq!(product(Some(how)), rounded, "{what:?} {how:?}");
            }
        }
    }

    #[test]
    fn a_refused_strategy_falls_to_the_next() {
        let (lhs, rhs) = (eighths(&[512, 128], 1), eighths(&[128, 96], 2));
        let output = || init_matmul_output(&lhs, &rhs, DType::F32);
        let expected = expected(&lhs, &rhs);
        // This device has no tensor maps.
        for strategy in [Strategy::SpecializedTmaMma, Strategy::SimpleTmaCmma] {
            assert!(launch(strategy, &lhs, &rhs, &output(), None).is_err());
            let epilogue = Some((roundings()[0], None));
            assert!(launch(strategy, &lhs, &rhs, &output(), epilogue).is_err());
        }
        let all = [
            Strategy::SpecializedTmaMma,
            Strategy::SimpleTmaMma,
            Strategy::SimpleTmaCmma,
            Strategy::OrderedDoubleCmma,
            Strategy::SimpleCyclicCmma,
            Strategy::SimpleUnit,
            Strategy::Naive,
        ];
        for strategies in [&all[..], &all[6..]] {
            for _ in 0..2 {
                let output = output();
                multiply_by_first(strategies, [&lhs, &rhs], &output, None);
                assert_eq!(values(output), expected);
            }
        }
        let panics = AssertUnwindSafe(|| {
            multiply_by_first(&all[..2], [&lhs, &rhs], &output(), None);
        });
        let nothing = std::panic::catch_unwind(panics);
        let message = *nothing.unwrap_err().downcast::<String>().unwrap();
        assert!(
            message.starts_with("burn-mx: a matrix product failed: SpecializedTmaMma: "),
            "{message}"
        );
        assert!(message.contains("; SimpleTmaMma: "), "{message}");
    }

    #[cfg(feature = "autotune")]
    #[test]
    fn a_trial_gives_the_product() {
        let (lhs, rhs) = (eighths(&[200, 64], 1), eighths(&[64, 300], 2));
        let output = init_matmul_output(&lhs, &rhs, DType::F32);
        let expected = expected(&lhs, &rhs);
        for _ in 0..2 {
            trial::multiply(lhs.clone(), rhs.clone(), output.clone());
            assert_eq!(values(output.clone()), expected);
        }
        // A product of the same kind that no strategy of the trial fits.
        let id = CubeTuneId::new(&lhs.client, &lhs.device);
        let key = key(&lhs, &rhs);
        for strategy in Problem::of(&lhs, &rhs).candidates() {
            known().insert((id.clone(), key.clone(), strategy, None), false);
        }
        let output = init_matmul_output(&lhs, &rhs, DType::F32);
        trial::multiply(lhs, rhs, output.clone());
        assert_eq!(values(output), expected);
    }
}
