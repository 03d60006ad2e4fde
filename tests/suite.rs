//! What the workspace promises, checked through the public API.

#[path = "shared/emulation.rs"]
#[expect(dead_code, reason = "squares need a part of it")]
mod emulation;
#[path = "shared/noise.rs"]
mod noise;
#[path = "shared/one_thread.rs"]
mod one_thread;

mod suite {
    mod arrays;
    mod attention;
    mod bad_input;
    mod checkpointing;
    mod convolution_products;
    mod convolutions;
    mod devices;
    mod differences;
    mod digit_models;
    mod dtypes;
    mod exempt;
    mod formats;
    mod gradient_bias;
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
    mod packaging;
    mod portable;
    mod products;
    mod rayon_tasks;
    mod recorder;
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
