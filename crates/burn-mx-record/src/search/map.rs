//! A found recipe as a map: layers by operands of products, colored by format.

use std::error::Error;

use burn_mx_core::Slot;
use plotters::prelude::*;

use super::{Found, FoundPlace};
use burn_mx_core::hooks::ProductKind;

/// The operands of a layer's products: product, slot, name.
const COLUMNS: [(ProductKind, Slot, &str); 6] = [
    (ProductKind::Forward, Slot::A, "input"),
    (ProductKind::Forward, Slot::W, "weight"),
    (ProductKind::InputGradient, Slot::ABpOs, "gradient"),
    (ProductKind::InputGradient, Slot::WBp, "weight"),
    (ProductKind::WeightGradient, Slot::ABp, "input"),
    (ProductKind::WeightGradient, Slot::ABpEx, "gradient"),
];
/// Pixels of a cell, and of the names of layers and columns.
const CELL: (i32, i32) = (84, 22);
const NAMES: i32 = 330;
const HEADING: i32 = 76;

impl Found {
    /// A map as SVG: a row for each layer, a column for each operand of its products that has a place, colored by format. Wider formats are darker.
    ///
    /// # Errors
    ///
    /// If the map cannot be drawn.
    pub fn map(&self) -> Result<String, Box<dyn Error>> {
        let mut layers: Vec<&str> = Vec::new();
        for FoundPlace { place, .. } in &self.places {
            if !layers.contains(&place.layer.as_str()) {
                layers.push(&place.layer);
            }
        }
        let has_place = |column: &(ProductKind, Slot, &str)| {
            let mut places = self.places.iter();
            places.any(|found| found.place.slot == column.1)
        };
        let columns: Vec<_> = COLUMNS.into_iter().filter(has_place).collect();
        let mut formats: Vec<(&str, f64)> = self
            .uniform
            .iter()
            .map(|(name, total)| (name.as_str(), total.bits))
            .collect();
        formats.sort_by(|a, b| a.1.total_cmp(&b.1));
        // From light to dark, by the order of the bits.
        let color = |format: &str| {
            let at = formats.iter().position(|(name, _)| *name == format);
            let share = at.unwrap_or(0) as f64 / (formats.len().max(2) - 1) as f64;
            HSLColor(0.58, 0.65, 0.88 - 0.58 * share)
        };
        // As wide with few columns: the legend needs the room.
        let width = NAMES + CELL.0 * COLUMNS.len() as i32 + 20;
        let height = HEADING + CELL.1 * layers.len() as i32 + 50;
        let mut svg = String::new();
        {
            let size = (width as u32, height as u32);
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            root.fill(&WHITE)?;
            let text = |text: String, at: (i32, i32), size: i32| {
                Text::new(text, at, ("sans-serif", size).into_font())
            };
            for (at, (kind, _, name)) in columns.iter().enumerate() {
                let left = NAMES + CELL.0 * at as i32;
                // Above the first column of a product.
                if at == 0 || columns[at - 1].0 != *kind {
                    root.draw(&text(kind.to_string(), (left, 34), 14))?;
                }
                root.draw(&text((*name).to_owned(), (left, 54), 13))?;
            }
            let title = format!("{:.2} bits of an element", self.total.bits);
            root.draw(&text(title, (10, 10), 16))?;
            for (row, layer) in layers.iter().enumerate() {
                let top = HEADING + CELL.1 * row as i32;
                root.draw(&text((*layer).to_owned(), (10, top + 4), 13))?;
                for (at, (kind, slot, _)) in columns.iter().enumerate() {
                    let left = NAMES + CELL.0 * at as i32;
                    let is_it = |found: &&FoundPlace| {
                        let place = &found.place;
                        (place.layer.as_str(), place.product, place.slot) == (*layer, *kind, *slot)
                    };
                    let Some(found) = self.places.iter().find(is_it) else {
                        continue;
                    };
                    let corners = [(left, top), (left + CELL.0 - 3, top + CELL.1 - 3)];
                    root.draw(&Rectangle::new(corners, color(&found.format).filled()))?;
                }
            }
            let top = HEADING + CELL.1 * layers.len() as i32 + 14;
            let step = (width - 20) / formats.len().max(1) as i32;
            for (at, (name, bits)) in formats.iter().enumerate() {
                let left = 10 + step * at as i32;
                let corners = [(left, top), (left + 18, top + 18)];
                root.draw(&Rectangle::new(corners, color(name).filled()))?;
                root.draw(&text(
                    format!("{name}, {bits:.2} bits"),
                    (left + 26, top + 3),
                    13,
                ))?;
            }
            root.present()?;
        }
        Ok(svg)
    }
}
