//! Headers as programs.

use microscaling_c::{Reference, Subject};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A header, compiled with a driver.
pub(crate) struct Compiled {
    folder: TempDir,
}

/// The flags under which a header compiles.
const FLAGS: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"];

/// Whether there is a C compiler. Without a compiler a test prints a line and ends.
pub(crate) fn has_compiler() -> bool {
    let there = Command::new("cc").arg("--version").output().is_ok();
    if !there {
        eprintln!("there is no `cc`: not tested");
    }
    there
}

/// Runs a compiler, which must succeed and print nothing.
pub(crate) fn accepts(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}");
    assert!(said.is_empty(), "{command:?}\n{said}");
}

/// Whether `cc` has a checker of undefined behavior.
fn has_sanitizer(folder: &Path) -> bool {
    let source = folder.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-fsanitize=undefined")
        .arg(&source)
        .arg("-o")
        .arg(folder.join("empty"));
    cc.output().is_ok_and(|output| output.status.success())
}

impl Compiled {
    /// The header compiles freestanding, and with a driver.
    pub(crate) fn new(reference: &Reference, subject: Subject, with_dot: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let reference = reference.clone().with_prefix("ref").unwrap();
        std::fs::write(at("ref.h"), reference.header()).unwrap();
        std::fs::write(
            at("alone.c"),
            "#include \"ref.h\"\n#include \"ref.h\"\nint nothing;\n",
        )
        .unwrap();
        let mut alone = Command::new("cc");
        alone
            .args(FLAGS)
            .args(["-ffreestanding", "-c"])
            .arg(at("alone.c"))
            .arg("-o")
            .arg(at("alone.o"));
        accepts(&mut alone);
        if with_dot && Command::new("c++").arg("--version").output().is_ok() {
            let mut cxx = Command::new("c++");
            cxx.args([
                "-x",
                "c++",
                "-std=c++11",
                "-Wall",
                "-Wextra",
                "-pedantic",
                "-Werror",
                "-fsyntax-only",
            ]);
            accepts(cxx.arg(at("alone.c")));
        }
        std::fs::write(at("driver.c"), include_str!("driver.c")).unwrap();
        let mut cc = Command::new("cc");
        cc.args(FLAGS)
            .arg(at("driver.c"))
            .arg("-o")
            .arg(at("driver"));
        match subject {
            Subject::Block(format) => {
                cc.arg("-DBLOCK");
                for (there, define) in [
                    (format.tensor_scale, "-DTENSOR"),
                    (format.shifts.is_some(), "-DSHIFTS"),
                ] {
                    cc.args(there.then_some(define));
                }
            }
            Subject::P3109(format) => {
                cc.arg("-DP3109")
                    .args(format.fits_float32().then_some("-DFLOAT32"));
            }
            Subject::Element(_) => {}
        }
        cc.args(with_dot.then_some("-DDOT"));
        if has_sanitizer(folder.path()) {
            cc.args(["-fsanitize=undefined", "-fno-sanitize-recover=all"]);
        }
        accepts(&mut cc);
        Self { folder }
    }

    /// The results of commands.
    pub(crate) fn run(&self, commands: Vec<u32>) -> Vec<u32> {
        let mut driver = Command::new(self.folder.path().join("driver"));
        driver
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = driver.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            let bytes: Vec<u8> = commands
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            input.write_all(&bytes).unwrap();
        });
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        writer.join().unwrap();
        let words = output.stdout.chunks_exact(4);
        words
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }
}

/// The number of a rounding mode in a header.
pub(crate) fn mode_number(rounding: microscaling::Rounding) -> u32 {
    use microscaling::Rounding;
    match rounding {
        Rounding::NearestAway => 0,
        Rounding::NearestEven => 1,
        Rounding::TowardZero => 2,
        Rounding::Stochastic => 3,
    }
}
