//! The pages of the book that are generated: the fields of the specs, the datasheets of formats.
//!
//! `MX_WRITE_BOOK=1 cargo test --release --test suite book::` writes the pages anew.

use std::path::Path;

use burn_mx::cost::Tables;
use burn_mx::{BlockFormat, MxSpecs, ScaleFormat, SpecsField};

const BEFORE: &str = "\
# Fields of the specs

<!-- Generated from the table in crates/burn-mx-core/src/specs/fields.rs: see tests/suite/book.rs. -->

`MxSpecs` has these fields. A field has the same name in Rust and in JSON. The flag is what [`MxArgs`](formats.md#specs) (feature `clap`)
adds to a program; a flag without a value switches the field from its default. `--round-mx ROUNDING` sets the six `round_mx_*` fields, and
no elementwise rounding. [Formats](formats.md) lists what a FORMAT may be, and
[Accumulators](accumulators.md) what an ACCUMULATOR may be.

## Fields of the reference

These are the fields of microxcaling's `MxSpecs`. `round_m` and `custom_cuda` change no number: burn-mx reads them, drops them, and logs so.
";

const BEYOND: &str = "
## Fields beyond the reference

JSON leaves out such a field at its default, so that the reference can read the rest.
";

/// A doc comment as Markdown outside of rustdoc: a link to an item is the item's name, on one line.
fn without_rustdoc_links(doc: &str) -> String {
    let mut text = String::new();
    let mut rest = doc.trim();
    while let Some((before, link)) = rest.split_once('[') {
        let (name, after) = link.split_once(']').expect("a link ends");
        text += before;
        text += name;
        rest = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').expect("a target ends").1,
            None => after,
        };
    }
    text += rest;
    assert!(!text.contains(['|', '\n']), "{text}");
    text
}

fn row(field: &SpecsField) -> String {
    let flag = field.flag.replace('_', "-");
    let value = field.value.map(|value| format!(" {value}"));
    let value = value.unwrap_or_default();
    let meaning = without_rustdoc_links(field.doc);
    format!("| `{}` | `--{flag}{value}` | {meaning} |\n", field.name)
}

fn table(beyond: bool) -> String {
    let of_kind = |field: &&SpecsField| field.is_beyond_reference == beyond;
    let rows: String = MxSpecs::FIELDS.iter().filter(of_kind).map(row).collect();
    format!("\n| field | flag | meaning |\n| --- | --- | --- |\n{rows}")
}

#[test]
fn the_page_of_fields_is_that_of_the_table() {
    let page = [BEFORE, &table(false), BEYOND, &table(true)].concat();
    check("docs/src/fields.md", &page);
}

/// Checks a page, or writes it anew.
fn check(file: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("MX_WRITE_BOOK").is_some() {
        std::fs::write(&path, page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        written == page,
        "{file} is out of date: run `MX_WRITE_BOOK=1 cargo test --release --test suite book::`"
    );
}

const DATASHEETS: &str = "\
# Datasheets of formats

<!-- Generated from the formats themselves: see tests/suite/book.rs. -->

Every block format with a name. `microscaling formats NAME` prints the datasheet of any format, also of one with parameters such as
`block(element=e2m1,scale=ue6m2,block_size=32)`; in Python `Format(text).datasheet()` has it. In a program it is
`BlockFormat::datasheet`, and with area and energy `burn_mx::cost::Tables::datasheet`.

* amax is the largest magnitude of a block. A number that is too large for its element becomes the largest element.
* *Area* counts the gates of a lane of a multiply-accumulate unit. *Energy* is of a product of two operands in the format with a float32 sum, in
  45 nm. Both are [models](cost.md).
* `subnormal_scales=false` makes the smallest normal number of a float scale its smallest one. `specials` of a `float(…)` names the codes
  without a number. `none` has no such code. `nan` is NaN where all bits but the sign are set. `ieee` is NaN or Inf where all exponent bits are
  set. `fnuz` is NaN in place of −0. `extended` is `fnuz`, with Inf for the largest magnitude. `nan_inf` is `nan`, with Inf in the code before.
  A scale needs `nan`, `nan_inf` or `ieee`.
* `eden=true` makes stochastic rounding MS-EDEN (arXiv 2601.22813): elements round half to even. Then the scales of 128 elements are
  corrected, and rounded stochastically.

## Scales that are floats

| scale | exponent bits | bias | mantissa bits | smallest | largest | NaN |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
";

/// A row for each float that a scale may be.
fn scales() -> String {
    let rows = ScaleFormat::NAMES.map(|name| {
        let format = format!("block(element=e2m1,scale={name},block_size=16)");
        let sheet = format.parse::<BlockFormat>().expect("a format").datasheet();
        let value = |property| {
            let mut rows = sheet.iter();
            let row = rows.find(|(known, _)| *known == property);
            &*row.expect("every float scale has it").1
        };
        let scale: ScaleFormat = name.parse().expect("a name");
        let [exponent, bias] = match scale.float() {
            Some(float) => [float.exponent_bits() as i32, 1 - float.emin()],
            None => [8, 127],
        };
        let (smallest, largest) = value("scale values").split_once(" to ").expect("a range");
        let largest = largest.trim_end_matches(", subnormal numbers included");
        let codes = value("scale codes without a number");
        let mantissa = scale.mantissa_bits();
        format!(
            "| `{name}` | {exponent} | {bias} | {mantissa} | {smallest} | {largest} | {codes} |\n"
        )
    });
    rows.concat()
}

#[test]
fn the_page_of_datasheets_is_that_of_the_formats() {
    let tables = Tables::default();
    let sheets = BlockFormat::NAMES.map(|name| {
        let format: BlockFormat = name.parse().expect("a name");
        let rows = tables.datasheet(format).into_iter();
        let rows: String = rows
            .map(|(property, value)| format!("| {property} | {} |\n", value.replace('|', "\\|")))
            .collect();
        format!("\n## `{name}`\n\n| | |\n| --- | --- |\n{rows}")
    });
    check(
        "docs/src/datasheets.md",
        &[DATASHEETS, &scales(), &sheets.concat()].concat(),
    );
}

/// The flag switches the field from its default (burn-mx-core's tests), which the page names.
#[test]
fn a_switch_names_its_default() {
    for field in MxSpecs::FIELDS.iter().filter(|field| field.value.is_none()) {
        let says = format!("Default: {}.", field.flag.starts_with("no_"));
        assert!(field.doc.contains(&says), "{}: {}", field.name, field.doc);
    }
}
