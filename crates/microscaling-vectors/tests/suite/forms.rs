//! Files: reading gives the cases that were written, in every form. A set has the same bytes each time. Errors name a wrong file.

use crate::{cases, dump};
use microscaling_vectors::{
    BlockSet, CodeSet, DotSet, DumpInputs, DumpPart, DumpReader, ElementRule, ElementSet,
    InputType, VectorForm, VectorSet, VectorsError, check,
};
use std::io::Cursor;

const FORMS: [VectorForm; 4] = [
    VectorForm::Hex,
    VectorForm::Csv,
    VectorForm::JsonLines,
    VectorForm::Npy,
];

fn sets() -> Vec<Box<dyn VectorSet>> {
    let rule = ElementRule {
        rounding: "stochastic".parse().unwrap(),
        random_bits: 6,
        ..ElementRule::default()
    };
    let operand = "mxfp4".parse().unwrap();
    vec![
        Box::new(CodeSet::new("fp4_e2m1".parse().unwrap(), None)),
        Box::new(CodeSet::new("binary16p1se".parse().unwrap(), Some(99))),
        Box::new(
            ElementSet::new(
                "fp6_e3m2".parse().unwrap(),
                InputType::Float16,
                rule,
                false,
                7,
                Some(500),
            )
            .unwrap(),
        ),
        Box::new(
            BlockSet::new(
                "mxfp6_e2m3".parse().unwrap(),
                InputType::Bfloat16,
                rule,
                true,
                7,
                Some(100),
            )
            .unwrap(),
        ),
        Box::new(
            BlockSet::new(
                "nvfp4(tensor_scale=true)".parse().unwrap(),
                InputType::Float32,
                ElementRule::default(),
                true,
                0,
                Some(9),
            )
            .unwrap(),
        ),
        Box::new(
            DotSet::new(
                "blackwell".parse().unwrap(),
                [operand; 2],
                None,
                7,
                Some(50),
            )
            .unwrap(),
        ),
    ]
}

#[test]
fn every_form_is_read_as_it_was_written() {
    for set in sets() {
        let set = &*set;
        for form in FORMS {
            let bytes = dump(set, form, |_, outputs| outputs.to_vec());
            let mut reader = DumpReader::new(
                "dump",
                Cursor::new(bytes),
                set.layout(),
                &[DumpPart::Whole, DumpPart::Outputs],
            )
            .unwrap();
            assert_eq!((reader.form(), reader.part()), (form, DumpPart::Whole));
            let mut words = Vec::new();
            for (inputs, outputs) in cases(set) {
                assert!(reader.next(&mut words).unwrap());
                assert_eq!(words, [inputs, outputs].concat(), "{form} {}", set.name());
            }
            assert!(!reader.next(&mut words).unwrap());
        }
    }
}

/// A hash of the bytes (FNV-1a).
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A later version writes the same bytes for a set of the same name: a change of a set raises `VERSION`.
#[test]
fn a_set_has_the_same_bytes_each_time() {
    let hashes: Vec<String> = sets()
        .iter()
        .map(|set| {
            format!(
                "{:016x}",
                hash(&dump(&**set, VectorForm::Hex, |_, outputs| outputs.to_vec()))
            )
        })
        .collect();
    let golden = [
        "870267024ef9ff6a",
        "d89206341b5315e9",
        "dd47d105be031235",
        "11e726f3731fb421",
        "c13abdde8596d011",
        "914a091cd0327d44",
    ];
    assert_eq!(hashes, golden);
}

fn e4m3() -> ElementSet {
    ElementSet::new(
        "fp8_e4m3".parse().unwrap(),
        InputType::Float32,
        ElementRule::default(),
        false,
        0,
        Some(10),
    )
    .unwrap()
}

fn checked(text: impl Into<Vec<u8>>) -> Result<u64, VectorsError> {
    let set = e4m3();
    let from = Cursor::new(text.into());
    let mut reader = DumpReader::new(
        "dump",
        from,
        set.layout(),
        &[DumpPart::Whole, DumpPart::Outputs],
    )?;
    check(&set, &mut reader, DumpInputs::OfSet).map(|report| report.differ)
}

#[test]
fn outputs_alone_are_a_dump() {
    let codes: Vec<u64> = cases(&e4m3())
        .iter()
        .map(|(_, outputs)| outputs[0])
        .collect();
    let hex: Vec<String> = codes.iter().map(|code| format!("{code:02x}")).collect();
    assert_eq!(checked(hex.join("\n")).unwrap(), 0);
    assert_eq!(
        checked(hex.join(" /* a\ncomment */ ") + " // the end").unwrap(),
        0
    );
    assert_eq!(
        checked(format!("@0 {} // memory\n", hex.join("\n"))).unwrap(),
        0
    );
    let json: Vec<String> = codes
        .iter()
        .map(|code| format!("{{\"code\": {code}}}"))
        .collect();
    assert_eq!(checked(json.join("\n\n")).unwrap(), 0);
    assert_eq!(
        checked(format!(
            "code\r\n{}\r\n",
            hex.iter()
                .map(|code| format!("0x{code}"))
                .collect::<Vec<_>>()
                .join("\r\n")
        ))
        .unwrap(),
        0
    );
    // As a spreadsheet writes a column.
    let quoted: Vec<String> = codes.iter().map(|code| format!("\"{code}\"")).collect();
    let quoted = format!("\u{feff}\"code\"\r\n{}", quoted.join("\r\n"));
    assert_eq!(checked(quoted).unwrap(), 0);
    // As `numpy.save` writes an array of bytes.
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (10,), }";
    let mut npy = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    npy.extend(format!("{header:<117}\n").bytes());
    npy.extend(codes.iter().map(|code| *code as u8));
    assert_eq!(checked(npy).unwrap(), 0);
}

#[test]
fn wrong_dumps_are_refused_by_name() {
    let ten = |text: &str| [text; 10].join("\n");
    for (text, parts) in [
        (String::new(), vec!["dump", "empty"]),
        ("// nothing".to_owned(), vec!["no word"]),
        (["00"; 9].join("\n"), vec!["dump has 9 cases, expected 10"]),
        (["00"; 11].join("\n"), vec!["11+ cases, expected 10"]),
        (ten("000"), vec!["words of 3 digits", "code (8 bits)"]),
        ("00\nxx".to_owned(), vec!["line 2", "digit `x`"]),
        ("00\n000".to_owned(), vec!["line 2", "3 digits"]),
        ("@5\n00".to_owned(), vec!["@5", "@0"]),
        ("code\n0x100".to_owned(), vec!["line 2", "more than 8 bits"]),
        ("code\nfoo".to_owned(), vec!["line 2", "`foo`"]),
        ("input\n1".to_owned(), vec!["the columns input"]),
        ("{\"code\": -1}".to_owned(), vec!["line 1", "-1"]),
        ("{\"code\": 1".to_owned(), vec!["line 1"]),
        ("{\"kode\": 1}".to_owned(), vec!["the keys kode"]),
        (
            ten("3f80000038"),
            vec![
                "line 1: case 0, from 0 on, has the input 0x3f800000, expected 0x0",
                "--own-inputs",
            ],
        ),
        ("zz\n".to_owned(), vec!["line 1", "digit `z`"]),
        // In no form: the error lists the forms.
        (
            "hello world\n".to_owned(),
            vec!["begins with `hello world\\n`", "hex", "csv", "jsonl", "npy"],
        ),
        ("<xml>".to_owned(), vec!["begins with `<xml>`"]),
        ("[{\"code\": 1}]".to_owned(), vec!["begins with `[{"]),
        (
            "code\tinput\n1\t2".to_owned(),
            vec!["begins with `code\\tinput"],
        ),
        (
            "code;input\n1;2".to_owned(),
            vec!["begins with `code;input"],
        ),
        ("PK\u{3}\u{4}npz".to_owned(), vec!["begins with `PK"]),
        ("\n\n".to_owned(), vec!["begins with"]),
        ("case,code\n0,1".to_owned(), vec!["the columns case, code"]),
    ] {
        let error = checked(text.clone()).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text:?}: no `{part}` in {error}");
        }
    }
    let other = CodeSet::new("fp8_e4m3".parse().unwrap(), None);
    let npy = dump(&other, VectorForm::Npy, |_, outputs| outputs.to_vec());
    let error = checked(npy).unwrap_err().to_string();
    assert!(
        error.contains("'value'") && error.contains("expected one axis of"),
        "{error}"
    );
    let mut short = dump(&e4m3(), VectorForm::Npy, |_, outputs| outputs.to_vec());
    short.truncate(short.len() - 2);
    assert!(
        checked(short)
            .unwrap_err()
            .to_string()
            .contains("ends before its last record")
    );
}

#[test]
fn rules_that_a_format_lacks_are_refused() {
    let rule = ElementRule {
        random_bits: 32,
        ..ElementRule::default()
    };
    let set = ElementSet::new(
        "fp8_e4m3".parse().unwrap(),
        InputType::Float32,
        rule,
        false,
        0,
        None,
    );
    assert!(
        set.unwrap_err()
            .to_string()
            .contains("random-bits is 32; allowed: 1 to 31")
    );
    let set = ElementSet::new(
        "table(nf4)".parse().unwrap(),
        InputType::Float32,
        ElementRule::default(),
        false,
        0,
        None,
    );
    assert!(set.unwrap_err().to_string().contains("format is"));
    let rule = ElementRule {
        rounding: "odd".parse().unwrap(),
        ..ElementRule::default()
    };
    let set = BlockSet::new(
        "nf4".parse().unwrap(),
        InputType::Float32,
        rule,
        true,
        0,
        None,
    );
    assert!(set.unwrap_err().to_string().contains("rounding=odd"));
    let operand = "fp8_e4m3".parse().unwrap();
    let set = DotSet::new("hopper".parse().unwrap(), [operand; 2], Some(0), 0, None);
    assert!(set.unwrap_err().to_string().contains("length is 0"));
}
