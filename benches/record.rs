//! Time of training steps with a recorder at work, over the same steps without one.
//!
//! `cargo bench --bench record -- [--model NAME]… [--preset NAME]… [--variant NAME]… [--backend NAME]… [--json FILE]`
//!
//! The bench times `--records` (5) times `--every` (20) steps, from before the recorder starts to after it ends. The recorder
//! records one of `--every` steps: alone, with two further formats, or with the roundings of elementwise ops. `waiting` is a
//! recorder that records no step, an upper bound for the cost of the recorder's hooks.

mod support {
    pub(crate) mod pairs;
    pub(crate) mod seconds;
    #[expect(dead_code, reason = "no inference is measured")]
    pub(crate) mod training;
}

use burn_mx::MxKernels;
use burn_mx::record::{Recorder, RecorderConfig};
use clap::Parser;
use tempfile::TempDir;

use support::pairs::{Time, Times};
use support::training::{Bench, Common, Trained, Trainer, Workload};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    overhead: Overhead,
}

#[derive(clap::Args)]
struct Overhead {
    #[command(flatten)]
    times: Times,
    /// Record one of this many steps
    #[arg(long, default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Number of steps that a recorder records
    #[arg(long, default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
}

impl Bench for Overhead {
    type Value = Time;
    type Backend<B: MxKernels> = B;

    fn measure<Mx: Trained, Fp32: Trained>(
        &self,
        workload: Workload,
        mx_device: &Mx::Device,
        _: &Fp32::Device,
    ) -> Vec<(&'static str, Time)> {
        let every = RecorderConfig {
            every: self.every,
            ..RecorderConfig::default()
        };
        let waiting = RecorderConfig {
            start: u64::MAX,
            ..every.clone()
        };
        let elementwise = RecorderConfig {
            elementwise: true,
            ..every.clone()
        };
        let what_if = every.clone().what_if(["mxfp8_rceil", "nvfp4"]);
        let configs = [
            ("waiting", waiting),
            ("recording", every),
            ("what if", what_if),
            ("elementwise", elementwise),
        ];
        let mut own = Trainer::<Mx>::new(workload, mx_device);
        let mut peer = Trainer::<Mx>::new(workload, mx_device);
        let count = self.every * self.records;
        let steps = |trainer: &mut Trainer<Mx>| (0..count).for_each(|_| trainer.step());
        // The records of each run stay until the measurement ends: to remove the records is not the recorder's work.
        let folder = TempDir::new().expect("a folder for records");
        let mut runs = 0..;
        let overhead = |(name, config): (_, RecorderConfig)| {
            let recorded = || {
                let run = runs.next().expect("there is no end");
                let recorder = Recorder::new(config.clone());
                let folder = folder.path().join(format!("{run}"));
                let recording = recorder.start(folder).expect("the folder is new");
                steps(&mut own);
                drop(recording);
            };
            (name, self.times.pairs(recorded, Some(|| steps(&mut peer))))
        };
        configs.into_iter().map(overhead).collect()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { common, overhead } = Args::parse();
    common.run(&overhead)
}
