//! `llama`: every part of the book's chapter runs, and does what the chapter says.

use super::Place;

#[test]
fn losses_fall_and_a_resumed_run_has_the_same() {
    let place = Place::new();
    // Of an earlier run, or anybody's.
    std::fs::create_dir_all(place.path("out/llama")).expect("it can be made");
    std::fs::write(place.path("out/llama/fp32.bin"), "mine").expect("it can be written");
    let output = place.command("llama", &["30"]);
    let text = String::from_utf8(output.stdout).expect("it is text");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let number = |line: &str, before: &str| -> f64 {
        let (_, rest) = line.split_once(before).expect(before);
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit());
        let number = &rest[..end.unwrap_or(rest.len())];
        number.parse().expect("it is a number")
    };

    // FP32, MXFP6 and LoRA, each with its last loss before it is tested; the resumed run has one line.
    for (run, fall) in [("FP32", 0.4), ("MXFP6", 0.4), ("LoRA", 0.9)] {
        let lines = text.lines().skip_while(|line| !line.starts_with(run));
        let steps = lines.skip(1).take_while(|line| line.contains(": loss "));
        let losses: Vec<f64> = steps.map(|line| number(line, ": loss ")).collect();
        let [first, .., last] = losses[..] else {
            panic!("{run}: {text}")
        };
        assert!(last < fall * first, "{run}: {first} to {last}");
    }

    let mut held_out = text.lines().filter(|line| line.contains("held out: "));
    let fp32 = number(held_out.next().expect("of FP32"), "held out: ");
    let line = held_out.next().expect("of MXFP6");
    let mxfp6 = number(line, "held out: ");
    assert_eq!(mxfp6, number(line, "resumed after step 60: "));
    assert!((mxfp6 - fp32).abs() < 0.1 * fp32, "{text}");

    // A cast also quantizes attention and the head, post-training quantization does not.
    let of = |name: &str| number(&text, name);
    let [cast, quantized] = [of("cast to mxfp4: "), of("quantized: ")];
    assert!(fp32 < quantized && quantized < cast, "{text}");
    assert!(place.path("out/llama-2/record/report.html").exists());
    let mine = std::fs::read(place.path("out/llama/fp32.bin")).expect("it is there");
    assert_eq!(mine, b"mine");
}
