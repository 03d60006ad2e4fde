//! The files that the program writes and the files that it must not replace; arrays of NumPy.

mod support;

use microscaling::safetensors::load;
use microscaling::{Packed, Rounder};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use support::{files, succeed};

fn output(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_microscaling"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The message of a command that is refused.
fn refuse(folder: &Path, line: &str) -> String {
    let output = output(folder, line);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    said
}

/// A file with one weight of float32.
fn weight(name: &str) -> Vec<u8> {
    let bytes: Vec<u8> = (0..128)
        .flat_map(|i| (i as f32 - 60.0).to_le_bytes())
        .collect();
    let view = TensorView::new(Dtype::F32, vec![2, 64], &bytes).unwrap();
    serialize([(name, view)], None).unwrap()
}

/// Not even with `--force`, and by no other name of the file.
#[test]
fn no_input_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let float = weight("w");
    fs::write(folder.join("w.safetensors"), &float).unwrap();
    fs::create_dir(folder.join("sub")).unwrap();
    let mut names = vec!["w.safetensors", "sub/../w.safetensors", "."];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("w.safetensors", folder.join("link")).unwrap();
        fs::hard_link(folder.join("w.safetensors"), folder.join("hard")).unwrap();
        names.extend(["link", "hard"]);
    }
    for name in names {
        for force in ["", "--force"] {
            let line = format!("quantize w.safetensors {name} --format mxfp4 {force}");
            let said = refuse(folder, &line);
            assert!(said.contains("which is read"), "{line}: {said}");
            assert_eq!(fs::read(folder.join("w.safetensors")).unwrap(), float);
        }
    }
    succeed(
        folder,
        "quantize w.safetensors p.safetensors --format mxfp4",
    );
    let packed = fs::read(folder.join("p.safetensors")).unwrap();
    let said = refuse(
        folder,
        "convert p.safetensors p.safetensors --to gpt-oss --force",
    );
    assert!(said.contains("which is read"), "{said}");
    assert_eq!(fs::read(folder.join("p.safetensors")).unwrap(), packed);
    assert!(!files(folder).iter().any(|name| name.contains("partial")));
}

/// An index and shards, into their own folder.
#[test]
fn no_shard_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("in")).unwrap();
    fs::write(folder.join("in/a.safetensors"), weight("w")).unwrap();
    let index = r#"{"metadata": {}, "weight_map": {"w": "a.safetensors"}}"#;
    let index_file = folder.join("in/model.safetensors.index.json");
    fs::write(&index_file, index).unwrap();
    for input in ["in", "in/model.safetensors.index.json"] {
        let said = refuse(
            folder,
            &format!("quantize {input} in --format mxfp4 --force"),
        );
        assert!(said.contains("which is read"), "{said}");
    }
    assert_eq!(
        fs::read(folder.join("in/a.safetensors")).unwrap(),
        weight("w")
    );
    assert_eq!(fs::read_to_string(index_file).unwrap(), index);
}

#[test]
fn an_output_that_exists_needs_force() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("w.safetensors"), weight("w")).unwrap();
    let theirs = [
        ("p.safetensors", "--format mxfp4"),
        ("q.config.json", "--layout mxfp4-pack-quantized"),
    ];
    for (name, option) in theirs {
        fs::write(folder.join(name), "mine").unwrap();
        let stem = &name[..1];
        let line = format!("quantize w.safetensors {stem}.safetensors {option}");
        let said = refuse(folder, &line);
        assert!(
            said.contains(&format!("{name} exists; `--force`")),
            "{said}"
        );
        assert_eq!(fs::read(folder.join(name)).unwrap(), b"mine");
        succeed(folder, &format!("{line} --force"));
        assert_ne!(fs::read(folder.join(name)).unwrap(), b"mine");
    }
    let said = refuse(folder, "convert p.safetensors q.safetensors --to gpt-oss");
    assert!(said.contains("q.safetensors exists"), "{said}");
    // A link that leads nowhere is somebody's, too.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere", folder.join("link")).unwrap();
        let said = refuse(folder, "quantize w.safetensors link --format mxfp4");
        assert!(said.contains("link exists"), "{said}");
    }
    let expected = [
        "p.safetensors",
        "q.config.json",
        "q.safetensors",
        "w.safetensors",
    ];
    let found = files(folder);
    let found = found.iter().filter(|name| *name != "link");
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn a_folder_with_one_file_becomes_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("in")).unwrap();
    fs::create_dir_all(folder.join("there")).unwrap();
    fs::write(folder.join("in/model.safetensors"), weight("w")).unwrap();
    let layout = "--layout mxfp4-pack-quantized";
    for out in ["new", "there", "new/below/"] {
        succeed(folder, &format!("quantize in {out} {layout}"));
        let expected = ["model.config.json", "model.safetensors"];
        let found = files(&folder.join(out));
        let found = found.iter().filter(|name| *name != "below");
        assert_eq!(found.collect::<Vec<_>>(), expected, "{out}");
    }
    // A file into a folder that exists; a folder's file to a name that ends as files' names do.
    fs::create_dir(folder.join("also")).unwrap();
    succeed(folder, "quantize in/model.safetensors also --format mxfp4");
    succeed(folder, "quantize in file.safetensors --format mxfp4");
    assert_eq!(files(&folder.join("also")), ["model.safetensors"]);
    let one = fs::read(folder.join("file.safetensors")).unwrap();
    assert_eq!(
        one,
        fs::read(folder.join("also/model.safetensors")).unwrap()
    );
    // The folder's name is a file's.
    fs::write(folder.join("taken"), "mine").unwrap();
    let said = refuse(folder, &format!("quantize in taken {layout} --force"));
    assert!(said.contains("taken"), "{said}");
    assert_eq!(fs::read(folder.join("taken")).unwrap(), b"mine");
}

/// A user's file of the name that temporary files once had, and runs at the same time.
#[test]
fn other_runs_and_other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("w.safetensors"), weight("w")).unwrap();
    fs::write(folder.join("p.safetensors.partial"), "mine").unwrap();
    let run = |option: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_microscaling"));
        command.current_dir(folder);
        command.args([
            "quantize",
            "w.safetensors",
            "p.safetensors",
            "--format",
            "mxfp4",
        ]);
        command.args(option.split_whitespace());
        command.stderr(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    for option in ["", "--force"] {
        let runs: Vec<_> = (0..8).map(|_| run(option)).collect();
        let runs = runs.into_iter().map(|run| run.wait_with_output().unwrap());
        let (good, bad): (Vec<_>, Vec<_>) = runs.partition(|run| run.status.success());
        assert_eq!(good.len(), if option.is_empty() { 1 } else { 8 });
        for run in bad {
            let said = String::from_utf8(run.stderr).unwrap();
            assert!(said.contains("p.safetensors exists"), "{said}");
        }
        let file = fs::read(folder.join("p.safetensors")).unwrap();
        assert_eq!(load(&file).unwrap()["w"].shape(), [2, 64]);
    }
    let mine = fs::read(folder.join("p.safetensors.partial")).unwrap();
    assert_eq!(mine, b"mine");
    let expected = ["p.safetensors", "p.safetensors.partial", "w.safetensors"];
    assert_eq!(files(folder), expected);
}

/// A file as NumPy's format 1.0 says.
fn npy(descr: &str, is_fortran: bool, shape: &str, data: &[f32]) -> Vec<u8> {
    let order = if is_fortran { "True" } else { "False" };
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    let header = format!("{header:<117}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data.iter().flat_map(|x| x.to_le_bytes()));
    file
}

#[test]
fn arrays_of_numpy() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data: Vec<f32> = (0..128).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
    // The same array with the first axis fastest.
    let columns: Vec<f32> = (0..128).map(|i| data[i % 2 * 64 + i / 2]).collect();
    let write = |name: &str, file: Vec<u8>| fs::write(folder.join(name), file).unwrap();
    write("w.npy", npy("<f4", false, "(2, 64)", &data));
    write("columns.npy", npy("<f4", true, "(2, 64)", &columns));
    let format = "mxfp4".parse().unwrap();
    let packed = Packed::encode(format, &data, &[2, 64], 1, Rounder::NearestEven).unwrap();
    for name in ["w", "columns"] {
        let line = format!("quantize {name}.npy {name}.safetensors --format mxfp4");
        succeed(folder, &line);
        let file = fs::read(folder.join(format!("{name}.safetensors"))).unwrap();
        assert_eq!(load(&file).unwrap()[name], packed);
    }
    let said = succeed(folder, "inspect w.npy");
    assert!(said.contains("F32") && said.contains("[2, 64]"), "{said}");
    assert_eq!(output(folder, "diff w.npy w.npy").status.code(), Some(0));
    assert_eq!(
        output(folder, "diff w.npy w.safetensors").status.code(),
        Some(1)
    );

    write("big.npy", npy(">f4", false, "(2, 64)", &data));
    write("short.npy", npy("<f4", false, "(3, 64)", &data));
    write("none.npy", weight("w"));
    write("vector.npy", npy("<f4", false, "(128,)", &data));
    for (name, part) in [
        ("big", "`>f4`; allowed: <f4"),
        ("short", "512 bytes for shape [3, 64]"),
        ("none", "no array of NumPy"),
        (
            "vector",
            "no tensor of floats has elements, has two axes or more",
        ),
    ] {
        let said = refuse(folder, &format!("quantize {name}.npy out --format mxfp4"));
        assert!(said.contains(part), "{said}");
    }
    let said = refuse(folder, "quantize w.npy out.npy --format mxfp4");
    assert!(said.contains("`out.npy`; allowed"), "{said}");
}

/// A loop over all roundings may give each the seed.
#[test]
fn a_seed_goes_with_every_rounding() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("w.safetensors"), weight("w")).unwrap();
    let line = "quantize w.safetensors OUT --format mxfp4 --rounding MODE";
    for mode in ["even", "nearest", "floor", "stochastic"] {
        let line = line.replace("MODE", mode);
        let said = succeed(folder, &format!("{} --seed 7", line.replace("OUT", mode)));
        let told = said.contains("draws no random numbers");
        assert_eq!(told, mode != "stochastic", "{said}");
        if mode != "stochastic" {
            succeed(folder, &line.replace("OUT", "plain").replace("MODE", mode));
            let [one, other] = [mode, "plain"].map(|name| fs::read(folder.join(name)).unwrap());
            assert!(one == other, "{mode}");
            fs::remove_file(folder.join("plain")).unwrap();
        }
    }
    let said = refuse(
        folder,
        "quantize w.safetensors x --format mxfp4 --rounding stochastic",
    );
    assert!(said.contains("--seed"), "{said}");
}

#[test]
fn nan_and_inf_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut data = vec![1.0_f32; 128];
    (data[0], data[1], data[70]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    fs::write(folder.join("w.npy"), npy("<f4", false, "(2, 64)", &data)).unwrap();
    let said = succeed(folder, "quantize w.npy out --format mxfp8_e4m3");
    assert!(
        said.contains("3 elements of the input are NaN or Inf"),
        "{said}"
    );
    let said = succeed(
        folder,
        "quantize w.npy out --format mxfp8_e4m3 --force --json",
    );
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json["weights"][0]["nan_or_inf"], 3);
    assert_eq!(json["nan_or_inf"], 3);
    let file = fs::read(folder.join("out")).unwrap();
    SafeTensors::deserialize(&file).unwrap();
}

/// A reader of the folder would find the other checkpoint, or take parts of both for one.
#[test]
fn a_folder_with_another_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["model", "other"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    fs::write(folder.join("model/model.safetensors"), weight("w")).unwrap();
    for other in [
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
    ] {
        let path = folder.join("other").join(other);
        fs::write(&path, "{}").unwrap();
        for force in ["", "--force"] {
            let line = format!("quantize model other --format mxfp4 {force}");
            let said = refuse(folder, &line);
            assert!(
                said.contains(other) && said.contains("another checkpoint"),
                "{said}"
            );
        }
        assert_eq!(files(&folder.join("other")), [other]);
        fs::remove_file(path).unwrap();
    }
    fs::write(folder.join("other/notes.txt"), "kept").unwrap();
    succeed(folder, "quantize model other --format mxfp4");
    succeed(folder, "quantize model other --format mxfp4 --force");
}

/// A format's own rounding, and no other one beside.
#[test]
fn a_format_rounds_by_its_own_rule() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("w.safetensors"), weight("w")).unwrap();
    let line = |format: &str, rest: &str| {
        format!("quantize w.safetensors out.safetensors --force --format {format} {rest}")
    };
    let own = "mx(element=fp4_e2m1,rounding=down)";
    for rounding in ["even", "stochastic --seed 1"] {
        let said = refuse(folder, &line(own, &format!("--rounding {rounding}")));
        assert!(
            said.contains("`--rounding` is") && said.contains("rounding down"),
            "{said}"
        );
    }
    let packed = |line: String| {
        succeed(folder, &line);
        let file = fs::read(folder.join("out.safetensors")).unwrap();
        load(&file).unwrap().remove("w").unwrap()
    };
    let down = packed(line(own, ""));
    assert_ne!(down.elements(), packed(line("mxfp4", "")).elements());
    let drawn = "mx(element=fp4_e2m1,rounding=stochastic,random_bits=2)";
    let said = refuse(folder, &line(drawn, ""));
    assert!(said.contains("`--seed`"), "{said}");
    let [one, two] = [1, 2].map(|seed| packed(line(drawn, &format!("--seed {seed}"))));
    assert_ne!(one.elements(), two.elements());
}

/// The search for the largest difference goes on after a NaN.
#[test]
fn the_largest_difference_beside_a_nan() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, numbers: [f32; 4]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![2, 2], &bytes).unwrap();
        fs::write(folder.join(name), serialize([("w", view)], None).unwrap()).unwrap();
    };
    write("a.safetensors", [100.0, f32::NAN, 1.0, 1.0]);
    let other_nan = f32::from_bits(f32::NAN.to_bits() | 1);
    for (numbers, largest) in [
        ([0.0, 0.0, 0.5, 1.0], "NaN"),
        ([0.0, other_nan, 0.5, 1.0], "100"),
    ] {
        write("b.safetensors", numbers);
        let output = output(folder, "diff a.safetensors b.safetensors --csv");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&format!(",{largest},")), "{said}");
    }
}
