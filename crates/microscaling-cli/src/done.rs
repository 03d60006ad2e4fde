//! The result of a command, as text, JSON or CSV.

use crate::error::Error;
use comfy_table::{Row, Table};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// How results are printed.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Form {
    /// Print the result as a JSON object: each table as a list of rows
    #[arg(long, global = true)]
    json: bool,
    /// Print the tables of the result as CSV, with an empty line between two of them
    #[arg(long, global = true, conflicts_with = "json")]
    csv: bool,
}

impl Form {
    /// JSON.
    pub(crate) const JSON: Self = Self {
        json: true,
        csv: false,
    };

    /// Whether the result is not printed as text.
    pub(crate) const fn is_given(&self) -> bool {
        self.json || self.csv
    }
}

/// The output of a command, and the exit status of the process.
#[derive(Default)]
pub(crate) struct Done {
    text: String,
    tables: Vec<(&'static str, Table)>,
    facts: Map<String, Value>,
    pub(crate) status: u8,
}

impl Done {
    /// Adds a table, which JSON has by this name. Text leaves out a table without rows.
    pub(crate) fn table(&mut self, name: &'static str, table: Table) {
        if table.row_count() > 0 {
            self.text += &format!("{table}\n");
        }
        self.tables.push((name, table));
    }

    /// Adds a table, which CSV leaves out if the table has no row.
    pub(crate) fn table_of_some(&mut self, name: &'static str, table: Table) {
        match table.row_count() {
            0 => self.fact(name, Value::Array(Vec::new())),
            _ => self.table(name, table),
        }
    }

    /// Adds text, which JSON and CSV have not.
    pub(crate) fn text(&mut self, text: impl AsRef<str>) {
        self.text += text.as_ref();
    }

    /// Adds what JSON has beside the tables.
    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    /// Adds the files that a command wrote, as text and as a fact.
    pub(crate) fn files(&mut self, files: &[PathBuf]) {
        let files: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        self.text += &format!("{}\n", files.join("\n"));
        self.fact("files", files);
    }

    /// The text to print.
    pub(crate) fn print(mut self, form: &Form) -> Result<String, Error> {
        if form.csv {
            let tables = self.tables.iter().map(|(_, table)| csv(table));
            return Ok(tables.collect::<Result<Vec<_>, _>>()?.join("\n"));
        }
        if form.json {
            for (name, table) in &self.tables {
                self.facts.insert((*name).to_owned(), json(table));
            }
            return Ok(
                serde_json::to_string_pretty(&self.facts).expect("it has no maps but by text")
            );
        }
        Ok(self.text)
    }
}

/// The number of weights, in words.
pub(crate) fn counted(count: usize) -> String {
    match count {
        1 => "1 weight".into(),
        count => format!("{count} weights"),
    }
}

/// The texts of a row.
fn cells(row: &Row) -> Vec<String> {
    row.cell_iter().map(|cell| cell.content()).collect()
}

fn header(table: &Table) -> Vec<String> {
    table.header().map(cells).unwrap_or_default()
}

fn csv(table: &Table) -> Result<String, Error> {
    let mut writer = csv::WriterBuilder::new()
        .flexible(true)
        .from_writer(Vec::new());
    let rows = [header(table)]
        .into_iter()
        .chain(table.row_iter().map(cells));
    let written = rows
        .into_iter()
        .try_for_each(|row| writer.write_record(row));
    written.map_err(|error| Error::Arguments(error.to_string()))?;
    let bytes = writer.into_inner().expect("memory can be written to");
    Ok(String::from_utf8(bytes).expect("cells are UTF-8"))
}

/// The rows as objects. A field is its column's title in lower case, with `_` between words.
fn json(table: &Table) -> Value {
    let names = header(table);
    let names: Vec<_> = names
        .iter()
        .map(|name| name.to_lowercase().replace(' ', "_"))
        .collect();
    let row = |row: &Row| {
        let values = cells(row).into_iter().enumerate();
        // The first column is a name, with any characters.
        let values = values.map(|(column, cell)| {
            if column == 0 {
                cell.into()
            } else {
                value(cell)
            }
        });
        names
            .iter()
            .cloned()
            .zip(values)
            .collect::<Map<_, _>>()
            .into()
    };
    Value::Array(table.row_iter().map(row).collect())
}

/// A number as a number, `-` as null.
fn value(cell: String) -> Value {
    match serde_json::from_str::<Value>(&cell) {
        Ok(number @ Value::Number(_)) => number,
        _ if cell == "-" => Value::Null,
        _ => cell.into(),
    }
}
