//! Parts that the program `burn-mx-lab` shares with the examples and benches of its repository: names of backends, output files,
//! charts, costs of products, and named configurations of quantization. The program itself is documented by
//! `burn-mx-lab --help`.

pub mod backends;
pub mod costing;
pub mod drawing;
pub mod logarithmic;
pub mod output;
pub mod own_files;
pub mod quantization;
pub mod recipe_option;
pub mod tables;
