//! Bytes that somebody made to do harm: errors at worst.

use super::random::Random;
use microscaling::safetensors::{load, save};
use microscaling::{
    BlockFormat, Packed, PackedView, Rounder, StoredType, StoredView, WeightLayout,
};
use std::collections::BTreeMap;

/// Bytes for the readers, random or mutated: no reader panics.
pub(crate) fn bytes(random: &mut Random) {
    match random.below(4) {
        0 => parts(random),
        1 => layouts(random),
        _ => files(random),
    }
}

fn any_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.word() as u8).collect()
}

/// All lengths, some of which no memory has.
fn any_length(random: &mut Random) -> usize {
    match random.below(8) {
        0 => 0,
        1 => usize::MAX >> random.below(4),
        2 => 1 << random.below(64),
        _ => 1 + random.below(40),
    }
}

fn read(view: &PackedView<'_>, random: &mut Random) {
    let decoded = view.decode();
    assert_eq!(decoded.len(), view.codes().len());
    let rows = view.rows();
    if let Some(width) = decoded.len().checked_div(rows) {
        let mut row = vec![0.0_f32; width];
        let at = random.below(rows);
        view.decode_into(at..at + 1, &mut row)
            .expect("the row is there");
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&row), bits(&decoded[at * width..][..width]));
    }
    let (again, _) = (view.to_packed(), view.difference(view));
    assert_eq!(again.view(), *view);
    let _ = (view.scales_shape(), view.elements_shape());
}

/// Any bytes as scales and elements, of the right lengths or others.
fn parts(random: &mut Random) {
    let format = random.format();
    let rank = random.below(4);
    let small = random.one_in(2);
    let shape: Vec<usize> = (0..rank)
        .map(|_| match small {
            true => random.below(20),
            false => any_length(random),
        })
        .collect();
    let axis = random.below(rank + 1);
    let elements: u128 = shape.iter().map(|length| *length as u128).product();
    let lengths = match elements <= 10_000 && axis < rank {
        true => {
            let zeros = vec![0.0; elements as usize];
            let packed = Packed::encode(format, &zeros, &shape, axis, Rounder::NearestEven);
            packed.map_or([1, 1], |packed| {
                [packed.scales().len(), packed.elements().len()]
            })
        }
        false => [random.below(50), random.below(50)],
    };
    let [scales, codes] = lengths.map(|length| {
        let more = if random.one_in(8) { random.below(3) } else { 0 };
        any_bytes(random, length + more)
    });
    let tensor_scale = match format.tensor_scale != random.one_in(10) {
        true => Some(f32::from_bits(random.word() as u32)),
        false => None,
    };
    if let Ok(view) = PackedView::new(format, &shape, axis, tensor_scale, &scales, &codes) {
        read(&view, random);
    }
    let _ = Packed::from_parts(format, &shape, axis, tensor_scale, scales, codes);
}

/// Any tensors in place of a checkpoint's weight.
fn layouts(random: &mut Random) {
    let layout = WeightLayout::ALL[random.below(WeightLayout::ALL.len())];
    let types = [
        StoredType::U8,
        StoredType::F8E4M3,
        StoredType::F8E8M0,
        StoredType::F32,
    ];
    let (rows, blocks) = (1 + random.below(4), 1 + random.below(4));
    let sound = !random.one_in(3);
    let stored: Vec<_> = layout
        .stored_as("w")
        .into_iter()
        .map(|(name, dtype)| {
            let dtype = if sound { dtype } else { types[random.below(4)] };
            let shape: Vec<usize> = match random.below(4) {
                0 => (0..random.below(4)).map(|_| any_length(random)).collect(),
                1 => vec![],
                2 => vec![rows, blocks],
                _ => vec![rows, blocks * [16, 17, 32][random.below(3)]],
            };
            let count = shape.iter().map(|length| *length as u128).product::<u128>();
            let count = if dtype == StoredType::F32 {
                4 * count
            } else {
                count
            };
            let bytes = any_bytes(random, count.min(5000) as usize);
            (name, dtype, shape, bytes)
        })
        .collect();
    let find = |name: &str| {
        let (_, dtype, shape, bytes) = stored.iter().find(|(own, ..)| own == name)?;
        Some(StoredView {
            dtype: *dtype,
            shape,
            bytes,
        })
    };
    if let Ok(packed) = layout.load("w", find) {
        read(&packed.view(), random);
    }
}

/// A file of packed tensors with a few changes.
fn files(random: &mut Random) {
    let tensors = (0..1 + random.below(3)).filter_map(|i| {
        let format: BlockFormat = random.format();
        let shape = [1 + random.below(9), 1 + random.below(40)];
        let data = random.values(shape.iter().product());
        let packed = Packed::encode(format, &data, &shape, random.below(2), Rounder::NearestEven);
        Some((format!("t{i}"), packed.ok()?))
    });
    let tensors: BTreeMap<String, Packed> = tensors.collect();
    let mut file = save(&tensors).expect("the header is short");
    assert_eq!(load(&file).expect("it was saved"), tensors);
    let header = u64::from_le_bytes(*file.first_chunk().expect("8 bytes")) as usize + 8;
    for _ in 0..1 + random.below(4) {
        // Most of what can be wrong is in the header.
        let end = if random.one_in(4) {
            file.len()
        } else {
            header.min(file.len())
        };
        if end == 0 {
            break;
        }
        let at = random.below(end);
        match random.below(6) {
            0 => file.truncate(at),
            1 => file[at] ^= 1 << random.below(8),
            2 => file[at] = random.word() as u8,
            3 => file[at] = b"0123456789[]{}\",:-.eE"[random.below(21)],
            4 => file.insert(at, b"0129[]{}\",-"[random.below(11)]),
            _ => drop(file.remove(at)),
        }
    }
    if let Ok(tensors) = load(&file) {
        for packed in tensors.values() {
            read(&packed.view(), random);
        }
    }
}
