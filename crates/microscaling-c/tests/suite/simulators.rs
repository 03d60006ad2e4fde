//! Programs that read SystemVerilog.

use crate::cases::full;
use crate::compiled::accepts;
use microscaling_c::{Reference, Subject};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

/// The programs that read SystemVerilog.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tool {
    Icarus,
    Verilator,
    /// The C functions in Verilator.
    Dpi,
    /// The gates that Yosys makes of the model, in Icarus.
    Gates,
}

/// Whether a program is installed. Without the program a test prints a line and ends.
pub(crate) fn has(program: &str, version: &str) -> bool {
    let there = Command::new(program).arg(version).output().is_ok();
    if !there {
        eprintln!("there is no `{program}`: not tested");
    }
    there
}

impl Tool {
    pub(crate) fn is_installed(self) -> bool {
        match self {
            Self::Icarus => has("iverilog", "-V"),
            Self::Verilator | Self::Dpi => has("verilator", "--version") && has("g++", "--version"),
            Self::Gates => has("iverilog", "-V") && has("yosys", "-V"),
        }
    }
}

/// A format's files in a folder: the model, its C, and the cases of a bench.
pub(crate) struct Bench {
    folder: TempDir,
    reference: Reference,
    defines: Vec<&'static str>,
    /// Elements of a block, or 1.
    elements: usize,
}

/// The longest blocks that Yosys reads here.
const MOST_ELEMENTS: usize = 8;

impl Bench {
    pub(crate) fn new(subject: Subject, bench: &str, cases: &str) -> Self {
        let mut new = Self::of(Reference::new(subject).unwrap(), bench, cases);
        if let Subject::Block(format) = subject {
            new.elements = full(&format);
            let defines = &mut new.defines;
            defines.extend(format.tensor_scale.then_some("-DTENSOR"));
            defines.extend(format.shifts.is_some().then_some("-DSHIFTS"));
        }
        new
    }

    /// A bench that needs no defines.
    pub(crate) fn of(reference: Reference, bench: &str, cases: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let reference = reference.with_prefix("model").unwrap();
        let [package, source] = reference.dpi("model.h", "dpi.c").unwrap();
        for (name, text) in [
            ("model.sv", reference.systemverilog().unwrap().as_str()),
            ("model.h", &reference.header()),
            ("dpi.sv", &package),
            ("dpi.c", &source),
            ("bench.sv", bench),
            ("cases.hex", cases),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self {
            folder,
            reference,
            defines: Vec::new(),
            elements: 1,
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path());
        command
    }

    /// Runs the bench. Returns the bench's output.
    pub(crate) fn simulate(&self, tool: Tool) -> String {
        if tool == Tool::Gates {
            self.synthesize();
        }
        let mut build = match tool {
            Tool::Icarus | Tool::Gates => {
                let mut icarus = self.command("iverilog");
                icarus.args([
                    "-g2012",
                    "-Wall",
                    "-Wno-timescale",
                    "-s",
                    "bench",
                    "-o",
                    "simulation",
                ]);
                let model = match tool {
                    Tool::Gates => "gates.sv",
                    _ => "model.sv",
                };
                icarus.args(&self.defines).args([model, "bench.sv"]);
                icarus
            }
            Tool::Verilator | Tool::Dpi => {
                let mut verilator = self.command("verilator");
                verilator.args([
                    "--binary",
                    "--timing",
                    "--top-module",
                    "bench",
                    "-CFLAGS",
                    "-O0",
                    "-Wno-fatal",
                    "-Wno-lint",
                ]);
                verilator.args(["-o", "../simulation"]).args(&self.defines);
                verilator.arg("model.sv");
                if tool == Tool::Dpi {
                    verilator.args(["-DDPI", "dpi.sv", "dpi.c", "-CFLAGS", "-I.."]);
                }
                verilator.arg("bench.sv");
                verilator
            }
        };
        let output = build.output().unwrap();
        assert!(
            output.status.success(),
            "{build:?}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let mut run = match tool {
            Tool::Icarus | Tool::Gates => {
                let mut vvp = self.command("vvp");
                vvp.arg("simulation");
                vvp
            }
            _ => self.command("./simulation"),
        };
        let output = run.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The result of each case.
    pub(crate) fn results(&self, tool: Tool) -> Vec<Vec<u32>> {
        self.simulate(tool);
        let text = fs::read_to_string(self.folder.path().join("results.hex")).unwrap();
        let word = |word: &str| u32::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{word}"));
        text.lines()
            .map(|line| line.split_whitespace().map(word).collect())
            .collect()
    }

    /// The names of the model's modules.
    fn modules(text: &str) -> impl Iterator<Item = &str> {
        let modules = text.lines().filter_map(|line| line.strip_prefix("module "));
        modules.map(|rest| rest.split([' ', '(']).next().unwrap())
    }

    /// Writes the model's package and the gates of its modules. The gates have neither a latch, nor a register, nor a loop, and no
    /// cell is left that is none.
    fn synthesize(&self) {
        let text = self.reference.systemverilog().unwrap();
        let end = text.find("endpackage").unwrap();
        let mut gates = format!("{}endpackage\n", &text[..end]);
        for module in Self::modules(&text) {
            let script = format!(
                "read_verilog -sv model.sv; synth -flatten -top {module}; check -assert; \
                 select -assert-none t:$* t:$_*_ %d; select -assert-none t:$_*DLATCH*_ t:$_*DFF*_ t:$_*LATCH*_ t:$_FF_; \
                 select -assert-any t:$_*_; write_verilog -noattr {module}.v"
            );
            accepts(self.command("yosys").args(["-q", "-p", &script]));
            gates += &fs::read_to_string(self.folder.path().join(format!("{module}.v"))).unwrap();
        }
        fs::write(self.folder.path().join("gates.sv"), gates).unwrap();
    }

    /// Verilator has no warning, and Yosys makes circuits, without a latch or a loop.
    pub(crate) fn lint(&self) {
        let text = self.reference.systemverilog().unwrap();
        for module in Self::modules(&text) {
            if has("verilator", "--version") {
                accepts(self.command("verilator").args([
                    "--lint-only",
                    "-Wall",
                    "--top-module",
                    module,
                    "model.sv",
                ]));
            }
            // Yosys takes long for large blocks, whose elements are alike.
            if self.elements <= MOST_ELEMENTS && has("yosys", "-V") {
                let script = format!(
                    "read_verilog -sv model.sv; hierarchy -check -top {module}; proc; check -assert; select -assert-none t:$dlatch t:$dff"
                );
                accepts(self.command("yosys").args(["-q", "-p", &script]));
            }
        }
    }
}
