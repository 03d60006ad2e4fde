//! Products on a device that sum up as a chip's matrix unit does, with the bits of `microscaling`'s rule.
//!
//! Operands are packed, as for a checkpoint, and their codes become words of factors, in the order of the additions.
//! Then one unit computes each element of the result.

mod plan;
pub(super) mod sums;
pub(super) mod terms;

use std::ops::Range;

use burn_backend::{DType, Shape, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{Rounding, StatisticsParts};
use microscaling_product::{OperandKind, ScaleType};

use super::launch;
use super::numbers::bits::{INFINITY, NAN, ONE};
use super::numbers::double;
use super::numbers::wide::OutputFormatLaunch;
use super::pack;
use super::quantize::rules::{self, Format};
use super::statistics::blocks::Blocks;
use crate::product::accumulated::layout::{Layout, broadcast};
use crate::product::accumulated::{AccumulatedForm, AccumulatedProduct};
use plan::Plan;
use sums::{ChainLaunch, ResultElementsLaunch, ScalesAt, sums_kernel};
use terms::{Content, LinesLaunch, Nested, Terms, TypeLaunch, terms_kernel};

/// Words of a right operand that are made at once: 128 MiB, the largest buffer that every WebGPU device takes.
const TOGETHER: usize = 1 << 25;

/// Whether [`multiply`] computes a product.
pub(super) fn has_kernel(product: &AccumulatedProduct) -> bool {
    Plan::of(product).is_some()
}

/// An operand on the device: its values, or its codes and scales.
struct DeviceOperand<R: CubeRuntime> {
    words: CubeTensor<R>,
    form: Option<pack::Form>,
    parts: StatisticsParts,
    codes: usize,
    kind: OperandKind,
}

impl<R: CubeRuntime> DeviceOperand<R> {
    fn of(tensor: CubeTensor<R>, form: &AccumulatedForm, shape: &[usize]) -> Self {
        let kind = form.kind;
        let Some((format, rounding)) = form.blocks else {
            let parts = StatisticsParts::of(None, shape, form.sums.summed);
            return Self {
                words: launch::dense(&tensor),
                form: None,
                parts: parts.expect("the axis is the shape's"),
                codes: 0,
                kind,
            };
        };
        let layout = pack::Words::of(format, shape, form.block_axis(&format));
        let layout = layout.ok().flatten().expect("the product has a kernel");
        let (of_device, parts, codes) = layout.layout();
        Self {
            words: layout.pack(&tensor, rounding, form.stream),
            form: Some(of_device),
            parts: *parts,
            codes,
            kind,
        }
    }

    /// The words of a content, of some lines; `[matrix, slot, line]` if `across`, else `[matrix, line, slot]`.
    fn terms(
        &self,
        plan: &Plan,
        content: Content,
        layout: &Layout,
        windows: Option<&CubeTensor<R>>,
        lines: Range<usize>,
        across: bool,
    ) -> CubeTensor<R> {
        let length = layout.length();
        let slots = match content {
            Content::Scale => plan.scales(length),
            _ => plan.words(),
        };
        let count = layout.matrices() * lines.len() * slots;
        let terms = launch::empty_like(&self.words, Shape::new([count]), DType::I32);
        let client = &self.words.client;
        let (cubes, cube) = launch::units(client, count);
        let element = self.kind.element;
        let scale = self.kind.scale.unwrap_or(ScaleType::PowerOfTwo);
        let (scale_emin, scale_mantissa_bits, scale_max) = match scale {
            ScaleType::Float(format) => (
                format.emin(),
                format.mantissa_bits(),
                format.max().to_bits(),
            ),
            _ => (-127, 0, 254 << 23),
        };
        let content = match content {
            Content::Scaled if self.form.is_none() => Content::Element,
            content => content,
        };
        // SAFETY: reads lie inside of the source, by the layout; each unit writes its own word, and has one.
        unsafe {
            terms_kernel::launch_unchecked(
                client,
                cubes,
                cube,
                launch::address_type([&self.words, &terms]),
                self.words.clone().into_array_arg(),
                optional(windows),
                terms.clone().into_array_arg(),
                Blocks::argument(&self.parts),
                self.codes,
                plan.slots(content, length, !across),
                LinesLaunch::new(
                    lines.start,
                    lines.len(),
                    layout.given,
                    length,
                    layout.matrix,
                ),
                Nested::argument(layout.free),
                Nested::argument(layout.summed),
                TypeLaunch::new(
                    element.emin(),
                    element.mantissa_bits() as i32,
                    element.max().to_bits(),
                    plan.smallest(element),
                ),
                TypeLaunch::new(scale_emin, scale_mantissa_bits as i32, scale_max, 0),
                count,
                Terms {
                    content,
                    form: self.form,
                    across,
                },
            );
        }
        terms
    }
}

/// An argument of a kernel that may be missing.
fn optional<R: CubeRuntime>(words: Option<&CubeTensor<R>>) -> ComptimeOptionArgs<Array<u32>, R> {
    match words {
        Some(words) => ComptimeOptionArgs::Some(words.clone().into_array_arg()),
        None => ComptimeOptionArgs::None,
    }
}

/// A product that [`has_kernel`].
pub(super) fn multiply<R: CubeRuntime>(
    product: &AccumulatedProduct,
    operands: [CubeTensor<R>; 2],
) -> CubeTensor<R> {
    let plan = Plan::of(product).expect("the product has a kernel");
    let layouts = product.layouts();
    let (_, numbers) = broadcast(layouts.each_ref().map(|layout| &layout.leading[..]));
    let numbers = numbers.into_iter().flatten().map(|number| number as u32);
    let numbers = launch::words(&operands[0], &numbers.collect::<Vec<_>>());
    let windows = product.windows();
    let windows = windows.map(|table| launch::words(&operands[1], &table));
    let sources = operands.into_iter().zip(&product.forms);
    let sources: Vec<DeviceOperand<R>> = sources
        .zip(&product.shapes)
        .map(|((tensor, form), shape)| DeviceOperand::of(tensor, form, shape))
        .collect();
    let result = Shape::from(product.shape());
    let result = launch::empty_like(&sources[0].words, result, DType::F32);
    // Words, and scales if these are apart.
    let terms = |i: usize, lines: Range<usize>| {
        let windows = windows.as_ref().filter(|_| i == 1);
        let of = |content| {
            let layout = &layouts[i];
            sources[i].terms(&plan, content, layout, windows, lines.clone(), i == 1)
        };
        let apart = plan.structure.scales_at != ScalesAt::Terms && sources[i].form.is_some();
        (of(plan.content), apart.then(|| of(Content::Scale)))
    };
    let [rows, columns] = layouts.each_ref().map(Layout::lines);
    let lhs = terms(0, 0..rows);
    let of_a_column = layouts[1].matrices() * plan.words();
    let together = (TOGETHER / of_a_column).clamp(1, columns);
    for first in (0..columns).step_by(together) {
        let columns = first..columns.min(first + together);
        let rhs = terms(1, columns.clone());
        add(&plan, product, [&lhs, &rhs], &numbers, &result, columns);
    }
    times_tensor_scales(result, sources, &product.forms)
}

/// The sums of some columns of the result.
fn add<R: CubeRuntime>(
    plan: &Plan,
    product: &AccumulatedProduct,
    [lhs, rhs]: [&(CubeTensor<R>, Option<CubeTensor<R>>); 2],
    numbers: &CubeTensor<R>,
    result: &CubeTensor<R>,
    columns: Range<usize>,
) {
    let (layouts, results) = (product.layouts(), product.results());
    let matrices = numbers.shape().num_elements() / 2;
    let elements = matrices * layouts[0].lines() * columns.len();
    let client = &result.client;
    let (cubes, cube) = launch::units(client, elements);
    let output = plan.output;
    let together = plan.additions_together();
    for first in (0..plan.additions).step_by(together) {
        // SAFETY: reads lie inside of the words, whose number rows, columns and additions give; each unit reads and writes its own element.
        unsafe {
            sums_kernel::launch_unchecked(
                client,
                cubes.clone(),
                cube,
                launch::address_type([&lhs.0, &rhs.0, result]),
                lhs.0.clone().into_array_arg(),
                rhs.0.clone().into_array_arg(),
                optional(lhs.1.as_ref()),
                optional(rhs.1.as_ref()),
                numbers.clone().into_array_arg(),
                result.clone().into_array_arg(),
                ChainLaunch::new(
                    layouts[0].lines(),
                    columns.len(),
                    plan.words(),
                    first,
                    together.min(plan.additions - first),
                    plan.groups,
                    plan.steps(),
                    plan.additions_of_a_part(),
                    plan.scales(layouts[0].length()),
                    plan.fraction_bits,
                    plan.bits.fraction,
                    plan.floor_exponent,
                    plan.shift().max(0) as u32,
                    (-plan.shift()).max(0),
                    plan.bits.scales,
                ),
                OutputFormatLaunch::new(
                    output.emin(),
                    output.emax(),
                    output.mantissa_bits() as i32,
                    u32::from(output.rounding() == Rounding::NearestEven),
                ),
                ResultElementsLaunch::new(
                    elements,
                    columns.start,
                    layouts[1].free[1].count,
                    results.matrix,
                    results.row,
                    results.column[0],
                    results.column[1],
                ),
                plan.structure,
            );
        }
    }
}

/// The result times the tensor scales of both operands, in float64, as on processors.
fn times_tensor_scales<R: CubeRuntime>(
    result: CubeTensor<R>,
    sources: Vec<DeviceOperand<R>>,
    forms: &[AccumulatedForm; 2],
) -> CubeTensor<R> {
    let formats = forms.map(|form| {
        let format = form.blocks.map(|(format, _)| format);
        format.filter(|format| format.tensor_scale).map(Format::of)
    });
    if formats == [None; 2] {
        return result;
    }
    let elements = result.shape().num_elements();
    let (cubes, cube) = launch::units(&result.client, elements);
    let last = |i: usize| sources[i].words.shape().num_elements() - 1;
    // SAFETY: the last word of each source is read; each unit reads and writes its own element.
    unsafe {
        tensor_scales_kernel::launch_unchecked(
            &result.client,
            cubes,
            cube,
            result.required_address_type(),
            result.clone().into_array_arg(),
            sources[0].words.clone().into_array_arg(),
            sources[1].words.clone().into_array_arg(),
            last(0),
            last(1),
            elements,
            formats,
        );
    }
    result
}

/// The last word of a packed operand is its largest magnitude.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn tensor_scales_kernel(
    values: &mut Array<u32>,
    lhs: &Array<u32>,
    rhs: &Array<u32>,
    last_of_lhs: usize,
    last_of_rhs: usize,
    elements: usize,
    #[comptime] formats: [Option<Format>; 2],
) {
    if ABSOLUTE_POS >= elements {
        terminate!();
    }
    let of_lhs = tensor_scale(lhs[last_of_lhs], comptime!(formats[0]));
    let of_rhs = tensor_scale(rhs[last_of_rhs], comptime!(formats[1]));
    let is_nan = of_lhs >= INFINITY || of_rhs >= INFINITY;
    let factor = double::product(select(is_nan, ONE, of_lhs), select(is_nan, ONE, of_rhs));
    let value = double::scaled(values[ABSOLUTE_POS], factor);
    values[ABSOLUTE_POS] = select(is_nan, NAN, value);
}

#[cube]
fn tensor_scale(amax: u32, #[comptime] format: Option<Format>) -> u32 {
    match format {
        Some(format) => {
            let is_special = amax >= INFINITY;
            let scale = rules::scale_of_tensor(select(is_special, 0, amax), format);
            select(is_special, NAN, scale)
        }
        None => ONE.runtime(),
    }
}
