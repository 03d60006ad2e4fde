//! The products of one thread: its steps, and the observations of the current step.

use std::collections::{HashMap, HashSet};

use microscaling::ErrorParts;
use microscaling_product::{Accumulation, ProductCounts, SumStatistics};

use super::elementwise::{self, Key as ElementwiseKey};
use super::late::{Deferred, Late, Read};
use crate::config::Selection;
use crate::file::dialect_figures::DialectFigures;
use crate::file::figures::{
    ElementwiseRecord, Figures, OperandRecord, ProductRecord, ResultRecord, RoundingRecord,
    StepRecord, SumsRecord,
};
use crate::file::part_figures::PartFigures;
use burn_mx_core::hooks::{self, DialectDifference, SharedSpecs};
use burn_mx_core::hooks::{ProductKind, ProductOp, ProductSize};
use burn_mx_core::{PointFormat, Slot};

/// The products of one thread, step by step.
pub(super) struct Stream {
    /// The thread's number, in the order in which threads began.
    thread: usize,
    pub(super) step: u64,
    /// Whether the current step is recorded.
    pub(super) recorded: bool,
    /// Whether the current step has any product.
    pub(super) begun: bool,
    names: Names,
    products: Vec<ProductStream>,
    places: HashMap<Key, usize>,
    /// The weights of forward products, in the order of their first use, and those among them whose products are emulated.
    weights: Vec<&'static str>,
    emulated: HashSet<&'static str>,
    elementwise: Vec<Elementwise>,
    elementwise_places: HashMap<ElementwiseKey, usize>,
    /// Draws of random numbers for formats that are not in use.
    pub(super) draws: u64,
    /// Statistics of the current step that are not ready.
    pub(super) late: Late,
    /// The process's products by another path than its own, up to the current step.
    counted: u64,
}

/// The key of a product in a step.
type Key = (&'static str, ProductKind);

/// A product, over all of its uses.
struct ProductStream {
    key: Key,
    op: ProductOp,
    specs: &'static SharedSpecs,
    /// The accumulator of a product of attention whose points have formats.
    attention: Option<Option<Accumulation>>,
    uses: u64,
    macs: u64,
    result_elements: u64,
    operands: Vec<OperandStream>,
    result: Option<Deferred>,
    /// One entry for the product's accumulator, and one for each further accumulator. `None` if this
    /// accumulator does not take the operands.
    sums: Vec<Option<SumStatistics>>,
}

/// An operand.
pub(super) struct OperandStream {
    pub(super) slot: Slot,
    pub(super) name: &'static str,
    /// The format of its point, of an operand of attention, or of hot columns.
    pub(super) point: Option<PointFormat>,
    pub(super) is_hot: bool,
    /// Statistics in the operand's own format, then in each of the further formats.
    pub(super) statistics: Vec<Deferred>,
    /// The parts of the errors of each of them; empty if the parts are not recorded.
    pub(super) error_parts: Vec<Option<ErrorParts>>,
    /// The change by the dialect, of an operand with one.
    pub(super) difference: Option<DialectDifference>,
}

/// An elementwise op, over all of its uses.
struct Elementwise {
    key: ElementwiseKey,
    format: PointFormat,
    uses: u64,
    roundings: Vec<(&'static str, Deferred)>,
}

impl Stream {
    pub(super) fn new(thread: usize, step: u64, selection: &Selection) -> Self {
        Self {
            thread,
            step,
            recorded: selection.has_step(step),
            begun: false,
            names: Names::default(),
            products: Vec::new(),
            places: HashMap::new(),
            weights: Vec::new(),
            emulated: HashSet::new(),
            elementwise: Vec::new(),
            elementwise_places: HashMap::new(),
            draws: 0,
            late: Late::default(),
            counted: ProductCounts::now().by_another_path,
        }
    }

    /// The name of a product without a named parameter, before its use.
    pub(super) fn name(&mut self, op: ProductOp, scope: Option<&str>) -> &'static str {
        self.names.next(op, scope)
    }

    /// Notes a forward product with this weight, emulated or not.
    pub(super) fn uses_weight(&mut self, label: &'static str) {
        if self.recorded && !self.weights.contains(&label) {
            self.weights.push(label);
        }
    }

    /// Notes the use of a named layer.
    pub(super) fn passes(&mut self, label: &'static str) {
        self.emulated.insert(label);
        if !self.names.made_up.contains(label) {
            self.names.last = Some(label);
        }
    }

    /// Counts a use of a product.
    pub(super) fn used(&mut self, key: Key, op: ProductOp, specs: &'static SharedSpecs) {
        let place = *self.places.entry(key).or_insert_with(|| {
            self.products.push(ProductStream {
                key,
                op,
                specs,
                attention: None,
                uses: 0,
                macs: 0,
                result_elements: 0,
                operands: Vec::new(),
                result: None,
                sums: Vec::new(),
            });
            self.products.len() - 1
        });
        self.products[place].uses += 1;
    }

    /// The product that was [`used`](Self::used); `None` if its step is over.
    fn product(&mut self, key: Key) -> Option<&mut ProductStream> {
        let place = self.places.get(&key)?;
        self.products.get_mut(*place)
    }

    /// Notes that a product is one of attention whose points have formats, with this accumulator.
    pub(super) fn is_attention(&mut self, key: Key, accumulator: Option<Accumulation>) {
        if let Some(product) = self.product(key) {
            product.attention = Some(accumulator);
        }
    }

    pub(super) fn add_size(&mut self, key: Key, size: ProductSize) {
        if let Some(product) = self.product(key) {
            product.macs += size.macs;
            product.result_elements += size.result_elements;
        }
    }

    pub(super) fn add_operand(&mut self, key: Key, operand: OperandStream) {
        let Some(product) = self.product(key) else {
            return;
        };
        let known =
            |other: &&mut OperandStream| (other.slot, other.name) == (operand.slot, operand.name);
        match product.operands.iter_mut().find(known) {
            Some(known) => {
                let both = known.statistics.iter_mut().zip(operand.statistics);
                both.for_each(|(known, other)| known.merge(other));
                let parts = known.error_parts.iter_mut().zip(operand.error_parts);
                for (known, other) in parts {
                    match (known.as_mut(), other) {
                        (Some(known), Some(other)) => known.merge(other),
                        _ => *known = None,
                    }
                }
                if let (Some(known), Some(other)) = (&mut known.difference, operand.difference) {
                    known.merge(other);
                }
            }
            None => product.operands.push(operand),
        }
    }

    pub(super) fn add_result(&mut self, key: Key, statistics: Deferred) {
        let Some(product) = self.product(key) else {
            return;
        };
        match &mut product.result {
            Some(result) => result.merge(statistics),
            None => product.result = Some(statistics),
        }
    }

    pub(super) fn add_sums(&mut self, key: Key, statistics: &[Option<SumStatistics>]) {
        let Some(product) = self.product(key) else {
            return;
        };
        if product.sums.is_empty() {
            product.sums = statistics.to_vec();
            return;
        }
        for (known, other) in product.sums.iter_mut().zip(statistics) {
            match (known.as_mut(), other) {
                (Some(known), Some(other)) => known.merge(other),
                _ => *known = None,
            }
        }
    }

    /// The place of an elementwise op without a named parameter.
    pub(super) fn place(&self, scope: Option<&str>) -> &'static str {
        elementwise::place(scope, self.names.last)
    }

    /// Counts a use of an elementwise op.
    pub(super) fn computed(&mut self, key: ElementwiseKey, format: PointFormat) {
        let place = *self.elementwise_places.entry(key).or_insert_with(|| {
            self.elementwise.push(Elementwise {
                key,
                format,
                uses: 0,
                roundings: Vec::new(),
            });
            self.elementwise.len() - 1
        });
        self.elementwise[place].uses += 1;
    }

    /// Adds a rounding of an op that was [`computed`](Self::computed).
    pub(super) fn add_rounding(
        &mut self,
        key: ElementwiseKey,
        name: &'static str,
        statistics: Deferred,
    ) {
        let place = self.elementwise_places.get(&key);
        let Some(op) = place.and_then(|place| self.elementwise.get_mut(*place)) else {
            return;
        };
        match op.roundings.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => known.merge(statistics),
            None => op.roundings.push((name, statistics)),
        }
    }

    /// Ends the step. Returns its observations, if it was recorded.
    pub(super) fn end_step(&mut self, selection: &Selection) -> Option<Step> {
        let weights = std::mem::take(&mut self.weights).into_iter();
        let left_out = |label: &&str| !self.emulated.contains(label) && selection.has_layer(label);
        let counted = ProductCounts::now().by_another_path;
        let before = std::mem::replace(&mut self.counted, counted);
        let step = Step {
            thread: self.thread,
            step: self.step,
            by_another_path: counted - before,
            not_emulated: weights.filter(left_out).collect(),
            products: std::mem::take(&mut self.products),
            elementwise: std::mem::take(&mut self.elementwise),
            late: std::mem::take(&mut self.late),
        };
        let recorded = self.recorded.then_some(step);
        self.places.clear();
        self.emulated.clear();
        self.elementwise_places.clear();
        self.names = Names::default();
        self.begun = false;
        self.step += 1;
        self.recorded = selection.has_step(self.step);
        recorded
    }
}

/// A finished step.
pub(super) struct Step {
    thread: usize,
    step: u64,
    by_another_path: u64,
    not_emulated: Vec<&'static str>,
    products: Vec<ProductStream>,
    elementwise: Vec<Elementwise>,
    late: Late,
}

impl Step {
    /// Whether other threads still compute figures of the step, and no device does.
    pub(super) fn is_pending(&self) -> bool {
        self.late.is_pending()
    }

    /// The figures of the step. Waits for those that are not ready.
    pub(super) fn record(self, run: &str, selection: &Selection) -> StepRecord {
        let mut read = self.late.read();
        let products = self.products.into_iter();
        let elementwise = self.elementwise.into_iter();
        StepRecord {
            run: run.to_owned(),
            thread: self.thread,
            step: self.step,
            by_another_path: self.by_another_path,
            not_emulated: self.not_emulated.into_iter().map(str::to_owned).collect(),
            products: products
                .map(|product| product.record(selection, &mut read))
                .collect(),
            elementwise: elementwise
                .map(|op| op.record(selection, &mut read))
                .collect(),
        }
    }
}

impl ProductStream {
    fn record(self, selection: &Selection, read: &mut Read) -> ProductRecord {
        let (layer, product) = self.key;
        let (specs, attention) = (self.specs, self.attention);
        let operands = self.operands.into_iter().map(|operand| {
            let mut parts = operand
                .error_parts
                .into_iter()
                .map(Option::unwrap_or_default);
            let figures = operand.statistics.into_iter().map(|statistics| Figures {
                error_parts: parts.next().and_then(|parts| PartFigures::of(&parts)),
                ..Figures::of(&read.statistics(statistics), |which| selection.has(which))
            });
            let mut figures = figures.collect::<Vec<_>>().into_iter();
            let used = figures.next().map(|used| Figures {
                dialect: operand.difference.as_ref().map(DialectFigures::of),
                ..used
            });
            let format = match attention.is_none() && !operand.is_hot {
                true => {
                    let format = specs.resolved().block_format(operand.slot);
                    format.map(PointFormat::Block)
                }
                false => operand.point,
            };
            let names = selection.what_if.iter().map(|(name, _)| name.clone());
            OperandRecord {
                slot: operand.slot,
                operand: operand.name.into(),
                format: format.map(|format| format.to_string()),
                figures: used.expect("the format in use comes first"),
                what_if: names.zip(figures).collect(),
            }
        });
        let operands = operands.collect();
        let result = self.result.map(|result| read.statistics(result));
        let accumulator = attention.unwrap_or_else(|| specs.resolved().accumulator(product));
        // Inside of attention a point without a format is float32.
        let elementwise = specs.resolved().float_format();
        let elementwise = elementwise.filter(|_| attention.is_none());
        let sums = accumulator.and_then(|accumulator| {
            SumsRecord::of(accumulator, &selection.accumulators, &self.sums)
        });
        ProductRecord {
            layer: layer.into(),
            op: self.op,
            product,
            uses: self.uses,
            specs: specs.resolved().to_string(),
            macs: self.macs,
            result_elements: self.result_elements,
            elementwise: elementwise.map(|format| format.to_string()),
            accumulator: accumulator.map(|accumulator| accumulator.to_string()),
            operands,
            result: result.as_ref().map(ResultRecord::of),
            sums,
        }
    }
}

impl Elementwise {
    fn record(self, selection: &Selection, read: &mut Read) -> ElementwiseRecord {
        let (layer, op, phase) = self.key;
        let roundings = self.roundings.into_iter().map(|(name, statistics)| {
            let wanted = |which| selection.has(which);
            RoundingRecord {
                rounding: name.into(),
                figures: Figures::of_rounding(&read.statistics(statistics), wanted),
            }
        });
        ElementwiseRecord {
            layer: layer.into(),
            op: op.into(),
            pass: phase,
            uses: self.uses,
            format: self.format.to_string(),
            roundings: roundings.collect(),
        }
    }
}

/// Names of the products of a step without a named parameter.
#[derive(Default)]
struct Names {
    /// The last named layer.
    last: Option<&'static str>,
    made_up: HashSet<&'static str>,
    /// How many products have the same prefix so far.
    counts: HashMap<(String, ProductOp), usize>,
}

impl Names {
    fn next(&mut self, op: ProductOp, scope: Option<&str>) -> &'static str {
        let prefix = match (scope, self.last) {
            (Some(scope), _) => format!("{scope}."),
            (None, Some(last)) => format!("{last} > "),
            (None, None) => String::new(),
        };
        let count = self.counts.entry((prefix.clone(), op)).or_default();
        let name = format!("{prefix}{op} {count}");
        *count += 1;
        let name = hooks::label(&name);
        self.made_up.insert(name);
        name
    }
}
