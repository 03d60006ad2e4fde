//! Schedules: their stages, and phases that form none.

use burn_core::module::Param;
use burn_core::tensor::Tensor;
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxBackend, MxDevice, MxSpecs};
use burn_mx_module::{
    Limit, Schedule, Stage, Stages, label_parameters, set_specs, set_specs_at, specs_of,
};

const LAYERS: [&str; 4] = ["embed", "blocks.0.up", "blocks.0.down", "head"];

fn schedule(text: &str) -> Result<Schedule, serde_json::Error> {
    serde_json::from_str(text)
}

/// The format of each layer's weight.
fn formats(stage: &Stage) -> Vec<String> {
    let format = |specs: &MxSpecs| specs.w_elem_format.map_or("-".into(), |f| f.to_string());
    let of_layer = |layer: &&str| match stage.recipe.layers.get(*layer) {
        Some(specs) => format(specs),
        None => format(&stage.recipe.specs),
    };
    LAYERS.iter().map(of_layer).collect()
}

#[test]
fn layers_change_one_after_another() {
    let text = r#"[
        {"from": 0, "preset": "mxfp8_e4m3"},
        {"from": 10, "ramp": 8, "recipe": {
            "specs": {"w_elem_format": "fp4_e2m1"},
            "exemptions": {"head": true, "last_percent": 0},
            "layers": {"blocks.*.up": {"w_elem_format": "fp6_e2m3"}}
        }},
        {"from": 40, "preset": "none"}
    ]"#;
    let schedule = schedule(text).unwrap();
    let stages = schedule.stages(&LAYERS).unwrap();
    let found: Vec<_> = stages
        .iter()
        .map(|stage| (stage.from, formats(stage).join(" ")))
        .collect();
    let expected = [
        (0, "fp8_e4m3 fp8_e4m3 fp8_e4m3 fp8_e4m3"),
        (10, "fp4_e2m1 fp8_e4m3 fp8_e4m3 fp8_e4m3"),
        (12, "fp4_e2m1 fp6_e2m3 fp8_e4m3 fp8_e4m3"),
        (14, "fp4_e2m1 fp6_e2m3 fp4_e2m1 fp8_e4m3"),
        (16, "fp4_e2m1 fp6_e2m3 fp4_e2m1 -"),
        (40, "- - - -"),
    ];
    let expected = expected.map(|(from, text)| (from, text.to_owned()));
    assert_eq!(found, expected);
    // Without its own layers a stage is as short as its recipe.
    assert!(stages[5].recipe.layers.is_empty());
    let text = serde_json::to_string(&schedule).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
}

#[test]
fn a_short_ramp_changes_several_layers_in_a_step() {
    let text = r#"[{"from": 0, "preset": "none"}, {"from": 5, "ramp": 2, "preset": "mxfp4"}]"#;
    let stages = schedule(text).unwrap().stages(&LAYERS).unwrap();
    let steps: Vec<u64> = stages.iter().map(|stage| stage.from).collect();
    assert_eq!(steps, [0, 5, 6]);
    assert_eq!(stages[1].recipe.layers.len(), 2);
    let long = u64::MAX - 6;
    let text = format!(
        r#"[{{"from": 0, "preset": "none"}}, {{"from": 5, "ramp": {long}, "preset": "mxfp4"}}]"#
    );
    let stages = schedule(&text).unwrap().stages(&LAYERS).unwrap();
    assert_eq!(stages[3].from, 5 + long / 2);
}

#[test]
fn what_is_wrong_is_named() {
    let error = |text: &str| schedule(text).unwrap_err().to_string();
    assert!(error("[]").contains("empty"));
    let late = error(r#"[{"from": 1, "preset": "mxfp4"}]"#);
    assert!(late.contains("phase 0: `from` is 1, expected 0"), "{late}");
    let early = r#"[{"from": 0, "preset": "none"}, {"from": 5, "ramp": 9, "preset": "mxfp4"}, {"from": 13, "preset": "none"}]"#;
    assert!(error(early).contains("phase 2: `from` is 13, expected 14 or more"));
    for from in [u64::MAX, u64::MAX - 1] {
        let text =
            format!(r#"[{{"from": 0, "preset": "none"}}, {{"from": {from}, "preset": "mxfp4"}}]"#);
        match from {
            u64::MAX => assert!(error(&text).contains(
                "phase 1: `from` is 18446744073709551615, expected at most 18446744073709551614"
            )),
            _ => assert!(schedule(&text).is_ok()),
        }
    }
    let ramp = error(r#"[{"from": 0, "ramp": 3, "preset": "mxfp4"}]"#);
    assert!(ramp.contains("`ramp` is 3, expected at most 0"), "{ramp}");
    assert!(error(r#"[{"from": 0}]"#).contains("either `preset` or `recipe`"));
    assert!(error(r#"[{"from": 0, "preset": "mxfp44"}]"#).contains("mxfp4"));
    let specs = r#"[{"from": 0, "recipe": {"specs": {"bfloat": 16, "fp": 16}}}]"#;
    assert!(error(specs).contains("phase 0: "));
    assert!(error(r#"[{"from": 0, "recipes": 1}]"#).contains("recipes"));
}

#[test]
fn the_last_phase_may_wait_for_a_limit() {
    let text = |from: u64, more: &str| {
        format!(
            r#"[{{"from": 0, "preset": "mxfp4"}}, {{"from": {from}, {more} "preset": "none"}}]"#
        )
    };
    let waiting = schedule(&text(7, r#""when": {"sqnr": 12.5},"#)).unwrap();
    let stages = waiting.stages(&LAYERS).unwrap();
    assert_eq!(stages.len(), 2);
    assert_eq!(
        (stages[0].when, stages[1].when),
        (None, Some(Limit::Sqnr(12.5)))
    );
    assert_eq!(stages[1].from, 7);
    let json = serde_json::to_string(&waiting).unwrap();
    assert_eq!(schedule(&json).unwrap(), waiting);

    let error = |text: &str| schedule(text).unwrap_err().to_string();
    let ramp = error(&text(7, r#""when": {"underflow": 1.0}, "ramp": 2,"#));
    assert!(
        ramp.contains("phase 1: `when` is Underflow(1.0), expected none"),
        "{ramp}"
    );
    let figure = error(&text(7, r#""when": {"loss": 1.0},"#));
    assert!(
        figure.contains("loss") && figure.contains("saturation"),
        "{figure}"
    );
    let middle = r#"[{"from": 0, "preset": "none"}, {"from": 5, "when": {"sqnr": 1.0}, "preset": "mxfp4"}, {"from": 9, "preset": "none"}]"#;
    assert!(error(middle).contains("phase 1: `when`"));
}

type B = MxBackend<Flex>;

fn model(count: usize) -> (Vec<Param<Tensor<B, 2>>>, MxDevice<FlexDevice>) {
    let device = MxDevice::new(FlexDevice, "mxfp8_e4m3").expect("a preset");
    let weight = |_| Param::from_tensor(Tensor::ones([2, 2], &device));
    ((0..count).map(weight).collect(), device)
}

#[allow(clippy::ptr_arg, reason = "the model is a Vec")]
fn run(model: &Vec<Param<Tensor<B, 2>>>) {
    let x = Tensor::ones([2, 2], &MxDevice::from(FlexDevice));
    model.iter().fold(x, |x, weight| x.matmul(weight.val()));
}

fn weight_formats(model: &[Param<Tensor<B, 2>>]) -> String {
    let format = |param: &Param<Tensor<B, 2>>| {
        let specs = specs_of(&param.val()).expect("the device has specs");
        let format = specs.specs().w_elem_format;
        format.map_or("-".into(), |format| format.to_string())
    };
    let formats: Vec<String> = model.iter().map(format).collect();
    formats.join(" ")
}

/// A stage changes the parameters without specs by path. Specs by path stay, also on parameters with labels.
#[test]
fn stages_keep_specs_by_path() {
    let text = r#"[
        {"from": 0, "preset": "mxfp8_e4m3"},
        {"from": 2, "ramp": 3, "preset": "mxfp4"},
        {"from": 6, "recipe": {"specs": {"w_elem_format": "fp6_e2m3"}, "layers": {"2": {"w_elem_format": "int8"}}}}
    ]"#;
    let (parameters, device) = model(4);
    let parameters = label_parameters(parameters);
    let none = MxSpecs::none().resolve().unwrap();
    let parameters = set_specs_at(parameters, "1", &none).unwrap();
    let schedule = schedule(text).unwrap();
    let stages = Stages::new(&schedule, &parameters, run).unwrap();
    let mut trained = stages.start(parameters.clone(), 0);
    let mut found = vec![weight_formats(&trained)];
    let mut batches = vec![stages.device(&device)];
    for _ in 0..7 {
        trained = stages.step(trained);
        found.push(weight_formats(&trained));
        batches.push(stages.device(&device));
    }
    let expected = [
        "fp8_e4m3 - fp8_e4m3 fp8_e4m3",
        "fp8_e4m3 - fp8_e4m3 fp8_e4m3",
        "fp4_e2m1 - fp8_e4m3 fp8_e4m3",
        "fp4_e2m1 - fp4_e2m1 fp8_e4m3",
        "fp4_e2m1 - fp4_e2m1 fp4_e2m1",
        "fp4_e2m1 - fp4_e2m1 fp4_e2m1",
        "fp6_e2m3 - int8 fp6_e2m3",
        "fp6_e2m3 - int8 fp6_e2m3",
    ];
    assert_eq!(found, expected);
    let batches = batches.iter().map(|device| {
        let specs = device.specs().expect("a stage has specs").specs();
        specs
            .w_elem_format
            .expect("all stages have one")
            .to_string()
    });
    let batches: Vec<_> = batches.collect();
    let (fp8, fp4, fp6) = ("fp8_e4m3", "fp4_e2m1", "fp6_e2m3");
    assert_eq!(batches, [fp8, fp8, fp8, fp8, fp4, fp4, fp6, fp6]);

    // A run that resumes begins with the specs of its step.
    for (done, expected) in expected.iter().enumerate() {
        let resumed = stages.start(parameters.clone(), done as u64);
        assert_eq!(weight_formats(&resumed), *expected, "{done}");
        assert_eq!(stages.done(), done as u64);
    }
}

#[test]
fn a_model_that_no_stage_can_change_is_refused() {
    let (parameters, _) = model(2);
    let new = |parameters: &Vec<_>, text: &str| {
        let stages = Stages::new(&schedule(text).unwrap(), parameters, run);
        stages.map(|_| ()).unwrap_err().to_string()
    };
    let phases = r#"[{"from": 0, "preset": "none"}, {"from": 5, "preset": "mxfp4"}]"#;
    let all = set_specs(parameters.clone(), &MxSpecs::mxfp4().resolve().unwrap());
    let error = new(&all, phases);
    assert!(
        error.contains("all 2 parameters") && error.contains("clear_specs_at"),
        "{error}"
    );
    let limit =
        r#"[{"from": 0, "preset": "none"}, {"from": 5, "when": {"sqnr": 9.0}, "preset": "mxfp4"}]"#;
    let error = new(&parameters, limit);
    assert!(
        error.contains("phase 1: `when` is Sqnr(9.0), expected none"),
        "{error}"
    );
    let layer = r#"[{"from": 0, "recipe": {"specs": {}, "layers": {"head": {}}}}]"#;
    assert!(new(&parameters, layer).contains("`head` matches no parameter"));
    let none = Stages::new(&schedule(phases).unwrap(), &parameters, |_| ());
    assert!(none.unwrap_err().to_string().contains("ran no product"));
}
