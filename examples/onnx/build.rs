//! Generates the network's Burn code, `model/digits_cnn.rs`, and a Burnpack file with its weights in the same folder.

fn main() {
    burn_onnx::ModelGen::new()
        .input("digits_cnn.onnx")
        .out_dir("model/")
        .load_strategy(burn_onnx::LoadStrategy::Embedded)
        .run_from_script();
}
