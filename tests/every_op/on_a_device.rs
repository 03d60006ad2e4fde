//! The same on a device's backend, as far as the backend has Burn's ops. Each case runs in a separate process: a missing
//! op may end the device's thread, and every later op with it.
//!
//! `MX_TEST_BACKEND=vulkan cargo test --release --features vulkan --test every_op -- --ignored --nocapture device`

use std::env::{current_exe, var};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread::{available_parallelism, scope, sleep};
use std::time::{Duration, Instant};

use burn::backend::Autodiff;
use burn_backend::Backend;
use burn_backend::tensor::Device;
use burn_mx::{MxAutodiff, MxBackend};

use super::compare::{devices, seed};
use super::run::{Gradients, gradients, run};
use super::table::{Call, backend_calls, differentiable_calls};
use crate::backend::TestBackend;

/// Random cases of each op.
const CASES: u64 = 4;
/// How long a process may take for one.
const LONGEST: Duration = Duration::from_secs(120);

/// The task of a process: the op, its case, and whether to compute its gradients.
const OP: &str = "MX_TEST_OP";
const CASE: &str = "MX_TEST_OP_CASE";
const GRADIENTS: &str = "MX_TEST_OP_GRADIENTS";
/// The message after the backend itself has passed, and the message if the backend's numbers differ from run to run, as
/// sums of atomic additions do.
const PASSED: &str = "the backend passes";
const VARIES: &str = "the backend varies";
/// How many runs show that.
const RUNS: usize = 16;

fn assert_same<A: Backend, M: Backend>(
    calls: (Vec<Call<A>>, Vec<Call<M>>),
    devices: [Device<M>; 2],
    gradients: Option<(Gradients<A>, Gradients<M>)>,
    [name, case]: [&str; 2],
) {
    let plain = calls.0.iter().find(|call| call.name == name);
    let decorated = calls.1.iter().find(|call| call.name == name);
    let plain = plain.expect("the op is in the table");
    let decorated = decorated.expect("the op is in the table");
    let seed = seed(name, case.parse().expect("a number"));
    let device = Device::<A>::default();
    let run_plain = || run(plain, seed, &device, gradients.map(|both| both.0));
    let expected = run_plain();
    if expected.results.is_err() || expected.gradients.is_err() {
        return;
    }
    println!("{PASSED}");
    for device in &devices {
        let got = run(decorated, seed, device, gradients.map(|both| both.1));
        if got != expected && (0..RUNS).any(|_| run_plain() != expected) {
            println!("{VARIES}");
            return;
        }
        assert_eq!(got, expected);
    }
}

#[test]
#[ignore = "one case of every_op_without_specs_is_the_devices"]
fn one_case() {
    let (Ok(name), Ok(case)) = (var(OP), var(CASE)) else {
        return;
    };
    match var(GRADIENTS) {
        Ok(_) => assert_same(
            (
                differentiable_calls::<Autodiff<TestBackend>>(),
                differentiable_calls::<MxAutodiff<TestBackend>>(),
            ),
            devices::<TestBackend>(),
            Some((gradients, gradients)),
            [&name, &case],
        ),
        Err(_) => assert_same(
            (
                backend_calls::<TestBackend>(),
                backend_calls::<MxBackend<TestBackend>>(),
            ),
            devices::<TestBackend>(),
            None,
            [&name, &case],
        ),
    }
}

/// The end of a process.
struct Ended {
    status: Option<ExitStatus>,
    said: String,
}

fn process(name: &str, case: u64, of_gradients: bool) -> Ended {
    let mut command = Command::new(current_exe().expect("this process has a file"));
    let test = "every_op::on_a_device::one_case";
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env(OP, name).env(CASE, case.to_string());
    if of_gradients {
        command.env(GRADIENTS, "1");
    }
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().expect("this program runs again");
    let mut stdout = process.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        stdout.read_to_end(&mut said).map(|_| said)
    });
    let began = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait().expect("it can be waited for") {
            break Some(status);
        }
        if began.elapsed() > LONGEST {
            process.kill().expect("it can be ended");
            process.wait().expect("it can be waited for");
            break None;
        }
        sleep(Duration::from_millis(20));
    };
    let said = reader
        .join()
        .expect("it reads")
        .expect("a pipe can be read");
    Ended {
        status,
        said: String::from_utf8_lossy(&said).into_owned(),
    }
}

#[test]
#[ignore = "takes minutes where a processor compiles the kernels"]
fn every_op_without_specs_is_the_devices() {
    let ops = backend_calls::<TestBackend>().into_iter();
    let ops = ops.map(|call| (call.name, false));
    let gradients = differentiable_calls::<Autodiff<TestBackend>>().into_iter();
    let gradients = gradients.map(|call| (call.name, true));
    let all = Mutex::new(ops.chain(gradients));
    let [same, lacking, different] = [(); 3].map(|()| Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = all.lock().expect("no panic holds it").next();
            let Some((name, of_gradients)) = next else {
                return;
            };
            let what = match of_gradients {
                true => format!("{name}'s gradients"),
                false => name.to_owned(),
            };
            let (mut passed, mut failed) = (0, Vec::new());
            for case in 0..CASES {
                let ended = process(name, case, of_gradients);
                if !ended.said.contains(PASSED) || ended.said.contains(VARIES) {
                    continue;
                }
                passed += 1;
                if !ended.status.is_some_and(|status| status.success()) {
                    failed.push(case);
                }
            }
            println!("{what}: the backend passes {passed} of {CASES}; not the same: {failed:?}");
            let list = match (passed, failed.is_empty()) {
                (0, _) => &lacking,
                (_, true) => &same,
                _ => &different,
            };
            list.lock().expect("no panic holds it").push(what);
        }
    };
    scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let [same, lacking, different] =
        [same, lacking, different].map(|list| list.into_inner().expect("no panic holds it"));
    println!(
        "{} the same; the backend itself does not pass {}: {lacking:?}",
        same.len(),
        lacking.len()
    );
    assert!(different.is_empty(), "not the device's: {different:?}");
    assert!(
        same.len() > lacking.len(),
        "the backend passes most of Burn's ops"
    );
}
