//! Datasheets: block formats in words and numbers.

use super::{
    BlockFormat, ElementConversion, ElementFormat, ElementOverflow, NonFinite, SharedExpMethod,
    Shifts, Subnormals,
};
use crate::round::bits;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The most bits of an element whose numbers all stand on the datasheet.
const LISTED_BITS: u32 = 6;

impl BlockFormat {
    /// The datasheet of the format: bits, elements, scales, the rule of the scale, codes without a number. Each row is a property
    /// with its value. A property that a format lacks, such as a tensor scale, has no row.
    ///
    /// The format must be [valid](Self::validate).
    ///
    /// ```
    /// use microscaling::BlockFormat;
    ///
    /// let amdfp4: BlockFormat = "amdfp4".parse()?;
    /// let sheet = amdfp4.datasheet();
    /// let row = |name| sheet.iter().find(|(property, _)| *property == name).unwrap();
    /// assert_eq!(row("scale values").1, "2^-17 to 114688, subnormal numbers included");
    /// assert_eq!(row("scale codes without a number").1, "NaN 0xff");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn datasheet(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        let bits = format!(
            "{}, of which the element's code has {}",
            self.bits_per_element(),
            self.element_bits()
        );
        rows.push(("bits of an element", bits));
        match self.has_fixed_steps() {
            false => self.element.rows(&mut rows),
            true if self.non_finite == NonFinite::TopExponent => rows.push((
                "element",
                format!(
                    "two's complement of {} bits, in steps that the scale fixes",
                    self.element_bits()
                ),
            )),
            true => rows.push((
                "element",
                format!(
                    "a sign and a magnitude of {} bits, in steps that the scale fixes; every code is a number",
                    self.element_bits() - 1
                ),
            )),
        }
        let block = match (self.scale_block_size(), self.square) {
            (0, _) => "the whole axis".to_string(),
            (size, false) => format!("{} along the axis", counted(size, "element")),
            (size, true) => format!("{size} × {size} elements"),
        };
        rows.push(("block", block));
        if self.sign_scales {
            let text = "of the positive elements, and of the negative elements; amax is the largest magnitude of these";
            rows.push(("two scales", text.to_string()));
        }
        match (self.has_fixed_steps(), self.has_exponent()) {
            (true, _) => self.rows_of_fixed_steps(&mut rows),
            (false, true) => self.rows_of_exponent(&mut rows),
            (false, false) => self.rows_of_float_scale(&mut rows),
        }
        self.rows_of_conversion(&mut rows);
        rows
    }

    /// The switches of hardware that differ from the library.
    fn rows_of_conversion(&self, rows: &mut Vec<(&'static str, String)>) {
        let ElementConversion {
            rounding,
            random_bits,
            overflow,
            flush_outputs,
            negative_zero,
        } = self.conversion;
        if let Some(rounding) = rounding {
            rows.push(("rounding", rounding.to_string()));
        }
        if random_bits != ElementConversion::LIBRARY.random_bits {
            rows.push(("random bits", random_bits.to_string()));
        }
        if overflow != ElementOverflow::Saturate {
            rows.push(("overflow", overflow.to_string()));
        }
        let flush_inputs = self.subnormals == Subnormals::FlushElements;
        if flush_inputs && !self.has_fixed_steps() {
            rows.push(("float32 subnormals", "count as zero".to_string()));
        }
        if flush_outputs {
            rows.push(("subnormal elements", "become zero".to_string()));
        }
        if !negative_zero {
            rows.push(("−0", "becomes 0".to_string()));
        }
    }

    fn rows_of_exponent(&self, rows: &mut Vec<(&'static str, String)>) {
        let max = number(self.element.max());
        let emax = match self.element.emax() {
            0 => String::new(),
            emax @ ..0 => format!(" + {}", -emax),
            emax => format!(" − {emax}"),
        };
        let largest = -self.scale.emin();
        let name = if self.scale.bits() == 8 { "e8m0: " } else { "" };
        rows.push((
            "scale",
            format!(
                "{name}2^s, {}, stored as the byte s + 127",
                counted(self.scale.bits() as usize, "bit")
            ),
        ));
        rows.push(("scale values", format!("2^-{largest} to 2^{largest}")));
        rows.push(("scale codes without a number", "NaN 0xff".to_string()));
        let h = match self.headroom.is_none() {
            true => String::new(),
            false => format!("{} · ", self.headroom),
        };
        let rule = self
            .scale_mode
            .formula(&h, &emax, &max, self.element.mantissa_bits());
        let rule = match self.shared_exp_method {
            SharedExpMethod::Max => rule,
            SharedExpMethod::None => format!("{rule}; of each element alone"),
        };
        rows.push(("scale rule", rule));
        if self.subnormals == Subnormals::FlushBlocks {
            let text = "a block of float32 subnormals becomes zero";
            rows.push(("float32 subnormals", text.to_string()));
        }
        rows.push(nan_blocks());
    }

    fn rows_of_fixed_steps(&self, rows: &mut Vec<(&'static str, String)>) {
        rows.push(("scale", EXPONENT.to_string()));
        if let Some(shifts) = self.shifts {
            let Shifts { block_size, bits } = shifts;
            rows.push((
                "sub-scales",
                format!(
                    "a shift of 0 to {}, {}, for each {}",
                    shifts.largest(),
                    counted(bits as usize, "bit"),
                    counted(block_size, "element")
                ),
            ));
        }
        let rule = match (self.shifts, self.non_finite) {
            (Some(_), _) => {
                "the exponent of amax; a shift is the distance to the exponent of the sub-block's amax"
            }
            (None, NonFinite::OfBlock | NonFinite::Elements) => "the exponent of amax",
            (None, NonFinite::TopExponent) => {
                "the exponent of amax; one more where an element would be above the largest number, and all elements are rounded again"
            }
            (None, NonFinite::Kept) => "the exponent of the largest finite magnitude",
        };
        rows.push(("scale rule", rule.to_string()));
        if self.subnormals == Subnormals::FlushElements {
            rows.push(("float32 subnormals", "count as zero".to_string()));
        }
        rows.push(match self.non_finite {
            NonFinite::OfBlock | NonFinite::Elements => nan_blocks(),
            NonFinite::TopExponent => (
                "NaN and Inf",
                "the block has the exponent 255: ±Inf is ±2^128, NaN ±1.5 · 2^128".to_string(),
            ),
            NonFinite::Kept => (
                "NaN and Inf",
                "pass unchanged; there is no code for them".to_string(),
            ),
        });
    }

    /// The scale, its values, and its codes without a number.
    fn rows_of_scale_values(&self, rows: &mut Vec<(&'static str, String)>) {
        let scale = self.scale;
        let (what, codes) = match scale.float() {
            Some(float) => {
                let sign = match scale.is_signed() {
                    true => "a sign that no block sets",
                    false => "no sign",
                };
                let what = format!("{scale}: {sign}, {}", fields(float));
                (what, without_number(float, scale.bits()))
            }
            None => (scale.to_string(), "NaN, as float32 has them".to_string()),
        };
        let selector_bits = self.scale_bits() - scale.bits();
        let selector = match selector_bits {
            0 => String::new(),
            bits => format!(
                "; {} above it: the number of the block's table",
                counted(bits as usize, "bit")
            ),
        };
        let subnormal = match (scale.float(), self.subnormal_scales) {
            (Some(_), true) => ", subnormal numbers included",
            (Some(_), false) => ", without subnormal numbers",
            (None, _) => "",
        };
        let [min, max] = [self.scale_min(), scale.max()].map(number);
        rows.push(("scale", format!("{what}{selector}")));
        rows.push(("scale values", format!("{min} to {max}{subnormal}")));
        rows.push(("scale codes without a number", codes));
    }

    fn rows_of_float_scale(&self, rows: &mut Vec<(&'static str, String)>) {
        self.rows_of_scale_values(rows);
        let largest = number(self.largest_unit());
        let h = match self.headroom.is_none() {
            true => String::new(),
            false => format!(" · {}", self.headroom),
        };
        let t = match (self.tensor_scale, self.outer) {
            (true, _) => " / tensor scale",
            (false, Some(_)) => " / outer scale",
            (false, None) => "",
        };
        let rounded = match self.scale.float() {
            Some(_) => ", limited to the scale's values and rounded half to even",
            None => "",
        };
        let second = match self.four_over_six {
            true => ", or 1.5 times as much where the squared error is less (`four_over_six`)",
            false => "",
        };
        rows.push((
            "scale rule",
            format!("amax / {largest}{t}{h}{second}{rounded}"),
        ));
        if let Some(sub_scales) = self.sub_scales {
            let [first, second] = sub_scales.block_sizes();
            let text = format!(
                "a bit for each {first} elements and a bit for each {second} of these double the scale"
            );
            rows.push(("sub-scales", text));
        }
        let of_part = number(self.tensor_max());
        if self.tensor_scale {
            let text = format!("float32, amax of the tensor / {of_part}{h}");
            rows.push(("tensor scale", text));
        }
        if let Some(outer) = self.outer {
            let part = match outer.size {
                0 => "the whole axis".to_string(),
                size => format!("each {size} elements"),
            };
            let text = format!("{} for {part}: amax of these / {of_part}{h}", outer.scale);
            rows.push(("outer scale", text));
        }
        if self.eden {
            let text = "stochastic rounding is MS-EDEN: elements half to even, corrected scales stochastically";
            rows.push(("stochastic rounding", text.to_string()));
        }
        if self.non_finite == NonFinite::Elements {
            let text = "are elements, which the scale does not count";
            rows.push(("NaN and Inf", text.to_string()));
            return;
        }
        rows.push(match (self.tensor_scale, self.outer) {
            (true, _) => {
                let text = "make every element of the tensor NaN";
                ("NaN and Inf", text.to_string())
            }
            (false, Some(_)) => {
                let text = "make every element of the outer scale's part NaN";
                ("NaN and Inf", text.to_string())
            }
            (false, None) => nan_blocks(),
        });
    }
}

impl ElementFormat {
    fn rows(self, rows: &mut Vec<(&'static str, String)>) {
        let tables = self.table_numbers();
        let name = self.to_string();
        let what = if !tables.is_empty() {
            // The text of a table without a name has its numbers.
            let name = if name.contains(' ') { "table" } else { &name };
            let each = match tables.len() {
                1 => "a table".to_string(),
                several => format!("{several} tables, the better one for each block,"),
            };
            format!("{name}: {each} of {} numbers", tables[0].len())
        } else if self.is_integer() {
            let fraction_bits = -bits::exponent(self.min_subnormal().to_bits());
            format!(
                "{name}: two's complement of {} bits, {fraction_bits} of them fraction bits",
                self.bits()
            )
        } else {
            let sign = match self.is_unsigned() {
                true => "no sign",
                false => "a sign",
            };
            format!("{name}: {sign}, {}", fields(self))
        };
        rows.push(("element", what));
        let values = if !tables.is_empty() {
            let lists = tables.iter().map(|numbers| list(numbers.iter().copied()));
            lists.collect::<Vec<_>>().join(" | ")
        } else {
            let magnitudes = (0..self.sign_bit()).map(|code| self.decode(code));
            let magnitudes = magnitudes.filter(|value| value.is_finite());
            match self.bits() <= LISTED_BITS {
                true if self.is_unsigned() => list(magnitudes),
                true => format!("± {}", list(magnitudes)),
                false => {
                    let [min, max] = [self.min_subnormal(), self.max()].map(number);
                    let normal = number(f32::from_bits(bits::pow2(self.emin())));
                    match self.is_integer() {
                        true => format!("±{max} in steps of {min}"),
                        false if self.is_unsigned() => {
                            format!(
                                "{min} (subnormal), {normal} (normal) to {max}; numbers below 0 become 0"
                            )
                        }
                        false => format!("±{min} (subnormal), ±{normal} (normal) to ±{max}"),
                    }
                }
            }
        };
        rows.push(("element values", values));
        let codes = match tables.is_empty() {
            true => without_number(self, self.bits()),
            false => "none".to_string(),
        };
        rows.push(("element codes without a number", codes));
    }
}

/// The scale of block floating point and microexponents.
const EXPONENT: &str = "the biased exponent of a float32, a byte";

/// The row of formats whose blocks become NaN.
fn nan_blocks() -> (&'static str, String) {
    let text = "make every element of their block NaN";
    ("NaN and Inf", text.to_string())
}

/// A number of things.
fn counted(count: usize, name: &str) -> String {
    match count {
        1 => format!("1 {name}"),
        _ => format!("{count} {name}s"),
    }
}

/// The fields of a float behind its sign.
fn fields(float: ElementFormat) -> String {
    let [exponent, mantissa] = [float.exponent_bits(), float.mantissa_bits()];
    let bias = 1 - float.emin();
    let [exponent, mantissa] = [(exponent, "exponent bit"), (mantissa, "mantissa bit")]
        .map(|(count, name)| counted(count as usize, name));
    format!("{exponent} (bias {bias}), {mantissa}")
}

/// The codes of this number of bits that are NaN or Inf.
fn without_number(element: ElementFormat, bits: u32) -> String {
    let width = 2 + bits.div_ceil(4) as usize;
    let mut found: Vec<String> = Vec::new();
    for (name, is_it) in [
        ("Inf", f32::is_infinite as fn(f32) -> bool),
        ("NaN", f32::is_nan),
    ] {
        let mut runs: Vec<[u32; 2]> = Vec::new();
        for code in (0..1 << bits).filter(|code| is_it(element.decode(*code))) {
            match runs.last_mut() {
                Some([_, last]) if *last + 1 == code => *last = code,
                _ => runs.push([code, code]),
            }
        }
        let runs = runs.into_iter().map(|[first, last]| match first == last {
            true => format!("{first:#0width$x}"),
            false => format!("{first:#0width$x} to {last:#0width$x}"),
        });
        let runs: Vec<String> = runs.collect();
        if !runs.is_empty() {
            found.push(format!("{name} {}", runs.join(", ")));
        }
    }
    match found.is_empty() {
        true => "none".to_string(),
        false => found.join("; "),
    }
}

fn list(numbers: impl Iterator<Item = f32>) -> String {
    let numbers = numbers.map(|value| value.to_string());
    numbers.collect::<Vec<_>>().join(", ")
}

/// A number as people write it: small and large powers of two as such.
fn number(value: f32) -> String {
    let exponent = bits::exponent(value.to_bits());
    let is_power = bits::parts(value.to_bits()).0.is_power_of_two();
    match value {
        _ if is_power && !(-3..=12).contains(&exponent) => format!("2^{exponent}"),
        _ if value >= 1e7 => format!("{value:.2e}"),
        _ => value.to_string(),
    }
}
