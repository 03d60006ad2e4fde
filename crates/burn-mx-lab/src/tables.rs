//! Printed tables as CSV.

use std::error::Error;

use comfy_table::{Row, Table};

/// The table with its header, a line a row.
pub fn csv(table: &Table) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let rows = table.header().into_iter().chain(table.row_iter());
    for row in rows {
        writer.write_record(Row::cell_iter(row).map(|cell| cell.content()))?;
    }
    Ok(writer.into_inner()?)
}
