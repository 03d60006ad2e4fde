//! `microscaling formats`, and the tables of all commands.

use crate::done::Done;
use crate::error::Error;
use crate::scheme::SCHEMES;
use crate::target::{INTEGERS, TOOLS};
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use microscaling::safetensors::{CheckpointLayout, IntegerLayout};
use microscaling::{BlockFormat, Dialect, Packed, ScaleFormat, Shifts};

/// Show the block formats, the tools whose bytes can be written, and the layouts of files
#[derive(Debug, clap::Args)]
pub(crate) struct FormatsArgs {
    /// Only these block formats, each with its datasheet and the values of its elements: `mxfp4`, `mx(element=int4,block_size=16)`
    formats: Vec<BlockFormat>,
}

pub(crate) fn run(args: &FormatsArgs) -> Result<Done, Error> {
    let all: Vec<BlockFormat> = match &args.formats[..] {
        [] => BlockFormat::NAMES
            .iter()
            .map(|name| name.parse().expect("it is a name"))
            .collect(),
        some => some.to_vec(),
    };
    let mut done = Done::default();
    done.table("formats", overview(&all));
    if !args.formats.is_empty() {
        done.text("\n");
        done.table("datasheet", datasheets(&args.formats));
    }
    let mut elements = serde_json::Map::new();
    for format in &args.formats {
        let element = format.element;
        if format.has_fixed_steps() || element.bits() > 8 {
            continue;
        }
        let values = (0..1_u32 << element.bits()).map(|code| element.decode(code).to_string());
        let values: Vec<String> = values.collect();
        done.text(format!(
            "\nElements of {format}, by code: {}\n",
            values.join(" ")
        ));
        elements.insert(format.to_string(), values.into());
    }
    if args.formats.is_empty() {
        done.text("\n");
        done.table("dialects", dialects());
        done.text("\n");
        done.table("layouts", layouts());
        let tools = TOOLS.map(|(name, _)| name);
        done.text(format!(
            "\n`convert --to` also has a tool's layouts, one for each format: {}\n",
            tools.join(", ")
        ));
        done.fact("layouts_of_tools", tools.to_vec());
        let schemes = SCHEMES.map(|scheme| scheme.name);
        done.text(format!(
            "\n`quantize --scheme` has the schemes of compressed-tensors: {}\n",
            schemes.join(", ")
        ));
        done.fact("schemes", schemes.to_vec());
    } else {
        done.fact("elements", elements);
    }
    Ok(done)
}

/// A row for each format.
fn overview(all: &[BlockFormat]) -> Table {
    let mut formats = table([
        "Format",
        "Bits an element",
        "Element",
        "Block",
        "Scale",
        "Largest element",
    ]);
    for format in all {
        let block = match (format.scale_block_size(), format.square) {
            (0, _) => "the axis".to_owned(),
            (size, false) => size.to_string(),
            (size, true) => format!("{size} × {size}"),
        };
        formats.add_row([
            &format.to_string(),
            &format.bits_per_element().to_string(),
            &element(format),
            &block,
            &scale(format),
            &match format.has_fixed_steps() {
                true => "-".to_owned(),
                false => format.element.max().to_string(),
            },
        ]);
    }
    formats
}

/// The tools whose bytes can be written, with their formats.
fn dialects() -> Table {
    let mut dialects = table(["Dialect", "Formats that the tool has"]);
    for dialect in Dialect::ALL {
        dialects.add_row([dialect.name(), &dialect.formats().join(", ")]);
    }
    dialects
}

/// The layouts of files, with the tensors of a weight, and of the weight of a layer.
fn layouts() -> Table {
    let mut layouts = table(["Layout", "Format", "Tensors of the weight NAME"]);
    for layout in CheckpointLayout::ALL {
        let (format, tensors) = match layout {
            CheckpointLayout::Weights(layout) => {
                let stored = layout.stored_as("NAME").into_iter();
                let stored = stored.map(|(name, dtype)| format!("{name} {}", dtype.name()));
                let format = layout.format().to_string();
                (format, stored.collect::<Vec<_>>().join(", "))
            }
            CheckpointLayout::Microscaling => {
                let tensors = "NAME.scales U8, NAME.elements U8, NAME.tensor_scale F32";
                ("every one".to_owned(), tensors.to_owned())
            }
        };
        layouts.add_row([layout.name(), &format, &tensors]);
    }
    for layout in INTEGERS {
        let (format, more) = match layout {
            IntegerLayout::Awq => ("int4", ""),
            _ => ("int2, int3, int4, int8", ", LAYER.g_idx I32"),
        };
        let tensors = format!("LAYER.qweight I32, LAYER.scales F16, LAYER.qzeros I32{more}");
        layouts.add_row([layout.name(), format, &tensors]);
    }
    layouts
}

/// The datasheets of formats side by side: a row for each property that one of them has.
fn datasheets(formats: &[BlockFormat]) -> Table {
    let sheets: Vec<_> = formats.iter().map(datasheet).collect();
    let mut properties: Vec<&str> = Vec::new();
    for sheet in &sheets {
        let mut at = 0;
        for (property, _) in sheet {
            match properties.iter().position(|known| known == property) {
                Some(known) => at = known + 1,
                None => {
                    properties.insert(at, property);
                    at += 1;
                }
            }
        }
    }
    let names = formats.iter().map(BlockFormat::to_string);
    let mut table = Table::new();
    table
        .load_preset(ASCII_MARKDOWN)
        .set_header(std::iter::once("Property".to_owned()).chain(names));
    for property in properties {
        let values = sheets.iter().map(|sheet| {
            let own = sheet.iter().find(|(known, _)| *known == property);
            own.map_or("-", |(_, value)| value.as_str())
        });
        table.add_row(std::iter::once(property).chain(values));
    }
    table
}

/// The datasheet of a format, with its cost by the tables of `burn-mx-cost`.
pub fn datasheet(format: &BlockFormat) -> Vec<(&'static str, String)> {
    burn_mx_cost::Tables::default().datasheet(*format)
}

fn element(format: &BlockFormat) -> String {
    match format.has_fixed_steps() {
        true => format!("sign and {} bits", format.element_bits() - 1),
        false => format.element.to_string(),
    }
}

fn scale(format: &BlockFormat) -> String {
    let tensor = if format.tensor_scale {
        ", float32 for the tensor"
    } else {
        ""
    };
    let sub = format.sub_scales.map(|sub| format!(", sub-scales {sub}"));
    let outer = format.outer.map(|outer| match outer.size {
        0 => format!(", {} for the axis", outer.scale),
        size => format!(", {} for each {size}", outer.scale),
    });
    let sign = format.sign_scales.then(|| ", one for each sign".to_owned());
    let [sub, outer, sign] = [sub, outer, sign].map(Option::unwrap_or_default);
    if !format.has_exponent() {
        return format!("{}{sub}{sign}{outer}{tensor}", format.scale);
    }
    if let Some(Shifts { block_size, bits }) = format.shifts {
        return format!("2^s, and {bits} bit for each {block_size} elements");
    }
    match (format.has_fixed_steps(), format.scale) {
        (true, _) => "2^s".to_owned(),
        (false, ScaleFormat::E8M0) => format!("2^s (e8m0), {}{sign}", format.scale_mode),
        (false, scale) => format!("2^s, s in {} bits{sign}", scale.bits()),
    }
}

/// A format in one line.
pub fn describe(format: &BlockFormat) -> String {
    let block = match (format.scale_block_size(), format.square) {
        (0, _) => "a block for the whole axis".to_owned(),
        (size, false) => format!("blocks of {size}"),
        (size, true) => format!("blocks of {size} × {size}"),
    };
    let (element, scale, bits) = (element(format), scale(format), format.bits_per_element());
    format!("{format}: elements {element}, {block}, scale {scale}; {bits} bits an element")
}

pub(crate) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(header);
    table
}

/// Bytes of a packed weight's codes and scales.
pub(crate) fn bytes_of(packed: &Packed) -> usize {
    let tensor_scale = packed.tensor_scale().map_or(0, |_| size_of::<f32>());
    packed.elements().len() + packed.scales().len() + tensor_scale
}
