//! Files that somebody made to do harm: loading them is an error at worst, and takes no more memory than
//! a multiple of their length. The corpus, `tests/data/corpus/`, is mutated.
//!
//! `UPDATE_CORPUS=1` writes the files of the corpus that are made here.

use microscaling::safetensors::{load, save};
use microscaling::{BlockFormat, Packed, Rounder};
use proptest::prelude::*;
use proptest::sample::Index;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Counts the bytes that a thread holds, and the most that it ever held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call is handed to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above; the pointer is of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes held during a call, beyond those held before.
fn peak<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = call();
    (result, (MOST.get() - before) as usize)
}

/// Loads and decodes any bytes, and checks the memory. The header's parser grows its tables and vectors by halves; each
/// element may take 16 bytes.
fn load_and_decode(file: &[u8]) {
    let (loaded, most) = peak(|| load(file));
    assert!(
        most <= 64 * file.len() + 4096,
        "{most} bytes for {}",
        file.len()
    );
    for packed in loaded.into_iter().flatten().map(|(_, packed)| packed) {
        let (decoded, most) = peak(|| packed.decode());
        assert!(
            most <= 64 * file.len() + 4096,
            "{most} bytes for {}",
            file.len()
        );
        // The other lengths of an empty tensor may overflow.
        let empty = packed.shape().contains(&0);
        let count: usize = if empty {
            0
        } else {
            packed.shape().iter().product()
        };
        assert_eq!(decoded.len(), count);
        let again = save(&BTreeMap::from([(String::new(), packed)])).unwrap();
        assert_eq!(load(&again).unwrap().len(), 1);
    }
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus")
}

/// One small file a format, one of several tensors, and an empty one.
fn valid() -> Vec<(String, BTreeMap<String, Packed>)> {
    let data: Vec<f32> = (0..34).map(|i| (i as f32 - 11.0) * 0.37).collect();
    let pack = |format: &str, shape: &[usize], axis| {
        let format: BlockFormat = format.parse().unwrap();
        Packed::encode(format, &data, shape, axis, Rounder::NearestEven).unwrap()
    };
    let other = [
        "nvfp4(tensor_scale=true)",
        "mx(element=float16,block_size=0)",
        "bfp(bit_width=11,block_size=3)",
    ];
    let mut files: Vec<_> = BlockFormat::NAMES
        .into_iter()
        .chain(other)
        .map(|format| {
            let name: String = format.chars().filter(|c| c.is_alphanumeric()).collect();
            (
                name,
                BTreeMap::from([("w".to_string(), pack(format, &[2, 17], 1))]),
            )
        })
        .collect();
    let several = [
        ("a", "mx4", 0),
        ("a.scales", "mxfp4", 1),
        ("", "nvfp4(tensor_scale=true)", 1),
    ];
    let several =
        several.map(|(name, format, axis)| (name.to_string(), pack(format, &[17, 2], axis)));
    files.push(("several".to_string(), several.into()));
    files.push(("empty".to_string(), BTreeMap::new()));
    files
}

/// The corpus, by name.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

/// Files of earlier versions are still read, and written unchanged.
#[test]
fn valid_files() {
    for (name, tensors) in valid() {
        let path = directory().join(format!("valid_{name}.safetensors"));
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::write(&path, save(&tensors).unwrap()).unwrap();
        }
        let file = std::fs::read(&path).unwrap();
        assert_eq!(load(&file).unwrap(), tensors, "{name}");
        assert_eq!(save(&tensors).unwrap(), file, "{name}");
    }
}

#[test]
fn the_corpus_itself() {
    let mut hostile = 0;
    for (name, file) in corpus() {
        load_and_decode(&file);
        assert_eq!(load(&file).is_ok(), name.starts_with("valid_"), "{name}");
        hostile += usize::from(name.starts_with("hostile_"));
    }
    assert!(hostile >= 8);
}

/// A header that is all shape, and one that is all tensors.
#[test]
fn memory_of_large_headers() {
    let file = |header: String| {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.into_bytes());
        file
    };
    let zeros = vec!["0"; 100_000].join(",");
    load_and_decode(&file(format!(
        r#"{{"a":{{"dtype":"U8","shape":[{zeros}],"data_offsets":[0,0]}}}}"#
    )));
    let tensor = |i: usize| format!(r#""{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
    let tensors: Vec<String> = (0..10_000).map(tensor).collect();
    load_and_decode(&file(format!("{{{}}}", tensors.join(","))));
    let entry = |i: usize| format!(r#"\"{i}\":{{\"format\":\"mxfp4\",\"shape\":[0],\"axis\":0}}"#);
    let entries: Vec<String> = (0..10_000).map(entry).collect();
    load_and_decode(&file(format!(
        r#"{{"__metadata__":{{"microscaling":"{{{}}}"}}}}"#,
        entries.join(",")
    )));
}

#[derive(Debug, Clone)]
enum Mutation {
    Set(Index, u8),
    Flip(Index, u8),
    Remove(Index, usize),
    Repeat(Index, usize),
    /// Replaces a digit of the header.
    Digit(Index, u8),
    Insert(Index, &'static str),
    Truncate(Index),
}

fn mutations() -> impl Strategy<Value = Mutation> {
    let texts = vec![
        "18446744073709551615",
        "2305843009213693951",
        "[",
        "}",
        "0,",
        "-",
        "\"",
        "mx",
        "1e9",
        "\\u0000",
    ];
    prop_oneof![
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip(at, 1 << bit)),
        1 => (any::<Index>(), 1..9_usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        1 => (any::<Index>(), 1..40_usize).prop_map(|(at, count)| Mutation::Repeat(at, count)),
        4 => (any::<Index>(), b'0'..=b'9').prop_map(|(at, digit)| Mutation::Digit(at, digit)),
        2 => (any::<Index>(), prop::sample::select(texts)).prop_map(|(at, text)| Mutation::Insert(at, text)),
        1 => any::<Index>().prop_map(Mutation::Truncate),
    ]
}

/// `fix` corrects the length of the header, so that the parser reaches its content.
fn mutate(mut file: Vec<u8>, mutation: &Mutation, fix: bool) -> Vec<u8> {
    if file.len() < 9 {
        return file;
    }
    let header = (u64::from_le_bytes(file[..8].try_into().unwrap()) as usize).min(file.len() - 8);
    let before = file.len();
    let at = |index: &Index| index.index(before);
    let mut place = before;
    match mutation {
        Mutation::Set(index, byte) => file[at(index)] = *byte,
        Mutation::Flip(index, bit) => file[at(index)] ^= bit,
        Mutation::Remove(index, count) => {
            place = at(index);
            file.drain(place..before.min(place + count));
        }
        Mutation::Repeat(index, count) => {
            place = at(index);
            let part = file[place..before.min(place + count)].to_vec();
            file.splice(place..place, part);
        }
        Mutation::Digit(index, digit) => {
            let digits: Vec<usize> = (8..8 + header)
                .filter(|i| file[*i].is_ascii_digit())
                .collect();
            if !digits.is_empty() {
                file[digits[index.index(digits.len())]] = *digit;
            }
        }
        Mutation::Insert(index, text) => {
            place = at(index);
            file.splice(place..place, text.bytes());
        }
        Mutation::Truncate(index) => file.truncate(at(index)),
    }
    if fix && (8..8 + header).contains(&place) && file.len() > 8 {
        // The removed bytes may reach beyond the header.
        let header = (header + file.len()).saturating_sub(before) as u64;
        file[..8].copy_from_slice(&header.to_le_bytes());
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn mutated_files(
        file in prop::sample::select(corpus()),
        mutations in prop::collection::vec((mutations(), any::<bool>()), 1..6),
    ) {
        let mutated = mutations.iter().fold(file.1, |file, (mutation, fix)| mutate(file, mutation, *fix));
        load_and_decode(&mutated);
    }
}
