//! Common code of the benches: models and their training steps, variants of the emulation, figures on disk.

mod models;

use std::fmt::Display;
use std::path::PathBuf;

use burn::backend::Autodiff;
use burn::tensor::backend::AutodiffBackend;
use burn_mx::BlockFormat;
use burn_mx::module::MxModelOps;
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs, ResolvedSpecs, SlotFormat, SpecsError};
use clap::{Args, ValueEnum};
use serde::Serialize;

use burn_mx_lab::{backends::BackendName, output::OutputFile, with_backend};
use models::Kind;
#[allow(unused_imports, reason = "one bench chooses the optimizer")]
pub(crate) use models::Optimized;
pub(crate) use models::{Trainer, Workload};

/// Backends whose models [`Trainer`] trains.
pub(crate) trait Trained: AutodiffBackend<InnerBackend: MxModelOps> {}

impl<B: AutodiffBackend<InnerBackend: MxModelOps>> Trained for B {}

/// The options for the measured models and for the figures' file.
#[derive(Args)]
pub(crate) struct Common {
    /// Preset to measure; may be repeated
    #[arg(long = "preset", value_name = "NAME", default_values_t = [String::from("mxfp8_e4m3")])]
    presets: Vec<String>,
    /// Part of the preset to emulate; may be repeated
    #[arg(long = "variant", value_enum, default_values_t = [Variant::Full])]
    variants: Vec<Variant>,
    /// Model to measure; may be repeated
    #[arg(long = "model", value_enum, default_values_t = [Kind::Ffn])]
    models: Vec<Kind>,
    /// Measures only the sizes whose name contains the text, as "(512, 512)"
    #[arg(long, value_name = "TEXT", default_value = "")]
    size: String,
    /// Wrapped backend; may be repeated
    #[arg(long = "backend", value_enum, default_values_t = [BackendName::Flex])]
    backends: Vec<BackendName>,
    /// Also writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Handed over by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Common {
    /// Every preset in every variant.
    ///
    /// # Errors
    ///
    /// If a preset is unknown.
    fn cases(&self) -> Result<Vec<Case>, SpecsError> {
        let mut cases = Vec::new();
        for preset in &self.presets {
            let specs = MxSpecs::preset(preset)?;
            for &variant in &self.variants {
                cases.push(Case {
                    preset: preset.clone(),
                    variant,
                    specs: variant.of(&specs).resolve()?,
                });
            }
        }
        Ok(cases)
    }

    /// Takes every measurement of `bench`, each case on each backend, and prints its figures.
    ///
    /// # Errors
    ///
    /// If a preset is unknown or the JSON cannot be written.
    pub(crate) fn run<M: Bench>(&self, bench: &M) -> Result<(), Box<dyn std::error::Error>> {
        let cases = self.cases()?;
        let json = self.json.as_deref().map(OutputFile::open).transpose()?;
        let mut figures = Vec::new();
        let workloads: Vec<_> = self
            .models
            .iter()
            .flat_map(|kind| kind.workloads())
            .filter(|workload| workload.to_string().contains(&self.size))
            .collect();
        if workloads.is_empty() {
            return Err(
                format!("--size {:?}: no size of the models contains it", self.size).into(),
            );
        }
        for case in cases {
            for &backend in &self.backends {
                for &workload in &workloads {
                    figures.extend(with_backend!(backend, B => {
                        case.measure_on::<B, M>(backend, bench, workload)
                    }));
                }
            }
        }
        if let Some(file) = json {
            file.replace(&serde_json::to_vec_pretty(&figures)?)?;
        }
        Ok(())
    }
}

/// The measurement of a model, emulated and in plain FP32.
pub(crate) trait Bench {
    type Value: Display + Serialize;
    /// The backend that is measured: `B`, or a backend around it.
    type Backend<B: MxKernels>: MxKernels<Device = B::Device>;

    /// The figures by kind, for example a training step and inference.
    fn measure<Mx: Trained, Fp32: Trained>(
        &self,
        workload: Workload,
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) -> Vec<(&'static str, Self::Value)>;
}

/// One thing to measure.
struct Case {
    preset: String,
    variant: Variant,
    specs: ResolvedSpecs,
}

/// One line of the result.
#[derive(Serialize)]
struct Figure<V> {
    backend: BackendName,
    preset: String,
    variant: Variant,
    model: String,
    pass: &'static str,
    #[serde(flatten)]
    value: V,
}

impl Case {
    fn measure_on<B: MxKernels, M: Bench>(
        &self,
        backend: BackendName,
        bench: &M,
        workload: Workload,
    ) -> Vec<Figure<M::Value>> {
        let mx_device = MxDevice::new(B::Device::default(), &self.specs).expect("resolved specs");
        let fp32_device = B::Device::default();
        let values = bench.measure::<MxAutodiff<M::Backend<B>>, Autodiff<M::Backend<B>>>(
            workload,
            &mx_device,
            &fp32_device,
        );
        let model = workload.to_string();
        let figure = |(pass, value)| {
            println!(
                "{:8} {:12} {:12} {model:30} {pass:9} {value}",
                backend.name(),
                self.preset,
                self.variant.name(),
            );
            Figure {
                backend,
                preset: self.preset.clone(),
                variant: self.variant,
                model: model.clone(),
                pass,
                value,
            }
        };
        values.into_iter().map(figure).collect()
    }
}

/// The emulated part of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Variant {
    /// Products in the block format, elementwise ops in the elementwise format
    Full,
    /// Products alone
    Mx,
    /// Elementwise ops alone
    Elementwise,
    /// Weights in blocks along one axis, where the preset has square ones
    OneAxis,
    /// No Hadamard transform in forward products
    NoForwardHadamard,
}

impl Variant {
    fn of(self, preset: &MxSpecs) -> MxSpecs {
        match self {
            Self::Full => preset.clone(),
            Self::Mx => MxSpecs {
                bfloat: 0,
                fp: 0,
                ..preset.clone()
            },
            Self::Elementwise => MxSpecs {
                bfloat: preset.bfloat,
                fp: preset.fp,
                round: preset.round,
                ..MxSpecs::none()
            },
            Self::OneAxis => MxSpecs {
                w_elem_format: preset.w_elem_format.map(one_axis),
                w_elem_format_bp: preset.w_elem_format_bp.map(one_axis),
                ..preset.clone()
            },
            Self::NoForwardHadamard => MxSpecs {
                hadamard_forward: None,
                ..preset.clone()
            },
        }
    }

    /// The name on the command line and in the figures.
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Mx => "mx",
            Self::Elementwise => "elementwise",
            Self::OneAxis => "one-axis",
            Self::NoForwardHadamard => "no-forward-hadamard",
        }
    }
}

/// The format without square blocks.
fn one_axis(format: SlotFormat) -> SlotFormat {
    match format {
        SlotFormat::Block(format) => {
            let square = false;
            SlotFormat::Block(BlockFormat { square, ..format })
        }
        format => format,
    }
}
