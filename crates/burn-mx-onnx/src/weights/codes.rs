//! Packed codes, and the nodes that look them up in tables.

use microscaling::{Packed, Shifts};

use crate::additions::Builder;
use crate::error::OnnxError;
use crate::proto::{NewAttribute, data_type, little_endian};

/// A node that takes entries of a table or a tensor.
pub(crate) fn gather(
    to: &mut Builder<'_, '_>,
    wish: &str,
    inputs: [&str; 2],
    axis: usize,
) -> String {
    let axis = vec![NewAttribute::Integer("axis", axis as i64)];
    to.node(wish, "Gather", &inputs, axis)
}

/// The codes of `bits` bits in each of the 256 bytes, byte by byte.
pub(crate) fn bytes_of(bits: u32) -> impl Iterator<Item = u32> {
    (0..256_u32)
        .flat_map(move |byte| (0..8 / bits).map(move |at| byte >> (at * bits) & ((1 << bits) - 1)))
}

pub(crate) fn table_shape(bits: u32) -> Vec<usize> {
    match bits {
        8 => vec![256],
        bits => vec![256, 8 / bits as usize],
    }
}

/// Codes as bytes, low bits first; the last byte is filled up with zeros. Of each code its low bits count.
pub(crate) fn pack(codes: impl Iterator<Item = u32>, bits: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let each = (8 / bits) as usize;
    for (at, code) in codes.enumerate() {
        if at % each == 0 {
            bytes.push(0);
        }
        let code = (code & ((1 << bits) - 1)) << (at % each * bits as usize);
        *bytes.last_mut().expect("one was pushed") |= code as u8;
    }
    bytes
}

/// Looks up packed codes in a table that has a row for each byte.
pub(crate) fn look_up(
    to: &mut Builder<'_, '_>,
    name: &str,
    what: &str,
    (bytes, bits): (Vec<u8>, u32),
    table: &str,
    shape: &[usize],
) -> Result<String, OnnxError> {
    let length = bytes.len();
    let codes = match what {
        "elements" => "codes",
        what => what,
    };
    let codes = to.constant(
        &format!("{name}_{codes}"),
        data_type::UINT8,
        &[length],
        bytes,
    )?;
    let indices = vec![NewAttribute::Integer("to", data_type::INT32)];
    let indices = to.node(&format!("{name}_{what}_bytes"), "Cast", &[&codes], indices);
    let mut found = gather(to, &format!("{name}_{what}_rows"), [table, &indices], 0);
    let count: usize = shape.iter().product();
    if length * 8 / bits as usize != count {
        // The last byte has more of them.
        let flat = to.integers("shape", &[-1])?;
        found = to.node(
            &format!("{name}_{what}_flat"),
            "Reshape",
            &[&found, &flat],
            Vec::new(),
        );
        let (start, end) = (
            to.integers("start", &[0])?,
            to.integers("end", &[count as i64])?,
        );
        found = to.node(
            &format!("{name}_{what}_first"),
            "Slice",
            &[&found, &start, &end],
            Vec::new(),
        );
    }
    let shape: Vec<i64> = shape.iter().map(|length| *length as i64).collect();
    let shape = to.integers("shape", &shape)?;
    Ok(to.node(
        &format!("{name}_{what}"),
        "Reshape",
        &[&found, &shape],
        Vec::new(),
    ))
}

/// Packed codes of fewer than 8 bits as INT32.
pub(crate) fn small_codes(
    to: &mut Builder<'_, '_>,
    name: &str,
    what: &str,
    codes: (Vec<u8>, u32),
    shape: &[usize],
) -> Result<String, OnnxError> {
    let bits = codes.1;
    let wish = format!("mx_table_of_{bits}_bits");
    let table = to.shared(&wish, data_type::UINT8, &table_shape(bits), || {
        bytes_of(bits).map(|code| code as u8).collect()
    })?;
    let codes = look_up(to, name, what, codes, &table, shape)?;
    let indices = vec![NewAttribute::Integer("to", data_type::INT32)];
    Ok(to.node(&format!("{name}_{what}_codes"), "Cast", &[&codes], indices))
}

/// 2^−d for each element, where d is the shift of its sub-block.
pub(crate) fn shifts(
    to: &mut Builder<'_, '_>,
    name: &str,
    packed: &Packed,
    of_format: Shifts,
) -> Result<String, OnnxError> {
    let (shape, axis) = (packed.shape(), packed.axis());
    let length = shape[axis];
    let block_size = packed.format().block_size;
    let sub_block_size = of_format.block_size;
    let sub_blocks = block_size.div_ceil(sub_block_size);
    let place = |at: usize| (at / block_size, at % block_size / sub_block_size);
    let all_of_axis: Vec<i64> = (0..length)
        .map(place)
        .map(|(block, sub_block)| (block * sub_blocks + sub_block) as i64)
        .collect();
    let count = all_of_axis.last().map_or(0, |last| *last as usize + 1);
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let blocks = length.div_ceil(block_size);
    let record = packed.scales().len() / (outer * blocks * inner);
    let bits = of_format.bits;
    let codes = (0..outer * count * inner).map(|at| {
        let (outer, sub_block, inner_at) = (at / inner / count, at / inner % count, at % inner);
        let (block, sub_block) = (sub_block / sub_blocks, sub_block % sub_blocks);
        let record_at = ((outer * blocks + block) * inner + inner_at) * record;
        let bit = sub_block * bits as usize;
        u32::from(packed.scales()[record_at + 1 + bit / 8]) >> (bit % 8)
    });
    let bytes = pack(codes, bits);
    let mut shape = shape.to_vec();
    shape[axis] = count;
    let shifts = small_codes(to, name, "shifts", (bytes, bits), &shape)?;
    let table: Vec<f32> = (0..1_i32 << bits)
        .map(|shift| 2_f64.powi(-shift) as f32)
        .collect();
    let table = to.shared("mx_shift_table", data_type::FLOAT, &[table.len()], || {
        little_endian(&table, f32::to_le_bytes)
    })?;
    let shifts = gather(
        to,
        &format!("{name}_sub_block_factors"),
        [&table, &shifts],
        0,
    );
    let kind = format!("sub_blocks_of_{sub_block_size}_in_{block_size}");
    let indices = to.integers(&kind, &all_of_axis)?;
    Ok(gather(
        to,
        &format!("{name}_shifts_of_elements"),
        [&shifts, &indices],
        axis,
    ))
}
