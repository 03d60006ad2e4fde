//! Scalars as event files of TensorBoard.
//!
//! An event file is a sequence of records (TensorFlow, `core/lib/io/record_writer.h`): a length, its checksum, an `Event` as a
//! protocol buffer (`core/util/event.proto`), its checksum. Scalars need four fields of an `Event`, and this file writes them.
//! The crates that write event files bring an image codec or old versions of a protobuf library.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::RecordError;
use crate::file;
use crate::file::figures::{Figures, StepRecord};

/// An event file that TensorBoard shows as one run: `tensorboard --logdir` of a folder above.
///
/// ```no_run
/// # mod burn_mx { pub use burn_mx_record as record; }
/// use burn_mx::record::TensorBoard;
///
/// let mut board = TensorBoard::create("out/mxfp4")?;
/// for step in 0..100 {
///     let loss = 1.0 / (step + 1) as f64;
///     board.scalar("loss", step, loss)?;
/// }
/// # Ok::<(), burn_mx::record::RecordError>(())
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: BufWriter<File>,
}

/// How many event files this process has begun. The number stands in their names.
static FILES: AtomicU64 = AtomicU64::new(0);

impl TensorBoard {
    /// Creates the folder if it is missing, and a new event file in it. TensorBoard joins all event files of one folder.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written to.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self, RecordError> {
        let folder = folder.as_ref();
        let failed = |path: &Path| {
            let path = path.to_owned();
            |error| RecordError::Io { path, error }
        };
        file::create_folder(folder)?;
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let (seconds, process) = (now() as u64, std::process::id());
        let path = folder.join(format!(
            "events.out.tfevents.{seconds}.{process}.{number}.burn-mx"
        ));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut board = Self {
            file: BufWriter::new(file.map_err(failed(&path))?),
            path,
        };
        board.event(&version(now()))?;
        Ok(board)
    }

    /// Writes one value of a curve. Slashes group curves: TensorBoard shows `layer/sqnr` below `layer`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written to.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<(), RecordError> {
        self.event(&scalars(now(), step, &[(tag.to_owned(), value)]))
    }

    /// Writes the figures of a recorded step: SQNR, slope, underflow and saturation of each operand
    /// (`blocks.0.weight/output/input/sqnr`) and the relative error of each result (`blocks.0.weight/output/relative_error`).
    ///
    /// # Errors
    ///
    /// If the file cannot be written to.
    pub fn step(&mut self, record: &StepRecord) -> Result<(), RecordError> {
        let values = values(record);
        match values.is_empty() {
            true => Ok(()),
            false => self.event(&scalars(now(), record.step, &values)),
        }
    }

    /// Writes a record and flushes it, so that TensorBoard shows a run while it trains.
    fn event(&mut self, event: &[u8]) -> Result<(), RecordError> {
        let length = (event.len() as u64).to_le_bytes();
        let parts = [
            length.as_slice(),
            &checksum(&length).to_le_bytes(),
            event,
            &checksum(event).to_le_bytes(),
        ];
        let written = self.file.write_all(&parts.concat());
        written
            .and_then(|()| self.file.flush())
            .map_err(|error| RecordError::Io {
                path: self.path.clone(),
                error,
            })
    }
}

/// A figure and its name in tags.
type Figure = (&'static str, fn(&Figures) -> Option<f64>);

const FIGURES: [Figure; 4] = [
    ("sqnr", |figures| figures.sqnr),
    ("slope", |figures| figures.slope),
    ("underflow", |figures| figures.underflow),
    ("saturation", |figures| figures.saturation),
];

/// The curves of a step, with its values.
fn values(record: &StepRecord) -> Vec<(String, f64)> {
    let mut values = Vec::new();
    for product in &record.products {
        let of_product = format!("{}/{}", product.layer, product.product);
        for operand in &product.operands {
            for (name, figure) in FIGURES {
                let tag = format!("{of_product}/{}/{name}", operand.operand);
                values.extend(figure(&operand.figures).map(|value| (tag.replace(' ', "_"), value)));
            }
        }
        let error = product.result.and_then(|result| result.relative_error);
        let tag = format!("{of_product}/relative_error").replace(' ', "_");
        values.extend(error.map(|error| (tag, error)));
    }
    values
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// The first event of a file.
fn version(time: f64) -> Vec<u8> {
    let mut event = wall_time(time);
    bytes(&mut event, 3, b"brain.Event:2");
    event
}

fn scalars(time: f64, step: u64, values: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, tag.as_bytes());
        // `simple_value`: field 2, 32 bits.
        entry.push(2 << 3 | 5);
        entry.extend((*value as f32).to_le_bytes());
        bytes(&mut summary, 1, &entry);
    }
    let mut event = wall_time(time);
    // `step`: field 2, a varint; 0 is not written, as in every protocol buffer.
    if step != 0 {
        event.push(2 << 3);
        varint(&mut event, step);
    }
    bytes(&mut event, 5, &summary);
    event
}

/// `wall_time`: field 1, 64 bits.
fn wall_time(time: f64) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend(time.to_le_bytes());
    event
}

/// A field of bytes with their length before.
fn bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// CRC-32C, masked as in TensorFlow's `core/lib/hash/crc32c.h`: a checksum of bytes that hold checksums would be weak.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes equal the output of Python's tensorboardX 2.6.5, by its protocol buffers and its `masked_crc32c`.
    #[test]
    fn events_and_checksums_are_those_of_another_writer() {
        let time = 1_700_000_000.25;
        assert_eq!(
            hex(&version(time)),
            "0900001040fc54d9411a0d627261696e2e4576656e743a32"
        );
        let loss = [("loss".to_owned(), 0.5)];
        assert_eq!(
            hex(&scalars(time, 0, &loss)),
            "0900001040fc54d9412a0d0a0b0a046c6f7373150000003f"
        );
        let two = [("a/sqnr".to_owned(), 18.75), ("b".repeat(200), -3e-5)];
        let event = scalars(time, 300, &two);
        let long = "62".repeat(200);
        assert_eq!(
            hex(&event),
            format!(
                "0900001040fc54d94110ac022ae2010a0d0a06612f73716e7215000096410ad0010ac801{long}1582a8fbb7"
            )
        );
        assert_eq!(checksum(&event), 0xabb4_6ae5);
        assert_eq!(checksum(b"123456789"), 0xc78a_b0e5);
        assert_eq!(checksum(&24_u64.to_le_bytes()), 0x224b_7fa3);
    }
}
