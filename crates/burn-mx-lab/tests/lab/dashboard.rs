//! burn-train's dashboard, as a user at a terminal has it.

use super::{Place, SMALL, assert_same_results, place::runs, terminal::Terminal};

#[test]
fn a_terminal_shows_every_run_and_then_the_table() {
    let place = Place::new();
    let options = [SMALL, &["--epochs", "200", "--preset", "none"]].concat();
    let mut terminal = Terminal::run(&[&["compare"], &options[..]].concat(), place.0.path());
    terminal.wait_for(&["Run 1 of 2", "Train fp32", "Loss", "Accuracy"]);
    terminal.wait_for(&["Run 2 of 2", "Train none", "Loss", "Accuracy"]);
    let ended = terminal.end();
    assert_eq!(ended.code, 0, "{}", ended.screen);
    for text in ["fp32 (plain Burn)", "| none ", "overhead", "loss curves: "] {
        assert!(ended.screen.contains(text), "{}", ended.screen);
    }
}

#[test]
fn q_stops_the_sweep_and_loses_nothing() {
    let place = Place::new();
    // So many that a test on a busy machine sees the second run before it ends.
    let sweep = ["--epochs", "100", "--preset", "mxfp4", "--preset", "none"];
    let sweep = [SMALL, &sweep].concat();
    let (through, _) = place.compare(&sweep);

    let json = place.path("stopped.json");
    let json_option = ["--json", json.to_str().expect("the path is text")];
    let save = [&sweep[..], &["--save", "saved"]].concat();
    let options = [&save[..], &json_option].concat();
    let mut terminal = Terminal::run(&[&["compare"], &options[..]].concat(), place.0.path());
    terminal.wait_for(&["Run 2 of 3", "Train mxfp4"]);
    terminal.press('q');
    terminal.wait_for(&["Quit", "Stop the training."]);
    terminal.press('s');
    let ended = terminal.end();
    assert_eq!(ended.code, 1, "{}", ended.screen);
    for text in [
        "error: stopped in mxfp4 after ",
        " of 100 epochs (",
        "1 of 3 runs",
        "--resume",
    ] {
        assert!(ended.screen.contains(text), "{}", ended.screen);
    }
    assert!(ended.screen.contains("| fp32 "), "{}", ended.screen);
    assert!(!ended.screen.contains("| mxfp4 "), "{}", ended.screen);
    assert_same_results(&runs(&json), &through[..1], "what is complete");

    let (resumed, _) = place.compare(&[&save[..], &["--resume"]].concat());
    assert_same_results(&resumed, &through, "resumed");
}
