//! The settings, and their checks.

use burn_mx_module::Pattern;
use microscaling::{FloatFormat, RandomStream, Rounding};
use serde::{Deserialize, Serialize};

use super::{
    CommunicationError,
    error::Checked,
    operation::{Operation, SharedScale, Wire},
};
use crate::{PackedState, StateFormat};

/// The way of partial sums from rank to rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Route {
    /// A partial sum goes from rank to rank, and each rank adds its operand.
    #[default]
    Ring,
    /// Neighbours add their partial sums in pairs, then pairs of pairs. The last of an odd number goes on without a sum.
    Tree,
    /// Every rank sends its operand to the rank that adds all of them.
    AllToAll,
}

/// The order in which ranks are added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RankOrder {
    /// A part's owner is last. The rank after the owner is first, as in a ring: 3, 0, 1, 2 for the part of rank 2 of 4.
    #[default]
    OwnerLast,
    /// 0, 1, 2, … for every part.
    Ascending,
}

/// The settings of collective operations. Formats are texts of a [`StateFormat`]; `None` and `float32` leave numbers unchanged.
///
/// A tensor is one row of numbers in row-major order. Rank r owns part r: `⌈count/ranks⌉` numbers, up to the next multiple of
/// [`hadamard`](Self::hadamard). The last parts may be shorter, or empty. Each part is a message with its own blocks, which start at the start of
/// the part. A tensor scale is a scale of a message.
///
/// ```
/// # use burn_mx_optim::communication::Communication;
/// let wire = Communication {
///     format: Some("mxfp8_e5m2".into()),
///     error_feedback: Some("float32".into()),
///     ..Communication::default()
/// };
/// wire.check()?;
/// let wrong = Communication { ranks_per_node: 4, ..wire };
/// assert!(wrong.check().unwrap_err().to_string().starts_with("`ranks_per_node` is 4; allowed: 0, unless"));
/// # Ok::<(), burn_mx_optim::communication::CommunicationError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Communication {
    /// The format of numbers on the wire.
    pub format: Option<String>,
    /// The format between nodes, if it differs: of the sums of nodes.
    pub format_between_nodes: Option<String>,
    /// How elements are rounded on the wire: `even`, unless set.
    pub rounding: Rounding,
    /// The elementwise format that operands have before the operation, rounded to `even`: `fp16` or `bfloat16` as a framework
    /// holds gradients. With [`difference`](Self::difference), the difference has this format.
    pub operand: Option<String>,
    /// The elementwise format of sums, rounded to `even` after each addition.
    pub accumulator: Option<String>,
    /// The way of partial sums.
    pub route: Route,
    /// The order of ranks.
    pub order: RankOrder,
    /// Whether ring and tree round a partial sum before each hop. If not, operands are rounded once, partial sums travel unrounded, and
    /// the result of an `all_reduce` is rounded once, as if a switch added.
    pub requantize: bool,
    /// Whether a rank also rounds an operand that it adds itself.
    pub quantize_own: bool,
    /// Ranks of a node, or 0 for one node. With [`Route::AllToAll`], ranks of a node first add among themselves, then nodes.
    pub ranks_per_node: usize,
    /// Whether the result is the mean over ranks. The division follows the last sum.
    pub mean: bool,
    /// The length of the Hadamard transform before the first message, without random signs, or 0. The result is transformed back.
    pub hadamard: usize,
    /// One scale for the tensor, all ranks and all hops, as in MS-AMP: 2^⌊log2(largest number/largest magnitude)⌋/√ranks. The
    /// format is then an MX format with one block (`block_size=0`), whose elements count alone.
    pub shared_scale: bool,
    /// Blocks by the tensor's shape, as in ZeRO++: `⌈count/max(rows, columns, ranks)⌉` numbers each, in place of the format's length. Rows and
    /// columns are the first two axes.
    pub blocks_by_shape: bool,
    /// Whether tensors with one axis are rounded.
    pub vectors: bool,
    /// The format of errors, if ranks keep them: each rank adds the error of its last message to the next one. `float32` keeps the exact
    /// error. The error of a NaN or Inf counts as 0.
    pub error_feedback: Option<String>,
    /// Gathers send the difference to the last value, and every rank adds the difference. The first value is sent unrounded.
    pub difference: bool,
    /// Patterns of parameter paths, as [`set_specs_at`](burn_mx_module::set_specs_at) takes them. Parameters that match none are added
    /// or gathered without a format. No pattern stands for all parameters.
    pub tensors: Vec<String>,
    /// The seed of stochastic rounding. Message `m` of a call has the stream `m` of a key. The key of call `c` on tensor `t`
    /// is words 2c and 2c + 1 of stream `t` with this seed, the low half first. `m` is stage·2^56 + rank·2^32 + part; rank is the sender, and
    /// the stages are 0 for operands, 1 for partial sums, 2 for sums of nodes, 3 for results, 4 for gathers.
    pub seed: u64,
}

impl Default for Communication {
    fn default() -> Self {
        Self {
            format: None,
            format_between_nodes: None,
            rounding: Rounding::NearestEven,
            operand: None,
            accumulator: None,
            route: Route::Ring,
            order: RankOrder::OwnerLast,
            requantize: true,
            quantize_own: true,
            ranks_per_node: 0,
            mean: false,
            hadamard: 0,
            shared_scale: false,
            blocks_by_shape: false,
            vectors: true,
            error_feedback: None,
            difference: false,
            tensors: Vec::new(),
            seed: 0,
        }
    }
}

fn error<T>(field: &'static str, value: impl ToString, allowed: &str) -> Checked<T> {
    Err(CommunicationError::new(field, value, allowed))
}

/// A format of a field; `None` leaves numbers unchanged.
fn parse(field: &'static str, text: Option<&str>) -> Checked<Option<StateFormat>> {
    let text = text.filter(|text| !["float32", "fp32"].contains(text));
    let parsed = text.map(|text| {
        let error = |allowed: String| CommunicationError::new(field, text, allowed);
        text.parse::<StateFormat>().map_err(error)
    });
    parsed.transpose()
}

fn wire(field: &'static str, text: Option<&str>, rounding: Rounding) -> Checked<Option<Wire>> {
    let Some(format) = parse(field, text)? else {
        return Ok(None);
    };
    let text = text.unwrap_or_default();
    if format.is_unsigned() {
        let allowed =
            "a format with negative numbers, such as mxfp8_e5m2, int4_clipped or bfloat16";
        return error(field, text, allowed);
    }
    if format.with_block_size(1).is_none() && !matches!(format, StateFormat::Elementwise(_)) {
        return error(
            field,
            text,
            "a format whose blocks are not square: a message is a row",
        );
    }
    if format.is_companded() {
        let allowed = "a format without a logarithm: the logarithm clips numbers beyond 1";
        return error(field, text, allowed);
    }
    let own = [Rounding::NearestEven, Rounding::Stochastic];
    if format.has_own_rounding() && !own.contains(&rounding) {
        let value = format!("{text} with rounding {rounding}");
        return error(field, value, "rounding even or stochastic");
    }
    if !matches!(format, StateFormat::Block(_)) {
        let rounder = rounding.with(RandomStream::new(0, 0));
        PackedState::encode(format, &[1.0], &[1], rounder)
            .map_err(|reason| CommunicationError::new(field, text, reason.to_string()))?;
    }
    Ok(Some(Wire { format, rounding }))
}

fn float(field: &'static str, text: Option<&str>) -> Checked<Option<FloatFormat>> {
    match parse(field, text)? {
        None => Ok(None),
        Some(StateFormat::Elementwise(float)) => Ok(Some(float)),
        Some(other) => error(
            field,
            other,
            "an elementwise format such as fp16 or bfloat16",
        ),
    }
}

impl Communication {
    /// Checks all fields, as every operation does before any work.
    ///
    /// # Errors
    /// The first field that cannot be used:
    /// * a text without a format of this name, numbers without a sign, square blocks, a rounding that the format does not have;
    /// * an `operand` or `accumulator` that is not elementwise;
    /// * nodes without [`Route::AllToAll`], or a format between nodes without nodes;
    /// * no `requantize` with [`Route::AllToAll`], which has no partial sums on the way;
    /// * `hadamard` that is not a power of two up to 4,096;
    /// * a field that has no effect without `format`;
    /// * `shared_scale` with other formats than MX of one block, or with a field that keeps numbers or needs other scales;
    /// * `blocks_by_shape` with an elementwise format;
    /// * a pattern that is not a glob.
    pub fn check(&self) -> Result<(), CommunicationError> {
        self.resolve().map(|_| ())
    }

    pub(super) fn resolve(&self) -> Checked<Operation> {
        let rounding = self.rounding;
        let format = wire("format", self.format.as_deref(), rounding)?;
        let between = wire(
            "format_between_nodes",
            self.format_between_nodes.as_deref(),
            rounding,
        )?;
        self.patterns()?;
        self.check_route()?;
        self.check_without_format(format)?;
        if self.hadamard != 0 && !(self.hadamard.is_power_of_two() && self.hadamard <= 4096) {
            let allowed = "0, or a power of two up to 4096";
            return error("hadamard", self.hadamard, allowed);
        }
        if self.blocks_by_shape {
            for wire in [format, between].into_iter().flatten() {
                if wire.format.with_block_size(1).is_none() {
                    let allowed =
                        format!("false, unless the format has blocks; it is {}", wire.format);
                    return error("blocks_by_shape", true, &allowed);
                }
            }
        }
        let even = Rounding::NearestEven;
        let error_format = wire("error_feedback", self.error_feedback.as_deref(), even)?;
        if self.difference && self.error_feedback.is_some() {
            let allowed =
                "false with `error_feedback`: the next difference has the last one's error in it";
            return error("difference", true, allowed);
        }
        Ok(Operation {
            format,
            between: between.or(format),
            operand: float("operand", self.operand.as_deref())?,
            accumulator: float("accumulator", self.accumulator.as_deref())?,
            route: self.route,
            order: self.order,
            requantize: self.requantize,
            quantize_own: self.quantize_own,
            ranks_per_node: self.ranks_per_node,
            mean: self.mean,
            hadamard: self.hadamard,
            shared_scale: self.resolve_shared_scale(format)?,
            blocks_by_shape: self.blocks_by_shape,
            feeds_back: self.error_feedback.is_some(),
            error_format,
            difference: self.difference,
            seed: self.seed,
        })
    }

    fn check_route(&self) -> Checked<()> {
        let is_all_to_all = self.route == Route::AllToAll;
        if self.ranks_per_node != 0 && !is_all_to_all {
            let allowed = "0, unless `route` is all_to_all";
            return error("ranks_per_node", self.ranks_per_node, allowed);
        }
        if let Some(text) = &self.format_between_nodes
            && self.ranks_per_node == 0
        {
            let allowed = "no format, unless `ranks_per_node` is 1 or more";
            return error("format_between_nodes", text, allowed);
        }
        if !self.requantize && is_all_to_all {
            let allowed = "true, unless `route` is ring or tree: all_to_all sends no partial sums";
            return error("requantize", false, allowed);
        }
        Ok(())
    }

    /// Fields that say how a format is used.
    fn check_without_format(&self, format: Option<Wire>) -> Checked<()> {
        if format.is_some() {
            return Ok(());
        }
        let set = [
            ("format_between_nodes", self.format_between_nodes.is_some()),
            ("requantize", !self.requantize),
            ("quantize_own", !self.quantize_own),
            ("hadamard", self.hadamard != 0),
            ("shared_scale", self.shared_scale),
            ("blocks_by_shape", self.blocks_by_shape),
            ("vectors", !self.vectors),
            ("error_feedback", self.error_feedback.is_some()),
            ("difference", self.difference),
            ("tensors", !self.tensors.is_empty()),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((field, _)) => error(field, "set", "the default, unless `format` is set"),
        }
    }

    fn resolve_shared_scale(&self, format: Option<Wire>) -> Checked<Option<SharedScale>> {
        if !self.shared_scale {
            return Ok(None);
        }
        let others = [
            ("format_between_nodes", self.format_between_nodes.is_some()),
            ("hadamard", self.hadamard != 0),
            ("blocks_by_shape", self.blocks_by_shape),
            ("error_feedback", self.error_feedback.is_some()),
            ("difference", self.difference),
        ];
        if let Some((field, _)) = others.into_iter().find(|(_, is_set)| *is_set) {
            return error(field, "set", "the default with `shared_scale`");
        }
        let text = self.format.as_deref().unwrap_or_default();
        match format.map(|wire| wire.format) {
            Some(StateFormat::Block(format))
                if format.block_size == 0 && format.is_mx() && format.is_element_times_scale() =>
            {
                Ok(Some(SharedScale {
                    format,
                    rounding: self.rounding,
                }))
            }
            _ => error(
                "format",
                text,
                "with `shared_scale`, an MX format with one block such as mx(element=fp8_e4m3,block_size=0)",
            ),
        }
    }

    /// The patterns of parameter paths.
    pub(super) fn patterns(&self) -> Checked<Vec<Pattern>> {
        let pattern = |text: &String| {
            let allowed = "the path of a parameter or a module, or a glob over either";
            Pattern::new(text).map_err(|_| CommunicationError::new("tensors", text, allowed))
        };
        self.tensors.iter().map(pattern).collect()
    }
}
