//! Tensors, and where their elements are.

use crate::proto::wire::{Field, Malformed, WireValue, fields, put_floats};

/// `TensorProto`.
#[derive(Debug)]
pub(crate) struct Tensor<'a> {
    pub(crate) fields: Vec<Field<'a>>,
    pub(crate) name: &'a str,
    pub(crate) dims: Vec<i64>,
    pub(crate) data_type: i64,
    pub(crate) data: Data<'a>,
}

/// Where the elements of a tensor are.
#[derive(Debug)]
pub(crate) enum Data<'a> {
    /// Little endian.
    Raw(&'a [u8]),
    /// `float_data` in several fields. All numbers packed in one field are `Raw`.
    Floats(Vec<f32>),
    /// `int32_data`, patterns of 16-bit floats, or `int64_data`.
    Integers(Vec<i64>),
    /// In another file.
    External {
        location: &'a str,
        offset: u64,
        length: Option<u64>,
    },
}

impl<'a> Tensor<'a> {
    pub(crate) const EXTERNAL_DATA: u32 = 13;
    pub(crate) const DATA_LOCATION: u32 = 14;

    pub(crate) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut tensor = Self {
            fields: fields(message)?,
            name: "",
            dims: Vec::new(),
            data_type: 0,
            data: Data::Raw(&[]),
        };
        let (mut is_external, mut location, mut offset, mut length) = (false, "", 0, None);
        for field in &tensor.fields {
            match field.number {
                1 => field.integers(&mut tensor.dims)?,
                2 => tensor.data_type = field.integer()?,
                4 => match (field.value, &mut tensor.data) {
                    (WireValue::Bytes(packed), Data::Raw([])) => tensor.data = Data::Raw(packed),
                    (_, Data::Floats(floats)) => field.floats(floats)?,
                    (_, Data::Raw(packed)) => {
                        let mut floats = Vec::new();
                        put_floats(packed, &mut floats)?;
                        field.floats(&mut floats)?;
                        tensor.data = Data::Floats(floats);
                    }
                    _ => return Err(Malformed),
                },
                5 | 7 => {
                    let mut integers = match std::mem::replace(&mut tensor.data, Data::Raw(&[])) {
                        Data::Integers(integers) => integers,
                        _ => Vec::new(),
                    };
                    field.integers(&mut integers)?;
                    tensor.data = Data::Integers(integers);
                }
                8 => tensor.name = field.text()?,
                9 => tensor.data = Data::Raw(field.bytes()?),
                Self::EXTERNAL_DATA => {
                    let (key, value) = entry(field.bytes()?)?;
                    match key {
                        "location" => location = value,
                        "offset" => offset = value.parse().map_err(|_| Malformed)?,
                        "length" => length = Some(value.parse().map_err(|_| Malformed)?),
                        _ => {}
                    }
                }
                Self::DATA_LOCATION => is_external = field.integer()? == 1,
                _ => {}
            }
        }
        if is_external {
            tensor.data = Data::External {
                location,
                offset,
                length,
            };
        }
        Ok(tensor)
    }

    /// The lengths of the axes; `None` if one is negative or their product overflows.
    pub(crate) fn shape(&self) -> Option<Vec<usize>> {
        let dims = self.dims.iter().map(|dim| usize::try_from(*dim).ok());
        let shape: Vec<usize> = dims.collect::<Option<_>>()?;
        let count = shape
            .iter()
            .try_fold(1_usize, |all, dim| all.checked_mul(*dim));
        count.and(Some(shape))
    }
}

/// `StringStringEntryProto`: key and value.
fn entry(message: &[u8]) -> Result<(&str, &str), Malformed> {
    let (mut key, mut value) = ("", "");
    for field in fields(message)? {
        match field.number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}
