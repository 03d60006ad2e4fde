//! A converter that was written by hand, beside the generated models.

use crate::compiled::accepts;
use crate::simulators::{Tool, has};
use microscaling_c::Reference;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The hand-written converter from FP8 to MXFP4 equals the generated models, but with each of its faults.
#[test]
fn the_converter_s_faults_are_found() {
    if !Tool::Icarus.is_installed() {
        return;
    }
    let folder = TempDir::new().unwrap();
    for (name, format) in [("fp8", "fp8_e4m3"), ("mxfp4", "mxfp4")] {
        let reference = Reference::new(format.parse().unwrap()).unwrap();
        let text = reference.with_prefix(name).unwrap().systemverilog();
        fs::write(folder.path().join(format!("{name}.sv")), text.unwrap()).unwrap();
    }
    let converter = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/converter");
    let sources = ["fp4_of_fp8.sv", "converter.sv", "testbench.sv"];
    let sources = sources.map(|name| converter.join(name));
    for fault in [
        "NONE",
        "FAULT_SUBNORMAL_SCALE",
        "FAULT_TIES_AWAY",
        "FAULT_NEGATIVE_ZERO",
    ] {
        let mut icarus = Command::new("iverilog");
        icarus.current_dir(&folder);
        icarus.args(["-g2012", "-s", "testbench", "-o", "simulation"]);
        icarus
            .arg(format!("-D{fault}"))
            .args(["fp8.sv", "mxfp4.sv"])
            .args(&sources);
        accepts(&mut icarus);
        let output = Command::new("vvp")
            .current_dir(&folder)
            .arg("simulation")
            .output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        let found = said.lines().last().unwrap_or_default();
        let found = found.split(' ').next().unwrap().parse::<u32>().unwrap();
        assert_eq!(found > 0, fault != "NONE", "{fault}: {said}");
    }
    if has("verilator", "--version") {
        let mut lint = Command::new("verilator");
        lint.args(["--lint-only", "-Wall", "--top-module", "converter"]);
        accepts(lint.args(&sources[..2]));
    }
    if has("yosys", "-V") {
        let [element, block, _] = sources.map(|path| path.display().to_string());
        // A circuit for one element, and the block without its elements' gates.
        for script in [
            format!("read_verilog -sv {element}; synth -noabc -top fp4_of_fp8; check -assert"),
            format!(
                "read_verilog -sv {element} {block}; hierarchy -check -top converter; proc; check -assert"
            ),
        ] {
            accepts(Command::new("yosys").args(["-q", "-p", &script]));
        }
    }
}
