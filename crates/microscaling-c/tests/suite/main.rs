//! The generated texts equal the library.

mod blocks;
mod cases;
mod compiled;
mod converter;
mod dots;
mod elements;
mod errors;
mod numbers;
mod p3109;
mod simulators;
mod systemverilog;
mod vectors;
