//! One optimizer for some of a module's matrices, and another one for the other parameters.

use burn_core::{
    module::{AutodiffModule, ModuleVisitor, Param},
    tensor::{Tensor, backend::AutodiffBackend},
};
use burn_mx_module::{LayerPath, Pattern, nearest};
use burn_optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};

crate::error::field_error! {
    /// A pattern of [`MatrixOptimizer`] that names no matrix.
    MatricesError, "The argument."
}

/// An optimizer for the matrices that patterns name, such as Muon, and another one for all other parameters, such as AdamW: vectors, tensors
/// of more than two axes, embeddings, heads. Both take the same learning rate.
///
/// ```
/// # use burn_autodiff::Autodiff; use burn_core::module::AutodiffModule; use burn_core::tensor::backend::AutodiffBackend;
/// # use burn_mx_optim::{MatricesError, MatrixOptimizer, OptimizerStates};
/// # use burn_optim::{AdamWConfig, AdjustLrFn, MuonConfig};
/// # fn example<B: AutodiffBackend, M: AutodiffModule<B>>(model: &M) -> Result<(), Box<dyn std::error::Error>> {
/// let muon = MuonConfig::new().with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW);
/// let muon = OptimizerStates::preset("muonq")?.muon::<B, M>(&muon)?;
/// let adamw = AdamWConfig::new().init::<B, M>();
/// let optimizer = MatrixOptimizer::new(muon, adamw, &["layers.*"], model)?;
/// # drop(optimizer); Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct MatrixOptimizer<O, P> {
    of_matrices: O,
    of_rest: P,
    patterns: Vec<Pattern>,
}

impl<O, P> MatrixOptimizer<O, P> {
    /// The two optimizers. Patterns are paths of parameters or modules, or globs over either, as
    /// [`set_specs_at`](burn_mx_module::set_specs_at) takes them. A step reads the paths anew, so a loaded model is served, too.
    ///
    /// # Errors
    /// A pattern that is not a glob, or that matches no parameter with two axes.
    pub fn new<B: AutodiffBackend, M: AutodiffModule<B>>(
        of_matrices: O,
        of_rest: P,
        patterns: &[&str],
        model: &M,
    ) -> Result<Self, MatricesError> {
        let parsed = patterns.iter().map(|text| {
            let allowed = "the path of a parameter or a module, or a glob over either";
            Pattern::new(text).map_err(|_| MatricesError::new("patterns", text, allowed))
        });
        let patterns_of = parsed.collect::<Result<Vec<_>, _>>()?;
        let mut found = Vec::new();
        visit(model, |path, axes| {
            if axes == 2 {
                found.push(path.to_owned());
            }
        });
        for (text, pattern) in patterns.iter().zip(&patterns_of) {
            if !found.iter().any(|path| pattern.matches(path)) {
                let paths = nearest(text, found.iter().map(String::as_str));
                let allowed = format!("a pattern that matches a matrix; the module has {paths}");
                return Err(MatricesError::new("patterns", text, allowed));
            }
        }
        Ok(Self {
            of_matrices,
            of_rest,
            patterns: patterns_of,
        })
    }

    /// Both optimizers: of the matrices, and of the rest.
    pub fn optimizers(&self) -> (&O, &P) {
        (&self.of_matrices, &self.of_rest)
    }

    /// Takes the gradients of the matrices out of all gradients.
    fn matrices<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        module: &M,
        gradients: &mut GradientsParams,
    ) -> GradientsParams {
        let mut taking = Taking {
            patterns: &self.patterns,
            gradients,
            taken: GradientsParams::new(),
            path: LayerPath::default(),
        };
        module.visit(&mut taking);
        taking.taken
    }
}

struct Taking<'a> {
    patterns: &'a [Pattern],
    gradients: &'a mut GradientsParams,
    taken: GradientsParams,
    path: LayerPath,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Taking<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let path = self.path.parameter();
        if D != 2 || !self.patterns.iter().any(|pattern| pattern.matches(&path)) {
            return;
        }
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            self.taken
                .register::<B::InnerBackend, D>(param.id, gradient);
        }
    }
}

/// Calls `see` with the path and the number of axes of each float parameter.
fn visit<B: AutodiffBackend, M: AutodiffModule<B>>(model: &M, see: impl FnMut(&str, usize)) {
    struct Seeing<F> {
        see: F,
        path: LayerPath,
    }

    impl<B: AutodiffBackend, F: FnMut(&str, usize)> ModuleVisitor<B> for Seeing<F> {
        fn enter_module(&mut self, name: &str, container_type: &str) {
            self.path.enter(name, container_type);
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.exit();
        }

        fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<B, D>>) {
            (self.see)(&self.path.parameter(), D);
        }
    }

    let path = LayerPath::default();
    model.visit(&mut Seeing { see, path });
}

impl<B, M, O, P> Optimizer<M, B> for MatrixOptimizer<O, P>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    O: Optimizer<M, B>,
    P: Optimizer<M, B>,
{
    /// The records of both optimizers.
    type Record = (O::Record, P::Record);

    fn step(&mut self, lr: LearningRate, module: M, mut grads: GradientsParams) -> M {
        let of_matrices = self.matrices(&module, &mut grads);
        let module = self.of_matrices.step(lr, module, of_matrices);
        self.of_rest.step(lr, module, grads)
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, mut grads: MultiGradientsParams) -> M {
        let mut of_matrices = MultiGradientsParams::default();
        for (gradients, device) in &mut grads.grads {
            let taken = self.matrices(&module, gradients);
            of_matrices.grads.push((taken, *device));
        }
        let module = self.of_matrices.step_multi(lr, module, of_matrices);
        self.of_rest.step_multi(lr, module, grads)
    }

    fn to_record(&self) -> Self::Record {
        (self.of_matrices.to_record(), self.of_rest.to_record())
    }

    fn load_record(self, (of_matrices, of_rest): Self::Record) -> Self {
        Self {
            of_matrices: self.of_matrices.load_record(of_matrices),
            of_rest: self.of_rest.load_record(of_rest),
            patterns: self.patterns,
        }
    }
}
