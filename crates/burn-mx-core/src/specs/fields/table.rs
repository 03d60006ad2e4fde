//! The code that follows from the table of [`MxSpecs`](crate::specs::MxSpecs).

/// The description of a field of [`MxSpecs`](crate::specs::MxSpecs), beside its type.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SpecsField {
    /// The field's name, in Rust and in JSON.
    pub name: &'static str,
    /// The field's meaning, values and default, in Markdown.
    pub doc: &'static str,
    /// The name of its command-line flag, with `_` between words: the field's name, with `no_` before if the flag makes
    /// the field false, or `mx_seed`.
    pub flag: &'static str,
    /// The name of the flag's value; `None` for a switch.
    pub value: Option<&'static str>,
    /// One line about the flag.
    pub help: &'static str,
    /// Whether the reference has no such field.
    pub is_beyond_reference: bool,
}

/// Makes [`MxSpecs`](crate::specs::MxSpecs) of its table, see `fields.rs`.
macro_rules! specs_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Specs:ident;
        $(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $default:expr,
                $flag:ident($($word:literal),+) $(, or($other:ident))? $(, beyond($remark:literal))?;
        )+
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        $vis struct $Specs {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for $Specs {
            /// Nothing set: no emulation.
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $Specs {
            /// Every field, in the order in which JSON has them.
            pub const FIELDS: &'static [$crate::specs::SpecsField] = &[$($crate::specs::SpecsField {
                name: stringify!($field),
                doc: concat!($($doc),+),
                flag: specs_table!(@flag $flag $field),
                value: specs_table!(@value $flag $($word)+),
                help: specs_table!(@help $($word)+),
                is_beyond_reference: specs_table!(@is $($remark)?),
            }),+];

            /// The specs with every field that is not set in place of which another field counts.
            pub(in crate::specs) fn with_others(mut self) -> Self {
                $($(self.$field = self.$field.or(self.$other.into());)?)+
                self
            }

            /// The summary's text for fields that are not at their default.
            pub(in crate::specs) fn remarks(&self) -> Vec<String> {
                use crate::specs::json::deserialize::Value;
                let default = Self::default();
                let mut remarks = Vec::new();
                $($(
                    if !$remark.is_empty() && self.$field != default.$field {
                        let remark = $remark.replace("{}", &self.$field.text());
                        // The text of some values begins with the word, too.
                        remarks.push(remark.replace("accumulator accumulator(", "accumulator("));
                    }
                )?)+
                remarks
            }
        }

        impl serde::Serialize for $Specs {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let default = Self::default();
                let leaves_out = [$(specs_table!(@is $($remark)?) && self.$field == default.$field),+];
                let written = leaves_out.iter().filter(|leaves_out| !**leaves_out).count();
                let mut fields = serializer.serialize_struct(stringify!($Specs), written)?;
                let mut leaves_out = leaves_out.into_iter();
                $(match leaves_out.next() {
                    Some(false) => fields.serialize_field(stringify!($field), &self.$field)?,
                    _ => fields.skip_field(stringify!($field))?,
                })+
                fields.end()
            }
        }

        impl $Specs {
            /// Reads the value of a field from a map. Returns false if `MxSpecs` does not have the field.
            pub(in crate::specs) fn read_field<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                field: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match field {
                    $(stringify!($field) => self.$field = map.next_value::<crate::specs::json::deserialize::Read<$type>>()?.0,)+
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };

    (@flag value seed) => { "mx_seed" };
    (@flag off $field:ident) => { concat!("no_", stringify!($field)) };
    (@flag $flag:ident $field:ident) => { stringify!($field) };
    (@value value $value:literal $help:literal) => { Some($value) };
    (@value $switch:ident $help:literal) => { None };
    (@help $help:literal) => { $help };
    (@help $value:literal $help:literal) => { $help };
    (@is $remark:literal) => { true };
    (@is) => { false };
}

pub(super) use specs_table;
