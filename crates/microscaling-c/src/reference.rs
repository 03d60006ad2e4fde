//! A format, and an accumulator, as source text.

use crate::error::ReferenceError;
use crate::subject::Subject;
use crate::template::{Values, rendered};
use crate::{elements, p3109, scales, sums};
use microscaling::ElementConversion;
use microscaling_product::{Accumulation, Accumulator};

/// A format as a model in C.
///
/// ```
/// use microscaling_c::Reference;
///
/// let reference = Reference::new("mxfp4".parse()?)?;
/// assert!(reference.header().contains("mxfp4_quantize_block"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Reference {
    subject: Subject,
    prefix: String,
    accumulator: Option<(Accumulation, Accumulator)>,
    values: Values,
}

impl Reference {
    /// The model of a format. Functions have the format's text as [prefix](Self::with_prefix), with `_` for each character that C does
    /// not allow in a name.
    ///
    /// # Errors
    /// * [`ReferenceError::Part`]: elements by tables, outer scales, sub-scales, four over six, MS-EDEN, or blocks of more than 65536
    ///   elements.
    /// * [`ReferenceError::Format`]: the format is not valid.
    pub fn new(subject: Subject) -> Result<Self, ReferenceError> {
        let mut values = Values::default();
        values.set("p3109", matches!(subject, Subject::P3109(_)));
        values.set("block", matches!(subject, Subject::Block(_)));
        values.set("accumulator", false);
        match subject {
            Subject::Block(format) => scales::set(&mut values, &format)?,
            Subject::Element(element) => {
                let conversion = ElementConversion::LIBRARY;
                elements::set(&mut values, element, &conversion, &element.to_string())?;
                values.set("tensor_scale", false);
                values.set("flush_inputs", false);
            }
            Subject::P3109(format) => p3109::set(&mut values, format),
        }
        Ok(Self {
            subject,
            prefix: name_of(&subject.to_string()),
            accumulator: None,
            values,
        })
    }

    /// The same model with the dot product of two rows, summed by the accumulator for such operands.
    ///
    /// # Errors
    /// * [`ReferenceError::Accumulator`]: the chip has no unit for such operands, or the accumulator's fields do not fit the blocks.
    /// * [`ReferenceError::Part`]: some numbers of the format have other factors than an element and a scale.
    pub fn with_accumulator(mut self, accumulation: Accumulation) -> Result<Self, ReferenceError> {
        let accumulator = sums::of(&accumulation, self.subject)?;
        let element = match self.subject {
            Subject::Block(format) => format.element,
            Subject::Element(element) => element,
            Subject::P3109(_) => unreachable!("there are no operands of P3109"),
        };
        self.values.set("accumulator", true);
        sums::set(&mut self.values, &accumulator, element);
        self.accumulator = Some((accumulation, accumulator));
        Ok(self)
    }

    /// The same model with another prefix: `fp8` makes `fp8_decode_element` and `FP8_NAN`.
    ///
    /// # Errors
    /// [`ReferenceError::Prefix`] unless the prefix has letters, digits and `_` alone, and starts with a letter.
    pub fn with_prefix(mut self, prefix: &str) -> Result<Self, ReferenceError> {
        let is_name = prefix.starts_with(|first: char| first.is_ascii_alphabetic())
            && prefix
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            return Err(ReferenceError::Prefix {
                got: prefix.to_owned(),
            });
        }
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// The prefix of every name.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The C99 header: one text for each format, accumulator and prefix.
    pub fn header(&self) -> String {
        self.text("c/header.h", &[])
    }

    /// The model of elements and blocks in plain SystemVerilog: a package with the prefix as its name, and modules. Sums are left out.
    ///
    /// # Errors
    /// [`ReferenceError::Part`] of blocks as long as an axis: a bit vector has a length.
    pub fn systemverilog(&self) -> Result<String, ReferenceError> {
        self.check_length()?;
        Ok(self.text("sv/package.sv", &[]))
    }

    /// The header's functions for SystemVerilog's DPI: a package with imports, and a C source that includes the file `header`. A
    /// simulator compiles the source, whose file is `source`. Rows of a dot product have at most
    /// [`DPI_ELEMENTS`](Self::DPI_ELEMENTS) elements.
    ///
    /// # Errors
    /// [`ReferenceError::Part`] of blocks as long as an axis: a bit vector has a length.
    pub fn dpi(&self, header: &str, source: &str) -> Result<[String; 2], ReferenceError> {
        self.check_length()?;
        let names = [("header", header), ("source", source)];
        Ok(["sv/dpi.sv", "sv/dpi.c"].map(|template| self.text(template, &names)))
    }

    /// The most elements of a row that DPI sums up.
    pub const DPI_ELEMENTS: usize = sums::DPI_ELEMENTS;

    fn check_length(&self) -> Result<(), ReferenceError> {
        match self.subject {
            Subject::Block(format) if format.group_size() == 0 => Err(ReferenceError::Part {
                format: format.to_string(),
                part: "block_size",
                got: "0".into(),
                allowed: "at least 1: a vector of SystemVerilog has a length",
            }),
            _ => Ok(()),
        }
    }

    fn text(&self, template: &str, names: &[(&'static str, &str)]) -> String {
        let mut values = self.values.clone();
        for (name, value) in names {
            values.set(name, *value);
        }
        values.set("prefix", self.prefix.as_str());
        values.set("title", format!("{} in integers", self.subject));
        values.set("command", self.command());
        values.set("version", env!("CARGO_PKG_VERSION"));
        values.set(
            "guard",
            format!("{}_REFERENCE_H", self.prefix.to_ascii_uppercase()),
        );
        rendered(template, &self.prefix, &values)
    }

    /// The command that writes the text.
    fn command(&self) -> String {
        let mut command = format!("microscaling c-reference '{}'", self.subject);
        if let Some((accumulation, _)) = &self.accumulator {
            command += &format!(" --accumulator '{accumulation}'");
        }
        if self.prefix != name_of(&self.subject.to_string()) {
            command += &format!(" --prefix {}", self.prefix);
        }
        command
    }
}

/// A format's text as a name of C.
fn name_of(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = text.chars().map(kept).collect();
    name.trim_end_matches('_').to_owned()
}
