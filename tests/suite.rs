//! The workspace's behaviour, checked through the public API. On CPUs every test runs. With another `MX_TEST_BACKEND` at
//! compile time, the tests that hold on any backend run.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]
#![cfg_attr(
    not(test_backend = "flex"),
    allow(
        dead_code,
        unused_imports,
        reason = "what the tests of processors alone need"
    )
)]

#[cfg(test_backend = "flex")]
#[path = "shared/emulation.rs"]
#[expect(dead_code, reason = "squares need a part of it")]
mod emulation;
#[cfg(test_backend = "flex")]
#[path = "shared/one_thread.rs"]
mod one_thread;
mod shared;

use shared::{backend, models, noise, support};

mod suite {
    // On any backend.
    mod accumulated_convolutions;
    mod accumulated_edges;
    mod accumulators;
    mod convolution_geometries;
    mod digit_models;
    mod distilling_learner;
    mod learner;
    mod multi_device;
    mod packed_states;
    mod reuse;
    mod roles;
    mod slots;
    mod staged_learner;
    mod stochastic;
    mod training;
    mod transparency;

    // Of processors.
    #[cfg(test_backend = "flex")]
    mod arrays;
    #[cfg(test_backend = "flex")]
    mod attention;
    #[cfg(test_backend = "flex")]
    mod attention_points;
    #[cfg(test_backend = "flex")]
    mod attention_scope;
    #[cfg(test_backend = "flex")]
    mod bad_input;
    #[cfg(test_backend = "flex")]
    mod book;
    #[cfg(test_backend = "flex")]
    mod checkpointing;
    #[cfg(test_backend = "flex")]
    mod constants;
    #[cfg(test_backend = "flex")]
    mod convolution_products;
    #[cfg(test_backend = "flex")]
    mod convolutions;
    #[cfg(test_backend = "flex")]
    mod data_and_parameters;
    #[cfg(test_backend = "flex")]
    mod devices;
    mod dialects;
    #[cfg(test_backend = "flex")]
    mod differences;
    #[cfg(test_backend = "flex")]
    mod dtypes;
    #[cfg(test_backend = "flex")]
    mod emulated_activations;
    #[cfg(test_backend = "flex")]
    mod exempt;
    #[cfg(test_backend = "flex")]
    mod formats;
    #[cfg(test_backend = "flex")]
    mod four_bit_recipes;
    #[cfg(test_backend = "flex")]
    mod indices_of_activations;
    #[cfg(test_backend = "flex")]
    mod instruction_sets;
    #[cfg(test_backend = "flex")]
    mod kept;
    #[cfg(test_backend = "flex")]
    mod labels;
    #[cfg(test_backend = "flex")]
    mod language;
    #[cfg(test_backend = "flex")]
    mod losses;
    #[cfg(test_backend = "flex")]
    mod losses_of_burn;
    #[cfg(test_backend = "flex")]
    mod marks;
    #[cfg(test_backend = "flex")]
    mod masters;
    #[cfg(test_backend = "flex")]
    mod one_pass;
    #[cfg(test_backend = "flex")]
    mod op_coverage;
    #[cfg(test_backend = "flex")]
    mod ops_in_losses;
    #[cfg(test_backend = "flex")]
    mod optimizers;
    #[cfg(test_backend = "flex")]
    mod packaging;
    #[cfg(test_backend = "flex")]
    mod portable;
    #[cfg(test_backend = "flex")]
    mod products;
    #[cfg(test_backend = "flex")]
    mod random_gradients;
    #[cfg(test_backend = "flex")]
    mod random_scopes;
    #[cfg(test_backend = "flex")]
    mod random_specs;
    #[cfg(test_backend = "flex")]
    mod rayon_tasks;
    #[cfg(test_backend = "flex")]
    mod recipes;
    #[cfg(test_backend = "flex")]
    mod specs;
    #[cfg(test_backend = "flex")]
    mod specs_at_steps;
    #[cfg(test_backend = "flex")]
    mod specs_by_path;
    #[cfg(test_backend = "flex")]
    mod square;
    #[cfg(test_backend = "flex")]
    mod straight_through;
    #[cfg(test_backend = "flex")]
    mod threads;
    #[cfg(test_backend = "flex")]
    mod transformers;
}
