//! The text of templates with the values of a format.

use minijinja::{Environment, UndefinedBehavior, Value};
use std::collections::BTreeMap;

/// The values of a format, by the names that templates have for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values(BTreeMap<&'static str, Value>);

impl Values {
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.insert(name, value.into());
    }

    /// A pattern, in hexadecimal digits.
    pub(crate) fn hex(&mut self, name: &'static str, pattern: u32) {
        self.set(name, format!("{pattern:x}"));
    }
}

macro_rules! templates {
    ($($name:literal),+ $(,)?) => {
        /// The name and the text of each template.
        const TEMPLATES: &[(&str, &str)] = &[$(($name, include_str!(concat!("templates/", $name)))),+];
    };
}

templates! {
    "c/header.h",
    "c/constants.h",
    "c/numbers.h",
    "c/element.h",
    "c/products.h",
    "c/power_scale.h",
    "c/power_block.h",
    "c/fixed_block.h",
    "c/top_block.h",
    "c/float_scale.h",
    "c/float_block.h",
    "c/sums.h",
    "c/joint.h",
    "c/late.h",
    "c/exact.h",
    "c/pairs.h",
    "c/fma.h",
    "c/integer.h",
    "c/dot.h",
    "c/p3109.h",
    "sv/package.sv",
    "sv/numbers.sv",
    "sv/element.sv",
    "sv/products.sv",
    "sv/scale.sv",
    "sv/block_modules.sv",
    "sv/element_modules.sv",
    "sv/p3109.sv",
    "sv/p3109_modules.sv",
    "sv/dpi.sv",
    "sv/dpi.c",
}

/// The names that templates have for the prefix of functions, types and constants.
const PREFIXES: [&str; 2] = ["mx_", "MX_"];

/// A template with these values. Functions and constants have this prefix.
pub(crate) fn rendered(name: &str, prefix: &str, values: &Values) -> String {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, text) in TEMPLATES {
        environment
            .add_template_owned(*name, prefixed(text, prefix))
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
    let template = environment.get_template(name);
    let text = template.and_then(|template| template.render(&values.0));
    let text = text.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    text + "\n"
}

/// The text of a template with this prefix. Values come later, and keep their text.
fn prefixed(text: &str, prefix: &str) -> String {
    const UPPER: &str = "\u{1}";
    let text = text.replace(PREFIXES[1], UPPER);
    let text = text.replace(PREFIXES[0], &format!("{prefix}_"));
    text.replace(UPPER, &format!("{}_", prefix.to_ascii_uppercase()))
}
