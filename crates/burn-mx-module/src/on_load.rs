//! What is set for a parameter is set again on the value that a record brings.
//!
//! A loaded value knows nothing but the specs of the record's device. The one place where Burn lets it be changed is the
//! parameter's load mapper, a closure, which may be there already: some layers transpose. So the closure set here calls
//! the one that it found, and setting something a second time must find that one again, or every call would leave a
//! closure for good. A closure cannot be looked into, but it can be asked: it is called with a question pending on the
//! thread, to which a closure of ours answers, and leaves it at that.

use core::any::Any;
use std::cell::RefCell;

use burn_core::module::{Param, ParamMapper};
use burn_core::tensor::Tensor;

use burn_mx_core::{MxTensorOps, TensorChange};

use super::change::change;
use burn_mx_core::hooks::alone;
use burn_mx_core::hooks::{self, SharedSpecs};

/// What is to be set, beside the label, which always is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Update {
    /// The specs by path; `None` takes them back.
    Specs(Option<&'static SharedSpecs>),
    /// Nothing else.
    Label,
}

/// The parameter with these specs set, and its path as its label, as [`set_specs_at`](super::set_specs_at) does for those that it
/// matches.
pub fn set_specs_of<B: MxTensorOps, const D: usize>(
    param: Param<Tensor<B, D>>,
    path: &str,
    specs: &'static SharedSpecs,
) -> Param<Tensor<B, D>> {
    Update::Specs(Some(specs)).apply(param, path)
}

/// All that is set for a parameter.
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
        match self.specs {
            Some(specs) => change(tensor, TensorChange::Pin(Some(specs))),
            None => tensor,
        }
    }
}

impl Update {
    /// The parameter with this set, and its path as its label, for the value that it has and for those that it will load.
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

/// The load mapper of a parameter for which something is set.
#[derive(Clone)]
struct OnLoad<B: MxTensorOps, const D: usize> {
    /// The parameter's mapper before anything was set, which runs first.
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
    /// What `mapper` is if it is of ours; else it is what was found, with nothing set.
    fn of(mapper: &ParamMapper<Tensor<B, D>>, value: &Tensor<B, D>) -> Self {
        let answered = alone(|| {
            let _withdraw = Withdraw;
            QUESTION.replace(Question::Pending);
            // A mapper of somebody else's gets what it would get from a record.
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
