//! The program on one file, on several files, and on refused files.

mod support;

use microscaling::safetensors::{load, save};
use microscaling::{BlockFormat, Dialect, Packed, Rounder, WeightLayout};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize, serialize_to_file};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use support::{files, run, succeed};

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let number = |i: usize| ((i as u32 + 1).wrapping_mul(2_654_435_761 ^ seed) >> 8) as f32;
    (0..count)
        .map(|i| number(i) / 2.0_f32.powi(23) - 1.0)
        .collect()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A file with these tensors of float32.
fn write(path: &Path, tensors: &[(&str, &[usize], &[f32])]) {
    let tensors = tensors
        .iter()
        .map(|(name, shape, numbers)| (*name, *shape, bytes(numbers)));
    let tensors: Vec<_> = tensors.collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (
            *name,
            TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap(),
        )
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize_to_file(views, Some(metadata), path).unwrap();
}

#[test]
fn packed_files_are_those_of_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [up, down] = [numbers(64 * 96, 1), numbers(32 * 64, 2)];
    let norm = numbers(64, 3);
    write(
        &folder.join("model.safetensors"),
        &[
            ("down", &[32, 64], &down),
            ("norm", &[64], &norm),
            ("up", &[64, 96], &up),
        ],
    );
    succeed(
        folder,
        "quantize model.safetensors own.safetensors --format mx6 --axis 0 --skip n*",
    );
    let mx6: BlockFormat = "mx6".parse().unwrap();
    let pack = |data, shape| Packed::encode(mx6, data, shape, 0, Rounder::NearestEven).unwrap();
    let expected = BTreeMap::from([
        ("down".to_owned(), pack(&down, &[32, 64])),
        ("up".to_owned(), pack(&up, &[64, 96])),
    ]);
    let file = fs::read(folder.join("own.safetensors")).unwrap();
    assert_eq!(load(&file).unwrap(), expected);
    // Tensors that are not weights, and the metadata, stay.
    let stored = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(stored.tensor("norm").unwrap().data(), bytes(&norm));
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    let said = succeed(folder, "inspect own.safetensors");
    assert!(
        said.contains("6.000 bits an element") && said.contains("norm"),
        "{said}"
    );
}

/// Parts of a weight may be in different files; every file becomes one.
#[test]
fn several_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let input = folder.join("in");
    fs::create_dir(&input).unwrap();
    let weight = numbers(16 * 64, 4);
    let layout = WeightLayout::Mxfp4PackQuantized;
    let packed = Dialect::Ocp
        .encode(layout.format(), &weight, &[16, 64])
        .unwrap()
        .packed;
    let stored = layout.store("w", &packed.view(), None).unwrap();
    let mut map = serde_json::Map::new();
    for (i, tensor) in stored.iter().enumerate() {
        let view = TensorView::new(Dtype::U8, tensor.shape.clone(), &tensor.bytes).unwrap();
        let name = format!("model-{i}.safetensors");
        fs::write(
            input.join(&name),
            serialize([(&tensor.name, view)], None).unwrap(),
        )
        .unwrap();
        map.insert(tensor.name.clone(), name.into());
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(
        input.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();

    succeed(folder, "convert in out --to microscaling");
    let names = [
        "model-0.safetensors",
        "model-1.safetensors",
        "model.safetensors.index.json",
    ];
    assert_eq!(files(&folder.join("out")), names);
    let own = load(&fs::read(folder.join("out/model-0.safetensors")).unwrap()).unwrap();
    assert_eq!(own, BTreeMap::from([("w".to_owned(), packed)]));
    assert_eq!(run(folder, "diff in out/model.safetensors.index.json").0, 0);
    succeed(folder, "convert out again --to mxfp4-pack-quantized");
    assert!(folder.join("again/model.config.json").exists());
    assert_eq!(run(folder, "diff in again").0, 0);

    fs::write(
        input.join("model.safetensors.index.json"),
        r#"{"weight_map": {"w": "../x"}}"#,
    )
    .unwrap();
    let (status, said) = run(folder, "inspect in");
    assert!(
        status == 2 && said.contains("`../x` is not a file name"),
        "{said}"
    );
}

/// An error in a later weight leaves no new file, and keeps the old files.
#[test]
fn all_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [a, b] = [numbers(64, 5), numbers(80, 6)];
    write(
        &folder.join("in.safetensors"),
        &[("a", &[2, 32], &a), ("b", &[2, 40], &b)],
    );
    fs::write(folder.join("out.safetensors"), "as it was").unwrap();
    let (status, said) = run(
        folder,
        "quantize in.safetensors out.safetensors --layout gpt-oss --force",
    );
    assert!(status == 2 && said.contains("`b`"), "{said}");
    assert_eq!(
        fs::read(folder.join("out.safetensors")).unwrap(),
        b"as it was"
    );
    assert_eq!(files(folder), ["in.safetensors", "out.safetensors"]);
    // A name that a packed weight would take from another tensor.
    write(
        &folder.join("in.safetensors"),
        &[("a", &[2, 32], &a), ("a_scales", &[2, 1], &b[..2])],
    );
    let line = "quantize in.safetensors out.safetensors --layout gpt-oss --only a --force";
    let (status, said) = run(folder, line);
    assert!(
        status == 2 && said.contains("two tensors would have the name `a_scales`"),
        "{said}"
    );
    assert_eq!(files(folder), ["in.safetensors", "out.safetensors"]);
}

#[test]
fn stochastic_rounding_has_a_seed_and_a_stream_for_each_weight() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = numbers(4 * 64, 7);
    write(
        &folder.join("in.safetensors"),
        &[("a", &[4, 64], &data), ("b", &[4, 64], &data)],
    );
    let line = "quantize in.safetensors OUT --format mxfp4 --rounding stochastic --seed SEED";
    for (out, seed) in [("one", "1"), ("again", "1"), ("other", "2")] {
        succeed(folder, &line.replace("OUT", out).replace("SEED", seed));
    }
    let [one, again, other] =
        ["one", "again", "other"].map(|name| fs::read(folder.join(name)).unwrap());
    assert!(one == again && one != other);
    let weights = load(&one).unwrap();
    assert_ne!(weights["a"].elements(), weights["b"].elements());
    assert_eq!(
        save(&weights).map(|file| load(&file).unwrap()).unwrap(),
        weights
    );
}

/// NaN is one difference, and −0 another.
#[test]
fn differences() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut data = numbers(64, 8);
    data[0] = 0.0;
    write(
        &folder.join("one"),
        &[("a", &[64], &data), ("only", &[1], &[1.0])],
    );
    (data[0], data[7]) = (-0.0, f32::NAN);
    write(&folder.join("other"), &[("a", &[64], &data)]);
    let (status, said) = run(folder, "diff one other");
    assert_eq!(status, 1);
    assert!(
        said.contains("2 of 64") && said.contains("NaN") && said.contains("missing"),
        "{said}"
    );
    assert!(said.contains("2 of 2 tensors differ"), "{said}");
}

/// Another layout has burn-mx's specs, too, and says whose names the tensors keep.
#[test]
fn burn_mx_metadata_is_carried_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = numbers(32 * 64, 9);
    write(&folder.join("in"), &[("w", &[32, 64], &data)]);
    succeed(folder, "quantize in own --format mxfp4 --dialect ocp");
    let header = |name: &str| -> HashMap<String, String> {
        let file = fs::read(folder.join(name)).unwrap();
        let (_, header) = SafeTensors::read_metadata(&file).unwrap();
        header.metadata().clone().unwrap()
    };
    let burn_mx = |name: &str| -> serde_json::Value {
        serde_json::from_str(&header(name)["burn_mx"]).unwrap()
    };
    let with_burn_mx = |text: &str| {
        let file = fs::read(folder.join("own")).unwrap();
        let stored = SafeTensors::deserialize(&file).unwrap();
        let metadata = header("own")
            .into_iter()
            .chain([("burn_mx".into(), text.to_owned())]);
        serialize_to_file(
            stored.tensors(),
            Some(metadata.collect()),
            &folder.join("with"),
        )
        .unwrap();
    };
    let written = serde_json::json!({
        "layout": "microscaling",
        "specs": [{"w_elem_format": "mxfp4"}],
        "weights": {"w": 0},
    });
    with_burn_mx(&written.to_string());

    succeed(folder, "convert with there --to mxfp4-pack-quantized");
    let mut expected = written.clone();
    expected["layout"] = "mxfp4-pack-quantized".into();
    expected["names"] = "burn".into();
    assert_eq!(burn_mx("there"), expected);
    assert!(!header("there").contains_key("microscaling"));
    succeed(folder, "convert there back --to microscaling");
    expected["layout"] = "microscaling".into();
    assert_eq!(burn_mx("back"), expected);
    assert_eq!(run(folder, "diff with back").0, 0);
    let load = |name: &str| load(&fs::read(folder.join(name)).unwrap()).unwrap();
    assert_eq!(load("with"), load("back"));
    // Names of PyTorch's, where the field is missing.
    expected["layout"] = "gpt-oss".into();
    expected.as_object_mut().unwrap().remove("names");
    with_burn_mx(&expected.to_string());
    succeed(folder, "convert with there --to microscaling --force");
    assert_eq!(burn_mx("there")["names"], "pytorch");

    for (text, parts) in [
        (
            "[]",
            "the description under `burn_mx` cannot be read: invalid type",
        ),
        ("{}", "the description under `burn_mx`: `layout` is missing"),
        (r#"{"layout": "x"}"#, "`x`"),
    ] {
        with_burn_mx(text);
        let (status, said) = run(folder, "convert with never --to gpt-oss");
        assert!(status == 2 && said.contains(parts), "{said}");
    }
    assert!(!folder.join("never").exists());
}

/// `--json` has the rows of the text's tables as objects; `--csv` has the same rows.
#[test]
fn results_as_json_and_as_csv() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (w, n) = (numbers(16 * 64, 1), numbers(64, 2));
    write(
        &folder.join("model.safetensors"),
        &[("w, \"1\"", &[16, 64], &w), ("7", &[64], &n)],
    );
    let json =
        |line: &str| -> serde_json::Value { serde_json::from_str(&succeed(folder, line)).unwrap() };
    let written = json("--json quantize model.safetensors packed.safetensors --format mxfp4");
    assert_eq!(written["format"], "mxfp4");
    assert_eq!(written["files"], serde_json::json!(["packed.safetensors"]));
    assert_eq!(written["weights"][0]["bytes"], 16 * 64 / 2 + 16 * 2);
    let sqnr = written["weights"][0]["sqnr_in_db"].as_f64().unwrap();
    assert!(sqnr > 10.0 && sqnr < 40.0, "{sqnr}");

    let held = json("inspect packed.safetensors --json");
    assert_eq!(held["weights"][0]["packed_weight"], "w, \"1\"");
    assert_eq!(held["weights"][0]["shape"], "[16, 64]");
    // A name is text, with any characters.
    assert_eq!(held["others"][0]["other_tensor"], "7");
    assert_eq!(held["bytes_of_others"], 256);
    let differ = json("diff packed.safetensors packed.safetensors --json");
    assert_eq!(differ["differ"], 0);
    assert_eq!(differ["differences"], serde_json::json!([]));
    let elements = &json("formats mxfp4 --json")["elements"]["mxfp4"];
    assert_eq!(elements[7], "6");

    // UE5M3 as AMD defines it: a bias of 15, values up to 1.75 · 2^16, one code for NaN.
    let sheets = &json("formats amdfp4 mxfp4 --json")["datasheet"];
    let value = |property: &str, format: &str| {
        let mut rows = sheets.as_array().unwrap().iter();
        let row = rows.find(|row| row["property"] == property);
        row.unwrap_or_else(|| panic!("{property}: {sheets}"))[format].clone()
    };
    let scale = "ue5m3: no sign, 5 exponent bits (bias 15), 3 mantissa bits";
    assert_eq!(value("scale", "amdfp4"), scale);
    let values = "2^-17 to 114688, subnormal numbers included";
    assert_eq!(value("scale values", "amdfp4"), values);
    assert_eq!(value("scale codes without a number", "amdfp4"), "NaN 0xff");
    assert_eq!(value("scale values", "mxfp4"), "2^-127 to 2^127");
    assert_eq!(
        value("element values", "mxfp4"),
        "± 0, 0.5, 1, 1.5, 2, 3, 4, 6"
    );
    assert_eq!(value("area", "mxfp4"), "0.38 of a lane of MXFP8 E4M3");

    let csv = succeed(folder, "inspect packed.safetensors --csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "Packed weight,Layout,Format,Shape,Axis,Bytes");
    assert_eq!(
        lines[1],
        "\"w, \"\"1\"\"\",microscaling,mxfp4,\"[16, 64]\",1,544"
    );
    assert_eq!(
        lines[2..],
        [
            "",
            "Group,Layout,Format,Bits,Activations,Scales,Layers,First layer",
            "-,microscaling,mxfp4,4,-,code · scale,1,\"w, \"\"1\"\"\"",
            "",
            "Other tensor,Type,Shape,Bytes",
            "7,F32,[64],256"
        ]
    );
    let (status, said) = run(folder, "formats --json --csv");
    assert_eq!(status, 2, "{said}");
}

#[test]
fn shells_can_complete_the_verbs() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = succeed(folder.path(), &format!("completions {shell}"));
        for word in [
            "quantize", "inspect", "diff", "convert", "formats", "p3109", "dialect",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(folder.path(), "completions cmd").0, 2);
}

/// Facts of the report: codes of binary8p4se's special values, and projections that a reader can check by hand.
#[test]
fn formats_of_p3109() {
    let folder = tempfile::tempdir().unwrap();
    let json = |arguments: &str| -> serde_json::Value {
        let (status, said) = run(folder.path(), &format!("p3109 {arguments} --json"));
        assert_eq!(status, 0, "{said}");
        serde_json::from_str(&said).unwrap()
    };
    let facts = json("binary8p4se 0.3 -1000 inf nan");
    let rows = facts["format"].as_array().unwrap();
    let row = rows.iter().find(|row| row["property"] == "code of NaN");
    assert_eq!(row.unwrap()["binary8p4se"], "0x80");
    let codes = |facts: &serde_json::Value| -> Vec<String> {
        let rows = facts["projections"].as_array().unwrap();
        rows.iter()
            .map(|row| row["code"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(codes(&facts), ["0x32", "0xfe", "0x7e", "0x80"]);
    let kept = json("binary8p4se inf -1000 --saturation SatNone");
    assert_eq!(codes(&kept), ["0x7f", "0xff"]);
    let all = json("binary4p2sf");
    assert_eq!(all["codes"].as_array().unwrap().len(), 16);
    for (arguments, expected) in [
        ("binary8p9se", "precision is 9, expected 1 to 7"),
        (
            "binary8p4se 1 --rounding even",
            "expected one of TowardZero",
        ),
        (
            "binary8p4se 1 --rounding StochasticB --random-bits 2 --random 4",
            "random is 4, expected less than 2^2",
        ),
        ("binary8p4se x", "invalid float literal"),
    ] {
        let (status, said) = run(folder.path(), &format!("p3109 {arguments}"));
        assert!(status == 2 && said.contains(expected), "{said}");
    }
}
