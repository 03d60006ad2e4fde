//! What the workspace promises, checked through the public API.

mod suite {
    mod bad_input;
    mod devices;
    mod dtypes;
    mod formats;
    mod golden;
    mod learner;
    mod models;
    mod newtype;
    mod optimizers;
    mod portable;
    mod slots;
    mod support;
    mod training;
    mod transparency;
}
