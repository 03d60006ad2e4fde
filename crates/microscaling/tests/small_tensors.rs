//! Small tensors are cheap: no thread is started for them, and little memory is touched. This binary is a separate
//! process, whose threads can be counted.

use microscaling::{
    BlockFormat, FloatFormat, Packed, RandomHadamard, RandomStream, Rounder, Rounding,
};

/// Everything that works on a tensor, on one of `[rows, 4]`, along both axes.
fn everything(rows: usize) {
    let stream = RandomStream::new(1, 2);
    let data: Vec<f32> = (0..4 * rows).map(|i| i as f32 - 20.0).collect();
    for name in BlockFormat::NAMES.into_iter().chain([
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,square=true)",
        "mx(element=int8,block_size=1)",
        "mx(element=int8,block_size=32,square=true)",
    ]) {
        let format: BlockFormat = name.parse().unwrap();
        for rounding in Rounding::ALL {
            for axis in [0, 1] {
                let (mut values, shape) = (data.clone(), [rows, 4]);
                let rounder = rounding.with(stream);
                format.quantize(&mut values, &shape, axis, rounder).unwrap();
                let packed = Packed::encode(format, &data, &shape, axis, rounder).unwrap();
                assert_eq!(packed.decode().len(), data.len());
            }
        }
    }
    let mut values = data.clone();
    FloatFormat::bfloat(12)
        .unwrap()
        .round_slice(&mut values, Rounder::Stochastic(stream));
    for axis in [0, 1] {
        let transform = RandomHadamard { block_size: 16 };
        let shape = [rows, 4];
        transform
            .transform(&mut values, &shape, axis, stream)
            .unwrap();
        transform
            .inverse(&mut values, &shape, axis, stream)
            .unwrap();
    }
}

/// A stack of so little room as is left beside what large tensors are worked on with.
#[cfg(not(debug_assertions))]
fn on_a_small_stack(work: fn()) {
    let thread = std::thread::Builder::new().stack_size(40 << 10);
    thread.spawn(work).unwrap().join().unwrap();
}

/// Frames of code that is not optimized are larger.
#[cfg(debug_assertions)]
fn on_a_small_stack(work: fn()) {
    work();
}

#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[cfg(not(target_os = "linux"))]
fn threads() -> usize {
    1
}

/// One test, because each test would have its own thread.
#[test]
fn no_threads_and_little_memory() {
    let before = threads();
    everything(37);
    assert_eq!(threads(), before, "a thread was started");
    on_a_small_stack(|| everything(37));
}
