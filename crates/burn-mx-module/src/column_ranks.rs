//! The choice of hot columns over a window of training steps.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::Tensor;
use burn_mx_core::hooks::{self, Events, Installed, Observer, SharedSpecs};
use burn_mx_core::{ColumnChoice, ColumnRanking, HotColumns, MxTensorOps, ResolvedSpecs};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::on_load::set_specs_of;
use super::{LayerKind, LayerPath};

/// The window of training steps whose scores rank the columns of linear layers with fixed [`HotColumns`]. The defaults are of TetraJet-v2's code (arXiv
/// 2510.27527, at commit ca5953f).
///
/// Let a step's number n count from 0. A window adds up the scores in the forward passes of the [`steps`](Self::steps) steps after step
/// [`start`](Self::start). After the last of these steps each layer gets specs whose ranking has the highest sums first. With a
/// [`period`](Self::period) the next window begins that many steps after the first one, and gives a new ranking. Before the first ranking
/// layers have no hot columns.
///
/// The ranking is in the specs of the layer's weight. A program that is resumed keeps a [`ColumnRecord`] beside the model's record, and passes it to
/// [`resume`](Self::resume).
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core as burn;
/// # use burn_core::module::{Module, Param};
/// # use burn_core::tensor::{Tensor, backend::Backend, module::linear};
/// # #[derive(Module, Debug)]
/// # struct Linear<B: Backend> { weight: Param<Tensor<B, 2>> }
/// # impl<B: Backend> Linear<B> {
/// #     fn new(device: &B::Device) -> Self { Self { weight: Param::from_tensor(Tensor::ones([3, 2], device)) } }
/// #     fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> { linear(x, self.weight.val(), None) }
/// # }
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::{MxAutodiff, MxDevice, MxSpecs};
/// # use burn_mx::module::{ColumnRanks, label_parameters, specs_of};
/// let specs = MxSpecs {
///     hot_columns: Some("hot_columns(chosen=fixed,percent=40,format=mxfp8_e4m3)".parse()?),
///     ..MxSpecs::mxfp4()
/// };
/// let device = MxDevice::new(FlexDevice, &specs)?;
/// let mut model = label_parameters(Linear::<MxAutodiff<Flex>>::new(&device));
/// let mut ranks = ColumnRanks { start: 0, steps: 1, period: 0 }.watch(&model, 0)?;
/// for _ in 0..2 {
///     let x = Tensor::from_floats([[0.5, 4.0, -3.0]], &device);
///     let _ = model.forward(x); // and the rest of a training step
///     model = ranks.after_step(model);
/// }
/// let specs = specs_of(&model.weight.val()).expect("the device has specs");
/// assert_eq!(specs.hot_columns().unwrap().ranking.as_ref().unwrap().order(), [1, 2, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColumnRanks {
    /// The step before the first window. Default: 501.
    pub start: u64,
    /// Steps of a window, 1 or more. Default: 50.
    pub steps: u64,
    /// Steps from the beginning of a window to the beginning of the next one: more than `steps`, or 0 for one window alone. Default: 0.
    pub period: u64,
}

impl Default for ColumnRanks {
    fn default() -> Self {
        Self {
            start: 501,
            steps: 50,
            period: 0,
        }
    }
}

/// Why columns cannot be ranked.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ColumnRanksError {
    /// A field.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The allowed values.
        allowed: String,
    },
    /// No linear layer has fixed hot columns.
    #[error(
        "`hot_columns` is none or chosen=product in every linear layer of the model; allowed: hot_columns(chosen=fixed,…) in at least one"
    )]
    NoLayer,
    /// A ranking or sums of a record that the model's layer of this path cannot have.
    #[error("the record has {found} columns for `{path}`; allowed: {allowed}")]
    Record {
        /// The weight's path in the record.
        path: String,
        /// Columns in the record.
        found: usize,
        /// The model's columns.
        allowed: String,
    },
    /// A weight whose products nobody can tell from others.
    #[error("the weight `{path}` has the label {label}; allowed: its path (`label_parameters`)")]
    Label {
        /// The weight's path.
        path: String,
        /// Its label, or none.
        label: String,
    },
}

microscaling::debug_is_display!(ColumnRanksError);

impl ColumnRanks {
    /// Watches the model's layers from its step with this number on, on all threads. The watch ends when the result is dropped.
    ///
    /// # Errors
    /// A field that is not allowed, a model without fixed hot columns, or a weight without its path as label.
    pub fn watch<B: MxTensorOps, M: Module<B>>(
        self,
        model: &M,
        step: u64,
    ) -> Result<ColumnWatch, ColumnRanksError> {
        self.watch_from(model, step, BTreeMap::new())
    }

    /// Watches a model that was resumed, from where the record was made. The returned model has the rankings of the record.
    ///
    /// # Errors
    /// As of [`watch`](Self::watch). If the model lacks a layer of the record, or the layer has another number of columns.
    pub fn resume<B: MxTensorOps, M: Module<B>>(
        self,
        model: M,
        record: &ColumnRecord,
    ) -> Result<(M, ColumnWatch), ColumnRanksError> {
        let sums = record.sums.iter().map(|(path, sums)| {
            let sums = sums.iter().map(|sum| f32::from_bits(*sum)).collect();
            (path.clone(), sums)
        });
        let watch = self.watch_from(&model, record.next, sums.collect())?;
        Ok((record.rank(model)?, watch))
    }

    fn watch_from<B: MxTensorOps, M: Module<B>>(
        self,
        model: &M,
        step: u64,
        by_label: BTreeMap<String, Vec<f32>>,
    ) -> Result<ColumnWatch, ColumnRanksError> {
        let field = |field, value, allowed: &str| {
            let allowed = allowed.into();
            Err(ColumnRanksError::Field {
                field,
                value,
                allowed,
            })
        };
        if self.steps == 0 {
            return field("steps", 0, "1 or more");
        }
        if self.period != 0 && self.period <= self.steps {
            return field("period", self.period, "0, or more than `steps`");
        }
        let finder = ColumnFinder::of(model)?;
        if let Some(error) = finder.error {
            return Err(error);
        }
        let scores = Arc::new(ScoreSums::default());
        scores.lock().by_label = by_label;
        let mut watch = ColumnWatch {
            installed: hooks::install(scores.clone()),
            ranks: self,
            next: step,
            scores,
        };
        watch.begin_or_stop();
        Ok(watch)
    }

    /// Whether scores of the step with this number count.
    fn has(&self, step: u64) -> bool {
        self.place(step).is_some_and(|place| place < self.steps)
    }

    /// Whether the step with this number is the last one of a window.
    fn ends(&self, step: u64) -> bool {
        self.place(step)
            .is_some_and(|place| place + 1 == self.steps)
    }

    /// The step's place after the beginning of its window.
    fn place(&self, step: u64) -> Option<u64> {
        let place = step.checked_sub(self.start)?.checked_sub(1)?;
        Some(match self.period {
            0 => place,
            period => place % period,
        })
    }
}

/// The sums of scores by the weights' labels.
#[derive(Default)]
struct ScoreSums {
    sums: Mutex<SumsByLabel>,
}

#[derive(Default)]
struct SumsByLabel {
    is_open: bool,
    by_label: BTreeMap<String, Vec<f32>>,
}

/// The state of a [`ColumnWatch`] for a program that is resumed: the rankings of the model's layers, and the sums of a window that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnRecord {
    /// The number of the step that comes next.
    next: u64,
    /// As patterns, since JSON has no NaN and no Inf.
    sums: BTreeMap<String, Vec<u32>>,
    rankings: BTreeMap<String, ColumnRanking>,
}

impl ColumnRecord {
    /// The model with the rankings of the record, to predict with. [`ColumnRanks::resume`] goes on with training.
    ///
    /// # Errors
    /// If the model has no fixed hot columns, lacks a layer of the record, or the layer has another number of columns.
    pub fn rank<B: MxTensorOps, M: Module<B>>(&self, model: M) -> Result<M, ColumnRanksError> {
        let columns = ColumnFinder::of(&model)?.columns;
        let sums = self.sums.iter().map(|(path, sums)| (path, sums.len()));
        let rankings = self.rankings.iter();
        let rankings = rankings.map(|(path, ranking)| (path, ranking.order().len()));
        for (path, found) in sums.chain(rankings) {
            let own = columns.get(path);
            if own != Some(&found) {
                return Err(ColumnRanksError::Record {
                    path: path.clone(),
                    found,
                    allowed: own.map_or_else(
                        || "a linear layer of the model with fixed hot columns".into(),
                        ToString::to_string,
                    ),
                });
            }
        }
        Ok(model.map(&mut RankingMapper {
            path: LayerPath::default(),
            ranking_of: |path: &str| self.rankings.get(path).cloned(),
        }))
    }
}

impl ScoreSums {
    fn lock(&self) -> MutexGuard<'_, SumsByLabel> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for ScoreSums {
    fn events(&self) -> Events {
        Events::COLUMNS
    }

    fn wants_columns(&self, _: &'static str) -> bool {
        self.lock().is_open && hooks::in_training()
    }

    fn columns(&self, label: &'static str, scores: &[f32]) {
        let mut sums = self.lock();
        let all = sums.by_label.entry(label.to_owned());
        let all = all.or_insert_with(|| vec![0.0; scores.len()]);
        for (sum, score) in all.iter_mut().zip(scores) {
            *sum += score;
        }
    }
}

/// Ranks columns after training steps, see [`ColumnRanks`].
pub struct ColumnWatch {
    ranks: ColumnRanks,
    /// The number of the step that comes next.
    next: u64,
    scores: Arc<ScoreSums>,
    #[expect(dead_code, reason = "it is at work until it is dropped")]
    installed: Installed,
}

impl fmt::Debug for ColumnWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnWatch")
            .field("ranks", &self.ranks)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl ColumnWatch {
    /// The model after a training step. After the last step of a window its layers have a new ranking.
    pub fn after_step<B: MxTensorOps, M: Module<B>>(&mut self, model: M) -> M {
        let ends = self.ranks.ends(self.next);
        self.next += 1;
        let model = match ends {
            true => {
                let by_label = std::mem::take(&mut self.scores.lock().by_label);
                // A layer that no forward pass of the window has used keeps its columns.
                let ranking_of = |path: &str| ColumnRanking::of_scores(by_label.get(path)?).ok();
                model.map(&mut RankingMapper {
                    path: LayerPath::default(),
                    ranking_of,
                })
            }
            false => model,
        };
        self.begin_or_stop();
        model
    }

    /// The record from which [`ColumnRanks::resume`] goes on with this model.
    pub fn record<B: MxTensorOps, M: Module<B>>(&self, model: &M) -> ColumnRecord {
        let finder = ColumnFinder::of(model).unwrap_or_default();
        let sums = self.scores.lock();
        let sums = sums.by_label.iter().map(|(path, sums)| {
            let sums = sums.iter().map(|sum| sum.to_bits()).collect();
            (path.clone(), sums)
        });
        ColumnRecord {
            next: self.next,
            sums: sums.collect(),
            rankings: finder.rankings,
        }
    }

    fn begin_or_stop(&mut self) {
        let mut sums = self.scores.lock();
        sums.is_open = self.ranks.has(self.next);
        if !sums.is_open {
            sums.by_label.clear();
        }
    }
}

/// The specs of a linear layer's weight with fixed hot columns.
fn weight_with_hot_columns<B: MxTensorOps, const D: usize>(
    path: &LayerPath,
    tensor: &Tensor<B, D>,
) -> Option<(&'static ResolvedSpecs, &'static HotColumns)> {
    let is_weight = path.kind_of_weight() == Some(LayerKind::Linear);
    let specs = B::specs_of(&tensor.clone().into_primitive().tensor()).filter(|_| is_weight)?;
    let hot = specs.specs().hot_columns.as_ref()?;
    (hot.chosen == ColumnChoice::Fixed).then_some((specs, hot))
}

#[derive(Default)]
struct ColumnFinder {
    path: LayerPath,
    columns: BTreeMap<String, usize>,
    rankings: BTreeMap<String, ColumnRanking>,
    error: Option<ColumnRanksError>,
}

impl ColumnFinder {
    /// The linear layers with fixed hot columns: at least one, or an error.
    fn of<B: MxTensorOps, M: Module<B>>(model: &M) -> Result<Self, ColumnRanksError> {
        let mut finder = Self::default();
        model.visit(&mut finder);
        match finder.columns.is_empty() {
            true => Err(ColumnRanksError::NoLayer),
            false => Ok(finder),
        }
    }
}

impl<B: MxTensorOps> ModuleVisitor<B> for ColumnFinder {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        let Some((_, hot)) = weight_with_hot_columns(&self.path, &tensor) else {
            return;
        };
        let (path, label) = (self.path.parameter(), super::label_of(&tensor));
        if label != Some(path.as_str()) && self.error.is_none() {
            let (path, label) = (path.clone(), label.unwrap_or("none").to_owned());
            self.error = Some(ColumnRanksError::Label { path, label });
        }
        if let Some(ranking) = &hot.ranking {
            self.rankings.insert(path.clone(), ranking.clone());
        }
        self.columns.insert(path, tensor.dims()[0]);
    }
}

/// Gives layers the ranking that a function has for their path.
struct RankingMapper<F> {
    path: LayerPath,
    ranking_of: F,
}

impl<B: MxTensorOps, F: Fn(&str) -> Option<ColumnRanking>> ModuleMapper<B> for RankingMapper<F> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let path = self.path.parameter();
        let Some((specs, hot)) = weight_with_hot_columns(&self.path, &param.val()) else {
            return param;
        };
        let Some(ranking) = (self.ranking_of)(&path) else {
            return param;
        };
        let hot = HotColumns {
            ranking: Some(ranking),
            ..hot.clone()
        };
        let specs = specs.with_hot_columns(hot);
        set_specs_of(param, &path, SharedSpecs::of(&specs))
    }
}
