//! `microscaling c-reference`: the files that it writes, and the formats that it refuses.

mod support;

use std::fs;
use support::{files, refuse, run, succeed};

#[test]
fn files_have_the_functions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let line = "c-reference nvfp4 --accumulator blackwell --prefix nv --out model/nv.h --systemverilog model/nv.sv --dpi model/nv_dpi.sv";
    let said = succeed(folder, line);
    assert!(said.contains("nv.h") && said.contains("nv_dpi.c"), "{said}");
    assert_eq!(
        files(&folder.join("model")),
        ["nv.h", "nv.sv", "nv_dpi.c", "nv_dpi.sv"]
    );
    let read = |name: &str| fs::read_to_string(folder.join("model").join(name)).unwrap();
    let header = read("nv.h");
    assert!(header.contains("uint32_t nv_dot("));
    // The command in the header's comment writes the same header.
    let command = header.split('`').nth(1).unwrap().replace('\'', "");
    let command = command.strip_prefix("microscaling ").unwrap();
    succeed(folder, &format!("{command} --out again.h"));
    assert_eq!(fs::read_to_string(folder.join("again.h")).unwrap(), header);
    assert!(read("nv.sv").contains("module nv_quantize_block"));
    assert!(read("nv_dpi.c").contains("#include \"nv.h\""));
    assert!(read("nv_dpi.sv").contains("function int unsigned nv_dpi_dot"));
    let said = succeed(folder, "c-reference binary8p4se --out p3109.h --json");
    assert!(said.contains("\"files\""), "{said}");
}

#[test]
fn wrong_arguments_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (line, parts) in [
        ("c-reference mxfp5 --out a.h", ["mxfp5", "mxfp4"]),
        (
            "c-reference nf4 --out a.h",
            ["element is table(nf4)", "expected"],
        ),
        (
            "c-reference hif4 --out a.h",
            ["sub_scales is 8/4", "expected none"],
        ),
        (
            "c-reference binary8p9se --out a.h",
            ["precision is 9", "1 to 7"],
        ),
        (
            "c-reference mxfp4 --accumulator hopper --out a.h",
            ["hopper", "accumulator"],
        ),
        (
            "c-reference mxfp4 --prefix 4 --out a.h",
            ["prefix is `4`", "letter"],
        ),
        (
            "c-reference mxfp4 --out a.h --systemverilog a.h",
            ["two outputs are `a.h`", "allowed"],
        ),
        (
            "c-reference mxfp4 --out a.h --dpi b/c.sv",
            ["--dpi is in folder `b`", "expected"],
        ),
        (
            "c-reference mx(element=fp4_e2m1,block_size=0) --out a.h --systemverilog a.sv",
            ["block_size is 0", "at least 1"],
        ),
        ("c-reference mxfp4", ["--out", "required"]),
    ] {
        refuse(folder, line, &parts);
        assert!(files(folder).is_empty(), "{line}");
    }
    fs::write(folder.join("a.h"), "mine").unwrap();
    refuse(
        folder,
        "c-reference mxfp4 --out a.h",
        &["a.h exists", "--force"],
    );
    assert_eq!(fs::read_to_string(folder.join("a.h")).unwrap(), "mine");
    let (status, said) = run(folder, "c-reference mxfp4 --out a.h --force");
    assert_eq!(status, 0, "{said}");
    assert_ne!(fs::read_to_string(folder.join("a.h")).unwrap(), "mine");
}
