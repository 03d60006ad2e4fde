//! The gradients of devices that communicate by Burn, under `cfg(burn_mx_distributed)`.

use std::sync::{Arc, Mutex, MutexGuard};

use burn_mx_core::hooks::{GradientExchange, GradientMessage, InstalledExchange, install_exchange};

use super::{
    Communication, CommunicationError, CommunicationState, RankOrder, Route,
    error::Checked,
    operation::{MessageStage, Operation},
    tensors::{check_own_scale, check_reduction, message},
};

/// Gradients in a format on their way between devices. The program that trains does not change: burn-train's `ExecutionStrategy::ddp`, or
/// any backward pass on parameters that `set_distributed` has marked.
///
/// Burn adds, by one `all_reduce` of its backend, in float32. So a device's gradient is one message, rounded as by
/// [`Communication::sent`], and the sum or mean is a second message, which all devices round alike. Rank r is the device with index r.
///
/// ```no_run
/// # use burn_mx_optim::communication::{Communication, CommunicationError, CommunicationState};
/// # fn train() {}
/// # fn main() -> Result<(), CommunicationError> {
/// let wire = Communication {
///     format: Some("mxfp8_e5m2".into()),
///     error_feedback: Some("float32".into()),
///     ..Communication::default()
/// };
/// let exchange = wire.of_devices(CommunicationState::default())?;
/// let installed = exchange.install();
/// train(); // Burn's own loop
/// drop(installed);
/// let for_a_checkpoint: CommunicationState = exchange.state();
/// # drop(for_a_checkpoint);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DeviceExchange {
    operation: Operation,
    vectors: bool,
    state: Mutex<CommunicationState>,
}

impl Communication {
    /// The exchange of gradients between devices in this format, with the state of an earlier run.
    ///
    /// # Errors
    /// * The errors of [`check`](Self::check).
    /// * A float with 5 exponent bits and no scale, which gradients are too small for.
    /// * A field of sums, which Burn's backend computes: `accumulator`, `route`, `order`, `requantize`, `quantize_own`, nodes, and `mean`, which is
    ///   Burn's `ReduceOperation`.
    /// * `tensors`, since Burn does not say the paths of parameters.
    /// * `difference`, which only gathers have, and `shared_scale`, which needs the numbers of all ranks.
    pub fn of_devices(
        &self,
        state: CommunicationState,
    ) -> Result<Arc<DeviceExchange>, CommunicationError> {
        let operation = self.resolve()?;
        check_reduction(&operation)?;
        check_own_scale(&operation)?;
        self.check_range()?;
        self.check_fields_of_burn()?;
        Ok(Arc::new(DeviceExchange {
            operation,
            vectors: self.vectors,
            state: Mutex::new(state),
        }))
    }

    /// Refuses fields that say what Burn decides.
    fn check_fields_of_burn(&self) -> Checked<()> {
        let set = [
            ("accumulator", self.accumulator.is_some()),
            ("route", self.route != Route::Ring),
            ("order", self.order != RankOrder::OwnerLast),
            ("requantize", !self.requantize),
            ("quantize_own", !self.quantize_own),
            ("mean", self.mean),
            ("tensors", !self.tensors.is_empty()),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((field, _)) => {
                let allowed = "the default: Burn's backend adds the gradients of all parameters, by Burn's own settings";
                Err(CommunicationError::new(field, "set", allowed))
            }
        }
    }
}

impl DeviceExchange {
    /// Has the gradients of all devices of this process rounded until the result is dropped. Install it while no backward pass runs.
    pub fn install(self: &Arc<Self>) -> InstalledExchange {
        install_exchange(Arc::<Self>::clone(self))
    }

    /// A copy of the ranks' memory so far. The keys are `PARAMETER.RANK`, with the parameter's number.
    pub fn state(&self) -> CommunicationState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, CommunicationState> {
        // A thread that panicked left a whole state.
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }
}

impl GradientExchange for DeviceExchange {
    /// # Panics
    /// If the state is from a model with other shapes.
    fn send(&self, sent: GradientMessage, shape: &[usize], numbers: &mut Vec<f32>) {
        let operation = match shape.len() {
            1 if !self.vectors => return,
            _ => self.operation.for_shape(shape, 1),
        };
        if operation.gathers_unchanged() {
            return;
        }
        let sender = match sent.is_reduced {
            false => (MessageStage::Operand, sent.rank),
            true => (MessageStage::Result, 0),
        };
        // A call of the state is the operand's message, and the next one the result's. Threads round at the same time.
        let mut state = self.lock().take(sent.parameter, sent.rank);
        let rounded = message(operation, std::mem::take(numbers), sender, &mut state);
        self.lock().put(sent.parameter, sent.rank, state);
        *numbers = rounded.unwrap_or_else(|error| {
            panic!(
                "burn-mx: the gradient of parameter {}: {error}",
                sent.parameter
            )
        });
    }
}
