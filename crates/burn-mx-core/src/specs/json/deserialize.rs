//! How serde reads [`MxSpecs`].

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::sync::Once;

use microscaling::{Headroom, Rounding, ScaleMode, SharedExpMethod};
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::specs::{ElementwiseScope, GradientOperands, MxSpecs, SpecsField, suggestion};
use crate::warnings::warn;

/// Fields of the reference that change no number: JSON and flags with them are read, and they are dropped.
pub(crate) const WITHOUT_EFFECT: [SpecsField; 2] = [
    SpecsField {
        name: "round_m",
        doc: " Rounding of optimizer state. No effect.",
        flag: "round_m",
        value: Some("ROUNDING"),
        help: "Rounding of optimizer state; has no effect",
        is_beyond_reference: false,
    },
    SpecsField {
        name: "custom_cuda",
        doc: " Whether native kernels are used. No effect.",
        flag: "custom_cuda",
        value: None,
        help: "Has no effect: native kernels always run where they exist",
        is_beyond_reference: false,
    },
];

/// Whether the process has warned that such a field is dropped.
static WARNED: [Once; WITHOUT_EFFECT.len()] = [const { Once::new() }; WITHOUT_EFFECT.len()];

/// Drops a field of the reference that changes no number, and warns once in the process. False for any other field.
fn drop_field(field: &str) -> bool {
    let Some(at) = WITHOUT_EFFECT
        .iter()
        .position(|dropped| dropped.name == field)
    else {
        return false;
    };
    WARNED[at].call_once(|| {
        warn(format_args!(
            "burn-mx: `{field}` of the reference has no effect on any number and is dropped"
        ));
    });
    true
}

impl<'de> Deserialize<'de> for MxSpecs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Specs;

        impl<'de> Visitor<'de> for Specs {
            type Value = MxSpecs;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("an object of `MxSpecs` fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MxSpecs, A::Error> {
                let mut specs = MxSpecs::default();
                let mut read = Vec::new();
                while let Some(field) = map.next_key::<String>()? {
                    if read.contains(&field) {
                        return Err(A::Error::custom(format!("duplicate field `{field}`")));
                    }
                    if drop_field(&field) {
                        map.next_value::<IgnoredAny>()?;
                    } else if !specs.read_field(&field, &mut map)? {
                        let names: Vec<_> =
                            MxSpecs::FIELDS.iter().map(|field| field.name).collect();
                        let nearest = suggestion::nearest(&field, names.iter().copied());
                        let names = names.join("`, `");
                        let unknown =
                            format!("unknown field `{field}`{nearest}; allowed: `{names}`");
                        return Err(A::Error::custom(unknown));
                    }
                    read.push(field);
                }
                Ok(specs)
            }
        }

        deserializer.deserialize_map(Specs)
    }
}

/// The value of a field.
pub(in crate::specs) trait Value: Sized {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;

    /// As the summary has it.
    fn text(&self) -> String;
}

/// A value of a field, as serde reads it.
pub(in crate::specs) struct Read<T>(pub(in crate::specs) T);

impl<'de, T: Value> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Self)
    }
}

/// `null`, "" and "none" unset a field.
impl<T: FromStr<Err: Display> + Display> Value for Option<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None | Some("" | "none") => Ok(None),
            Some(text) => match text.parse() {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(D::Error::custom(format!("{error}, or none"))),
            },
        }
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "none".into(), T::to_string)
    }
}

macro_rules! values {
    ($($type:ty)*: $read:expr) => {$(
        impl Value for $type {
            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $read(deserializer)
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

values!(bool u64: Deserialize::deserialize);
values!(u32 usize SharedExpMethod ScaleMode Rounding Headroom GradientOperands ElementwiseScope: null_is_default);

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
