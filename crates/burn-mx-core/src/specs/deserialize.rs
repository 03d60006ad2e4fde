//! How serde reads [`MxSpecs`].

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::sync::Once;

use microscaling::{Accumulation, Headroom, Rounding, ScaleMode, SharedExpMethod};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{GradientOperands, Hadamard, MxSpecs, SlotFormat};

/// Fields of the reference that change no number, and whether the process has logged that they are dropped.
static WITHOUT_EFFECT: [(&str, Once); 2] = [("round_m", Once::new()), ("custom_cuda", Once::new())];

/// Drops a field of the reference that changes no number, and logs this once in the process. False for any other field.
fn drop_field(field: &str) -> bool {
    let Some((_, logged)) = WITHOUT_EFFECT.iter().find(|(name, _)| *name == field) else {
        return false;
    };
    logged.call_once(|| {
        log::warn!("burn-mx: `{field}` of the reference has no effect on any number and is dropped")
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

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<MxSpecs, A::Error> {
                Fields::deserialize(MapAccessDeserializer::new(Kept(fields)))
            }
        }

        deserializer.deserialize_map(Specs)
    }
}

/// The entries of a map, without those that are dropped.
struct Kept<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Kept<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<String>()? {
            if !drop_field(&key) {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

/// The fields of [`MxSpecs`], and how each is read. The compiler refuses one too few or too many.
#[derive(Deserialize)]
#[serde(remote = "MxSpecs", default = "MxSpecs::default", deny_unknown_fields)]
struct Fields {
    #[serde(deserialize_with = "null_is_default")]
    scale_bits: u32,
    #[serde(deserialize_with = "unset_or")]
    w_elem_format: Option<SlotFormat>,
    #[serde(deserialize_with = "unset_or")]
    a_elem_format: Option<SlotFormat>,
    #[serde(deserialize_with = "unset_or")]
    w_elem_format_bp: Option<SlotFormat>,
    #[serde(deserialize_with = "unset_or")]
    a_elem_format_bp: Option<SlotFormat>,
    #[serde(deserialize_with = "unset_or")]
    a_elem_format_bp_ex: Option<SlotFormat>,
    #[serde(deserialize_with = "unset_or")]
    a_elem_format_bp_os: Option<SlotFormat>,
    mx_flush_fp32_subnorms: bool,
    #[serde(deserialize_with = "null_is_default")]
    shared_exp_method: SharedExpMethod,
    #[serde(deserialize_with = "null_is_default")]
    scale_mode: ScaleMode,
    #[serde(deserialize_with = "null_is_default")]
    block_size: usize,
    #[serde(deserialize_with = "null_is_default")]
    bfloat: u32,
    #[serde(deserialize_with = "null_is_default")]
    fp: u32,
    bfloat_subnorms: bool,
    quantize_backprop: bool,
    #[serde(deserialize_with = "null_is_default")]
    round: Rounding,
    #[serde(deserialize_with = "unset_or")]
    round_weight: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_output: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_grad_weight: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_grad_input: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_mx_output: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_mx_input_grad_input: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_mx_weight_grad_input: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_mx_grad_output_grad_input: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_mx_input_grad_weight: Option<Rounding>,
    #[serde(deserialize_with = "unset_or")]
    round_mx_grad_output_grad_weight: Option<Rounding>,
    softmax_exp2: bool,
    vec_use_exp2: bool,
    vec_use_recip: bool,
    #[serde(deserialize_with = "null_is_default")]
    hadamard_block_size: usize,
    #[serde(deserialize_with = "unset_or")]
    hadamard_forward: Option<Hadamard>,
    #[serde(deserialize_with = "unset_or")]
    hadamard_input_grad: Option<Hadamard>,
    #[serde(deserialize_with = "unset_or")]
    hadamard_weight_grad: Option<Hadamard>,
    #[serde(deserialize_with = "null_is_default")]
    headroom_bp: Headroom,
    #[serde(deserialize_with = "null_is_default")]
    gradient_operands: GradientOperands,
    mask_clipped: bool,
    #[serde(deserialize_with = "unset_or")]
    accumulator: Option<Accumulation>,
    #[serde(deserialize_with = "unset_or")]
    accumulator_forward: Option<Accumulation>,
    #[serde(deserialize_with = "unset_or")]
    accumulator_input_grad: Option<Accumulation>,
    #[serde(deserialize_with = "unset_or")]
    accumulator_weight_grad: Option<Accumulation>,
    quantize_matmul: bool,
    quantize_constants: bool,
    quantize_loss: bool,
    seed: u64,
}

/// `null`, "" and "none" unset a field.
fn unset_or<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("" | "none") => Ok(None),
        Some(text) => match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(D::Error::custom(format!("{error}, or none"))),
        },
    }
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
