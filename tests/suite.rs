//! What the workspace promises, checked through the public API.

#[path = "shared/one_thread.rs"]
mod one_thread;

mod suite {
    mod arrays;
    mod attention;
    mod bad_input;
    mod checkpointing;
    mod convolutions;
    mod devices;
    mod differences;
    mod digit_models;
    mod dtypes;
    mod exempt;
    mod formats;
    mod golden;
    mod held_out;
    mod kept;
    mod labels;
    mod learner;
    mod marks;
    mod models;
    mod multi_device;
    mod newtype;
    mod one_pass;
    mod op_coverage;
    mod optimizers;
    mod oracle;
    mod packaging;
    mod portable;
    mod rayon_tasks;
    mod reuse;
    mod roles;
    mod slots;
    mod specs_by_path;
    mod square;
    mod stochastic;
    mod support;
    mod training;
    mod transformers;
    mod transparency;
}
