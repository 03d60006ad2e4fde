//! The backward pass of quantization-aware training, and resets of weights that oscillate, by options.

use std::fs;

use burn_mx::{Dialect, MxSpecs, QatBackward};
use serde_json::{Value, json};

use super::lora::{TRAIN, json, trained};
use super::tuning::run;

#[test]
fn a_backward_pass_by_name() {
    let temporary = trained();
    let folder = temporary.path();
    let tune = format!("{TRAIN} --from float/fp32 --lr 0.01 --steps 2 --formats mxfp4");
    let mut losses = Vec::new();
    for kind in [
        "straight-through",
        "masked",
        "dequantized",
        "high-precision",
    ] {
        run(folder, &format!("{tune} --qat-backward {kind} --out tuned")).unwrap();
        let settings = json(&folder.join(format!("tuned/mxfp4-qat-{kind}/run.json")));
        let backward: QatBackward = kind.parse().unwrap();
        let wanted = backward.apply(MxSpecs::mxfp4()).unwrap();
        let wanted: Value = serde_json::from_str(&wanted.to_json()).unwrap();
        assert_eq!(settings["format"]["specs"], wanted, "{kind}");
        let curve = json(&folder.join("tuned/loss.json"));
        losses.push(curve[format!("mxfp4-qat-{kind}")]["validation"].clone());
    }
    // Each kind has its own gradients.
    for (at, loss) in losses.iter().enumerate() {
        assert!(!losses[..at].contains(loss), "{losses:?}");
    }

    let specs = MxSpecs {
        dialect_w: Some(Dialect::ModelOpt),
        ..MxSpecs::mxfp4()
    };
    fs::write(
        folder.join("tool.json"),
        json!({ "specs": specs }).to_string(),
    )
    .unwrap();
    let from = format!("{TRAIN} --from float/fp32 --steps 1 --out no");
    for (arguments, parts) in [
        (
            "--formats mxfp4 --qat --qat-backward masked",
            ["--qat", "--qat-backward"],
        ),
        (
            "--formats mxfp4 --qat-backward quick",
            ["quick", "allowed: straight-through, masked"],
        ),
        (
            "--formats mxfp4 tool.json --qat-backward masked",
            ["tool: `dialect_w` is modelopt", "`mask_clipped` false"],
        ),
        (
            "--formats mxfp4_sr_rht --qat-backward dequantized",
            ["`hadamard_block_size` is 64", "allowed: 0"],
        ),
    ] {
        let error = run(folder, &format!("{from} {arguments}")).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{arguments}: {error}");
        }
        assert!(!folder.join("no").exists(), "{arguments}");
    }
}
