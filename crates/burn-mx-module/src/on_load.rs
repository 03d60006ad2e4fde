//! Settings of a parameter, set again on the value that a record loads.
//!
//! A loaded value has only the specs of the record's device. Burn allows a change of the value in one place: the parameter's
//! load mapper, a closure. A mapper may exist already, because some layers transpose. So the closure set here calls the mapper
//! that it found. A second setting must find that first mapper again, or each call would add one more closure. A closure
//! cannot be inspected, but it can be asked. The code here leaves a question on the thread and calls the closure. A closure of
//! this module answers the question and does nothing else.

use core::any::Any;
use std::cell::RefCell;

use burn_core::module::{Param, ParamMapper};
use burn_core::tensor::Tensor;

use burn_mx_core::{MxTensorOps, TensorChange};

use super::change::change;
use burn_mx_core::hooks::alone;
use burn_mx_core::hooks::{self, SharedSpecs};

/// The setting to change. The label is always set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Update {
    /// The specs by path; `None` removes them.
    Specs(Option<&'static SharedSpecs>),
    /// Nothing else.
    Label,
}

/// Sets the specs of one parameter, and its path as its label, as [`set_specs_at`](super::set_specs_at) does for the
/// parameters that it matches.
pub fn set_specs_of<B: MxTensorOps, const D: usize>(
    param: Param<Tensor<B, D>>,
    path: &str,
    specs: &'static SharedSpecs,
) -> Param<Tensor<B, D>> {
    Update::Specs(Some(specs)).apply(param, path)
}

/// The specs of a parameter that were set by path.
pub(crate) fn specs_by_path<B: MxTensorOps, const D: usize>(
    param: &Param<Tensor<B, D>>,
) -> Option<&'static SharedSpecs> {
    let (_, tensor, mapper) = param.clone().consume();
    OnLoad::of(&mapper, &tensor).settings.specs
}

/// All settings of a parameter.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    specs: Option<&'static SharedSpecs>,
    label: Option<&'static str>,
}

impl Settings {
    fn on<B: MxTensorOps, const D: usize>(self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        let tensor = match self.label {
            Some(label) => change(tensor, TensorChange::Label(label)),
            None => tensor,
        };
        // A record that was never written to bytes has another module's tensors, with the specs set for them.
        change(tensor, TensorChange::Pin(self.specs))
    }
}

impl Update {
    /// Applies the setting, and the path as the label, to the parameter's value and to values that it loads later.
    pub(crate) fn apply<B: MxTensorOps, const D: usize>(
        self,
        param: Param<Tensor<B, D>>,
        path: &str,
    ) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let mut on_load = OnLoad::of(&mapper, &tensor);
        let label = hooks::label(path);
        on_load.settings.label = Some(label);
        let tensor = change(tensor, TensorChange::Label(label));
        let tensor = match self {
            Self::Label => tensor,
            Self::Specs(specs) => {
                on_load.settings.specs = specs;
                change(tensor, TensorChange::Pin(specs))
            }
        };
        Param::from_mapped_value(id, tensor, mapper).load_mapper(move |loaded| on_load.call(loaded))
    }
}

/// The load mapper of a parameter with settings.
#[derive(Clone)]
struct OnLoad<B: MxTensorOps, const D: usize> {
    /// The parameter's mapper before the first setting; this mapper runs first.
    found: ParamMapper<Tensor<B, D>>,
    settings: Settings,
}

thread_local! {
    static QUESTION: RefCell<Question> = const { RefCell::new(Question::None) };
}

enum Question {
    None,
    Pending,
    /// An [`OnLoad`].
    Answered(Box<dyn Any + Send>),
}

/// Withdraws the question, also where a mapper panics.
struct Withdraw;

impl Drop for Withdraw {
    fn drop(&mut self) {
        QUESTION.replace(Question::None);
    }
}

impl<B: MxTensorOps, const D: usize> OnLoad<B, D> {
    /// The contents of `mapper` if this module made the mapper. Otherwise `mapper` becomes the found one, without settings.
    fn of(mapper: &ParamMapper<Tensor<B, D>>, value: &Tensor<B, D>) -> Self {
        let answered = alone(|| {
            let _withdraw = Withdraw;
            QUESTION.replace(Question::Pending);
            // A mapper of somebody else's gets the tensor that a record would give.
            let _ = mapper.on_load(mapper.on_save(value.clone()));
            match QUESTION.replace(Question::None) {
                Question::Answered(answer) => answer.downcast::<Self>().ok(),
                _ => None,
            }
        });
        if let Some(on_load) = answered {
            return *on_load;
        }
        Self {
            found: mapper.clone(),
            settings: Settings::default(),
        }
    }

    fn call(&self, loaded: Tensor<B, D>) -> Tensor<B, D> {
        let asked = QUESTION.with_borrow_mut(|question| {
            let asked = matches!(question, Question::Pending);
            if asked {
                *question = Question::Answered(Box::new(self.clone()));
            }
            asked
        });
        match asked {
            true => loaded,
            false => self.settings.on(self.found.on_load(loaded)),
        }
    }
}
