//! NumPy's arrays.

use super::super::npy;
use super::{DumpPart, no_part};
use crate::error::VectorsError;
use crate::layout::BusLayout;
use std::io::{BufRead, Read};

/// The records of an array.
pub(super) struct Records {
    from: Box<dyn BufRead + Send>,
    sizes: Vec<usize>,
    record: Vec<u8>,
    left: u64,
    cases: u64,
}

impl Records {
    pub(super) fn open(
        name: &str,
        mut from: Box<dyn BufRead + Send>,
        parts: &[(DumpPart, BusLayout)],
    ) -> Result<(DumpPart, Self), VectorsError> {
        let wrong = |reason: &str| VectorsError::Layout {
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        let io = |source| VectorsError::Io {
            name: name.to_owned(),
            source,
        };
        let mut start = [0; 8];
        from.read_exact(&mut start).map_err(io)?;
        let mut length = [0; 4];
        let bytes = if start[6] == 1 { 2 } else { 4 };
        from.read_exact(&mut length[..bytes]).map_err(io)?;
        let mut header = Vec::new();
        from.by_ref()
            .take(u32::from_le_bytes(length).into())
            .read_to_end(&mut header)
            .map_err(io)?;
        let header =
            String::from_utf8(header).map_err(|_| wrong("has a header that is not text"))?;
        let header: String = header.split_whitespace().collect();
        if header.contains("'fortran_order':True") {
            return Err(wrong(
                "has the first axis fastest (fortran_order); expected C order",
            ));
        }
        let shape = header
            .split_once("'shape':(")
            .and_then(|(_, rest)| rest.split_once(')'));
        let shape = shape
            .ok_or_else(|| wrong("has a header without a shape"))?
            .0;
        let lengths: Result<Vec<u64>, _> = shape
            .split(',')
            .filter(|n| !n.is_empty())
            .map(str::parse)
            .collect();
        let lengths =
            lengths.map_err(|_| wrong("has a header whose shape is no list of numbers"))?;
        let fits = |layout: &BusLayout| {
            let record: String = npy::record(layout).split_whitespace().collect();
            let by_record = header.contains(&format!("'descr':{record},")) && lengths.len() == 1;
            let by_plain = npy::plain(layout).is_some_and(|(own, inner)| {
                let expected: &[u64] = if inner == 0 { &[] } else { &[inner as u64] };
                header.contains(&format!("'descr':{own},")) && lengths.get(1..) == Some(expected)
            });
            by_record || by_plain
        };
        let Some((part, layout)) = parts.iter().find(|(_, layout)| fits(layout)) else {
            let descr = header.split_once("'descr':").map_or("", |(_, rest)| rest);
            let descr = descr
                .split_once(",'fortran_order'")
                .map_or(descr, |(descr, _)| descr);
            let expected = parts
                .iter()
                .map(|(_, layout)| npy::record(layout))
                .collect::<Vec<_>>()
                .join(", or ");
            let reason = format!(
                "has records of the type {descr} and the shape ({shape}); expected one axis of {expected}"
            );
            return Err(wrong(&reason));
        };
        if lengths.is_empty() {
            return Err(no_part(name, "no axis", parts));
        }
        let sizes: Vec<usize> = layout.bits().map(npy::bytes).collect();
        let record = vec![0; sizes.iter().sum()];
        Ok((
            *part,
            Self {
                from,
                sizes,
                record,
                left: lengths[0],
                cases: 0,
            },
        ))
    }

    /// The number of the case from 1 on; `None` at the end.
    pub(super) fn next(
        &mut self,
        name: &str,
        words: &mut Vec<u64>,
    ) -> Result<Option<u64>, VectorsError> {
        if self.left == 0 {
            let rest = self.from.fill_buf().map_err(|source| VectorsError::Io {
                name: name.to_owned(),
                source,
            })?;
            return match rest.is_empty() {
                true => Ok(None),
                false => Err(VectorsError::Line {
                    name: name.to_owned(),
                    line: self.cases,
                    reason: "bytes come after the last record of the array; expected the end"
                        .to_owned(),
                }),
            };
        }
        self.left -= 1;
        self.cases += 1;
        let line = self.cases;
        self.from
            .read_exact(&mut self.record)
            .map_err(|error| VectorsError::Line {
                name: name.to_owned(),
                line,
                reason: format!("the array ends before its last record: {error}"),
            })?;
        let mut rest = &self.record[..];
        for size in &self.sizes {
            let (own, tail) = rest.split_at(*size);
            let mut word = [0; 8];
            word[..*size].copy_from_slice(own);
            words.push(u64::from_le_bytes(word));
            rest = tail;
        }
        Ok(Some(line))
    }
}
