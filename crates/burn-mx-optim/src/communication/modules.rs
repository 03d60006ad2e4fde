//! Operations on the gradients and parameters of a module.

use burn_core::{
    module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param},
    tensor::{Tensor, backend::AutodiffBackend},
};
use burn_mx_module::{Pattern, nearest};
use burn_optim::GradientsParams;

use super::{
    Communication, CommunicationError, CommunicationState, TensorState,
    error::Checked,
    operation::Operation,
    reduce::{part_length, reduce},
    tensors::{check_reduction, gather, tensor},
};
use crate::{StateFormat, state::numbers};

/// The settings and states of a module's parameters.
struct RankParameters<'a> {
    operation: Operation,
    vectors: bool,
    ranks: usize,
    patterns: Vec<Pattern>,
    state: &'a mut CommunicationState,
    path: Vec<String>,
    /// RankParameters so far.
    count: u64,
}

impl<'a> RankParameters<'a> {
    fn new(
        settings: &Communication,
        ranks: usize,
        state: &'a mut CommunicationState,
    ) -> Checked<Self> {
        let operation = settings.resolve()?;
        if ranks == 0 {
            return Err(CommunicationError::new("ranks", ranks, "1 or more"));
        }
        operation.node(ranks)?;
        Ok(Self {
            operation,
            vectors: settings.vectors,
            ranks,
            patterns: settings.patterns()?,
            state,
            path: Vec::new(),
            count: 0,
        })
    }

    fn path(&self) -> String {
        self.path.join(".")
    }

    /// The settings for a parameter.
    fn operation(&self, shape: &[usize]) -> Operation {
        let path = self.path();
        let is_meant = |pattern: &Pattern| pattern.matches(&path);
        let is_rounded = self.patterns.is_empty() || self.patterns.iter().any(is_meant);
        match is_rounded && (self.vectors || shape.len() > 1) {
            true => self.operation.for_shape(shape, self.ranks),
            false => self.operation.plain(),
        }
    }

    /// The settings and the state of the next parameter.
    fn next(&mut self, shape: &[usize]) -> (Operation, &mut TensorState) {
        let (operation, path, number) = (self.operation(shape), self.path(), self.count);
        self.count += 1;
        (operation, self.state.of(&path, number))
    }

    /// Lengths of the messages that a gather of a parameter has.
    fn parts(&self, operation: &Operation, count: usize) -> Vec<usize> {
        let length = part_length(operation, count, self.ranks);
        let range = |rank: usize| (rank * length).min(count)..((rank + 1) * length).min(count);
        (0..self.ranks).map(|rank| range(rank).len()).collect()
    }
}

/// Checks patterns and states before any work.
struct Checking<'a, 'b> {
    parameters: &'b mut RankParameters<'a>,
    is_gather: bool,
    matched: Vec<bool>,
    seen: Vec<String>,
    error: Option<CommunicationError>,
}

impl<'a, 'b> Checking<'a, 'b> {
    fn new(parameters: &'b mut RankParameters<'a>, is_gather: bool) -> Self {
        Self {
            matched: vec![false; parameters.patterns.len()],
            parameters,
            is_gather,
            seen: Vec::new(),
            error: None,
        }
    }

    fn end(self, patterns: &[String]) -> Checked<()> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut both = patterns.iter().zip(self.matched);
        match both.find(|(_, matched)| !matched) {
            None => Ok(()),
            Some((pattern, _)) => {
                let paths = nearest(pattern, self.seen.iter().map(String::as_str));
                let allowed = format!("a pattern that matches a parameter; the module has {paths}");
                Err(CommunicationError::new("tensors", pattern, allowed))
            }
        }
    }
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Checking<'_, '_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.parameters.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.parameters.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let path = self.parameters.path();
        for (matched, pattern) in self.matched.iter_mut().zip(&self.parameters.patterns) {
            *matched |= pattern.matches(&path);
        }
        let shape = param.val().dims();
        let count = shape.iter().product();
        let operation = self.parameters.operation(&shape);
        let lengths = match self.is_gather {
            true => self.parameters.parts(&operation, count),
            false => vec![count; self.parameters.ranks],
        };
        let lengths: Vec<_> = lengths
            .into_iter()
            .map(|count| operation.padded(count))
            .collect();
        if let Some(state) = self.parameters.state.get(&path)
            && let Err(error) = state.check(&lengths)
        {
            let value = format!("{} at {path}", error.value);
            self.error
                .get_or_insert(CommunicationError { value, ..error });
        }
        self.seen.push(path);
    }
}

impl Communication {
    /// The gradients of a module, reduced over ranks by [`all_reduce`](Self::all_reduce): `gradients[r]` are of rank r, from its part of the
    /// batch. [`mean`](Self::mean) gives the gradients of the whole batch if a rank's loss is a mean.
    ///
    /// A parameter that has a gradient on some ranks counts as 0 on the others. Gradients of several passes are reduced after
    /// they are accumulated.
    ///
    /// # Errors
    /// Before any work:
    /// * the errors of `all_reduce`, and no ranks;
    /// * a float with 5 exponent bits and no scale, which gradients are too small for;
    /// * a pattern that matches no parameter.
    pub fn reduce_gradients<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        module: &M,
        gradients: Vec<GradientsParams>,
        state: &mut CommunicationState,
    ) -> Result<GradientsParams, CommunicationError> {
        let mut parameters = RankParameters::new(self, gradients.len(), state)?;
        check_reduction(&parameters.operation)?;
        self.check_range()?;
        let mut checking = Checking::new(&mut parameters, false);
        module.visit(&mut checking);
        checking.end(&self.tensors)?;
        let mut reducing = Reducing {
            parameters,
            gradients,
            reduced: GradientsParams::new(),
            error: None,
        };
        module.visit(&mut reducing);
        match reducing.error {
            None => Ok(reducing.reduced),
            Some(error) => Err(error),
        }
    }

    /// Refuses formats without the range of gradients.
    pub(super) fn check_range(&self) -> Checked<()> {
        let formats = [
            ("format", &self.format),
            ("format_between_nodes", &self.format_between_nodes),
        ];
        for (field, text) in formats {
            if let Some(text) = text
                && let Ok(StateFormat::Elementwise(float)) = text.parse()
                && float.exponent_bits() < 8
            {
                let allowed = "bfloat10 to bfloat16, or a format with a scale such as mxfp8_e5m2: gradients are below the range of 5 exponent bits";
                return Err(CommunicationError::new(field, text, allowed));
            }
        }
        Ok(())
    }

    /// The module with the parameters that every rank has after an [`all_gather`](Self::all_gather), if rank r of `ranks` owns part r of each
    /// parameter's numbers. Only parameters that require gradients are gathered. Their names, specs and identities stay, so the gradients
    /// of the result are the gradients of `module`, whose parameters are the masters:
    ///
    /// ```
    /// # use burn_core::{module::AutodiffModule, tensor::{Tensor, backend::AutodiffBackend}}; use burn_optim::{GradientsParams, Optimizer};
    /// # use burn_mx_optim::communication::{Communication, CommunicationError, CommunicationState};
    /// # fn step<B: AutodiffBackend, M: AutodiffModule<B>>(model: M, optimizer: &mut impl Optimizer<M, B>, loss: impl Fn(&M) -> Tensor<B, 1>,
    /// #   state: &mut CommunicationState) -> Result<M, CommunicationError> {
    /// let weights = Communication::preset("qwz")?.gather_weights(model.clone(), 8, state)?;
    /// let gradients = GradientsParams::from_grads(loss(&weights).backward(), &weights);
    /// let model = optimizer.step(1e-3, model, gradients);
    /// # Ok(model) }
    /// ```
    ///
    /// # Errors
    /// Before any work: the errors of `all_gather`, no ranks, or a pattern that matches no parameter.
    pub fn gather_weights<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        module: M,
        ranks: usize,
        state: &mut CommunicationState,
    ) -> Result<M, CommunicationError> {
        let mut parameters = RankParameters::new(self, ranks, state)?;
        let mut checking = Checking::new(&mut parameters, true);
        module.visit(&mut checking);
        checking.end(&self.tensors)?;
        let mut gathering = Gathering {
            parameters,
            error: None,
        };
        let module = module.map(&mut gathering);
        match gathering.error {
            None => Ok(module),
            Some(error) => Err(error),
        }
    }
}

struct Reducing<'a> {
    parameters: RankParameters<'a>,
    gradients: Vec<GradientsParams>,
    reduced: GradientsParams,
    error: Option<CommunicationError>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Reducing<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.parameters.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.parameters.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let take =
            |gradients: &mut GradientsParams| gradients.remove::<B::InnerBackend, D>(param.id);
        let of_ranks: Vec<_> = self.gradients.iter_mut().map(take).collect();
        let (operation, state) = self.parameters.next(&param.val().dims());
        let Some(first) = of_ranks.iter().flatten().next().cloned() else {
            return;
        };
        let sum = match of_ranks.len() {
            1 => first,
            _ => {
                let (shape, of_result) = (first.dims(), (&first.device(), first.dtype()));
                let zeros = || vec![0.0; shape.iter().product()];
                let operands = of_ranks
                    .into_iter()
                    .map(|own| own.map_or_else(zeros, numbers));
                match reduce(operation, operands.collect(), state, true) {
                    Ok(sum) => tensor(sum, shape, of_result),
                    Err(error) => {
                        self.error.get_or_insert(error);
                        return;
                    }
                }
            }
        };
        self.reduced.register::<B::InnerBackend, D>(param.id, sum);
    }
}

struct Gathering<'a> {
    parameters: RankParameters<'a>,
    error: Option<CommunicationError>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Gathering<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.parameters.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.parameters.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let value = param.val();
        let ranks = self.parameters.ranks;
        if !value.is_require_grad() || ranks == 1 {
            self.parameters.count += 1;
            return param;
        }
        let shape = value.dims();
        let operation = self.parameters.operation(&shape);
        let parts = self.parameters.parts(&operation, shape.iter().product());
        let (operation, state) = self.parameters.next(&shape);
        if operation.gathers_unchanged() {
            return param;
        }
        let weights = value.inner();
        let mut all = numbers(weights.clone()).into_iter();
        let shards = parts
            .iter()
            .map(|count| all.by_ref().take(*count).collect());
        let gathered = match gather(operation, shards.collect(), state) {
            Ok(gathered) => gathered.concat(),
            Err(error) => {
                self.error.get_or_insert(error);
                return param;
            }
        };
        let gathered = tensor(gathered, shape, (&weights.device(), weights.dtype()));
        // Not `gathered` itself: a tensor of MxBackend carries its parameter's specs and name from op to op.
        let is_equal = weights.clone().equal(weights.clone());
        let gathered = weights.mask_where(is_equal, gathered);
        param.map(|_| Tensor::from_inner(gathered).require_grad())
    }
}
