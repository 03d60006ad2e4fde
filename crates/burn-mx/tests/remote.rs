//! Both ends of burn-remote in one process.
//!
//! ```text
//! cargo test -p burn-mx --features remote,burn-remote/server --test remote
//! ```

use std::net::{TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_core::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_ir::BackendIr;
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs};
use burn_remote::server::start_websocket;
use burn_remote::{RemoteBackend, RemoteDevice};

/// A server on a free port, which goes on until the process ends.
fn serve<B: BackendIr<Device: Send>>(device: B::Device) -> RemoteDevice {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    spawn(move || start_websocket::<B>(device, address.port()));
    for _ in 0..200 {
        if TcpStream::connect(address).is_ok() {
            return RemoteDevice::new(&format!("ws://{address}"));
        }
        sleep(Duration::from_millis(50));
    }
    panic!("the server does not listen on {address}");
}

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn tensor<B: Backend, const D: usize>(
    shape: [usize; D],
    seed: u32,
    device: &B::Device,
) -> Tensor<B, D> {
    let values = numbers(shape.iter().product(), seed);
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().expect("it holds f32")
}

/// A layer's output and gradients.
fn pass<B: AutodiffBackend>(device: &B::Device) -> [Vec<f32>; 3] {
    let x = tensor::<B, 2>([5, 40], 1, device).require_grad();
    let w = tensor::<B, 2>([40, 9], 2, device).require_grad();
    let y = burn_core::tensor::activation::gelu(x.clone().matmul(w.clone()));
    let grads = (y.clone() * tensor::<B, 2>([5, 9], 3, device))
        .sum()
        .backward();
    [
        values(y),
        values(x.grad(&grads).expect("x is a leaf")),
        values(w.grad(&grads).expect("w is a leaf")),
    ]
}

/// The specs are the client's: the server is plain Flex.
#[test]
fn a_client_emulates_on_any_server() {
    let server = serve::<Flex>(FlexDevice);
    for specs in [MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4_sr_rht()] {
        let specs = specs.resolve().expect("a preset is sound");
        let remote = MxDevice::new(server.clone(), &specs);
        let here = MxDevice::new(FlexDevice, &specs);
        MxAutodiff::<Flex>::seed(&here, 1);
        let expected = pass::<MxAutodiff<Flex>>(&here);
        MxAutodiff::<Flex>::seed(&here, 1);
        assert_eq!(pass::<MxAutodiff<RemoteBackend>>(&remote), expected);
    }
}

/// The specs are the server's: the client is plain Burn, and infers.
#[test]
fn a_server_emulates_for_plain_clients() {
    let specs = MxSpecs::mxfp4().resolve().expect("a preset is sound");
    let device = MxDevice::new(FlexDevice, &specs);
    let server = serve::<MxBackend<Flex>>(device.clone());
    fn product<B: Backend>(device: &B::Device) -> Vec<f32> {
        values(tensor::<B, 2>([5, 40], 1, device).matmul(tensor([40, 9], 2, device)))
    }
    let emulated = product::<MxBackend<Flex>>(&device);
    assert_eq!(product::<RemoteBackend>(&server), emulated);
    assert_ne!(product::<Flex>(&FlexDevice), emulated);
}
