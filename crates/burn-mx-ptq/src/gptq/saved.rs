//! Layers that GPTQ has quantized, as files.
//!
//! A file has scales and elements of the packed weight `[outputs, inputs]`, in the basis in which the weight was quantized. Its
//! fingerprint covers the settings, the specs, the weight before, and the Hessian.

use microscaling::safetensors::{PackedFile, store};
use microscaling::{BlockFormat, Packed};

use super::grid::WeightFormat;
use super::{Gptq, Solved};
use crate::resume::{Fingerprint, Finished};
use burn_mx_core::ResolvedSpecs;

/// The fingerprint of everything that quantizing a layer depends on.
pub(super) fn fingerprint(
    layer: &str,
    config: &Gptq,
    (specs, format): (&ResolvedSpecs, WeightFormat),
    weight: &[f32],
    hessian: &[f64],
) -> Fingerprint {
    let texts = [
        layer.to_owned(),
        format!("{config:?}"),
        specs.specs().to_json(),
    ];
    // Files of weights with scales of their own keep their fingerprints.
    let print = match format.largest {
        Some(largest) => Fingerprint::new().with(&largest.to_le_bytes()),
        None => Fingerprint::new(),
    };
    let print = texts
        .iter()
        .fold(print, |print, text| print.with(text.as_bytes()));
    let bytes: Vec<u8> = weight.iter().flat_map(|x| x.to_le_bytes()).collect();
    let print = print.with(&bytes);
    drop(bytes);
    hessian
        .chunks(weight.len().max(1))
        .fold(print, |print, part| {
            let bytes: Vec<u8> = part.iter().flat_map(|x| x.to_le_bytes()).collect();
            print.with(&bytes)
        })
}

/// A quantized layer, to be saved.
pub(super) fn finished(solved: &Solved) -> Finished {
    Finished {
        report: vec![solved.error_nearest.to_bits(), solved.error.to_bits()],
        tensors: store(NAME, &solved.packed.view()),
    }
}

const NAME: &str = "weight";

/// A quantized layer out of a file, with a weight of this format and shape.
pub(super) fn read(
    format: BlockFormat,
    shape: [usize; 2],
    report: &[u64],
    file: &PackedFile<'_>,
) -> Option<Solved> {
    let &[error_nearest, error] = report else {
        return None;
    };
    let bytes = |part: &str| {
        let stored = file.tensor(&format!("{NAME}.{part}"))?;
        Some(stored.bytes.to_vec())
    };
    let tensor_scale = match bytes("tensor_scale") {
        Some(bytes) => Some(f32::from_le_bytes(bytes.try_into().ok()?)),
        None => None,
    };
    let (scales, elements) = (bytes("scales")?, bytes("elements")?);
    let packed = Packed::from_parts(format, &shape, 1, tensor_scale, scales, elements);
    Some(Solved {
        packed: packed.ok()?,
        error_nearest: f64::from_bits(error_nearest),
        error: f64::from_bits(error),
    })
}
