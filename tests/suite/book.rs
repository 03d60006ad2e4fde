//! The page of the book that is generated: the fields of the specs.
//!
//! `MX_WRITE_BOOK=1 cargo test --release --test suite book::` writes the page anew.

use std::path::Path;

use burn_mx::{MxSpecs, SpecsField};

const BEFORE: &str = "\
# Fields of the specs

<!-- Generated from the table in crates/burn-mx-core/src/specs/fields.rs: see tests/suite/book.rs. -->

`MxSpecs` has these fields. A field has the same name in Rust and in JSON. The flag is what [`MxArgs`](formats.md#specs) (feature `clap`)
adds to a program; a flag without a value switches the field from its default. [Formats](formats.md) lists what a FORMAT may be, and
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/src/fields.md");
    if std::env::var_os("MX_WRITE_BOOK").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        written == page,
        "docs/src/fields.md is out of date: run `MX_WRITE_BOOK=1 cargo test --release --test suite book::`"
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
