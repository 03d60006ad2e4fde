//! Makes Burn code of the network, `model/digits_cnn.rs`, and its weights, a Burnpack file beside it.

fn main() {
    burn_onnx::ModelGen::new()
        .input("digits_cnn.onnx")
        .out_dir("model/")
        .load_strategy(burn_onnx::LoadStrategy::Embedded)
        .run_from_script();
}
