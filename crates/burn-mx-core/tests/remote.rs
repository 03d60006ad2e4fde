//! Both ends of burn-remote in one process.
//!
//! ```text
//! cargo test -p burn-mx --features remote,burn-remote/server --test remote
//! ```

mod layer;

use std::net::{TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

use burn_core::tensor::backend::Backend;
use burn_flex::{Flex, FlexDevice};
use burn_ir::BackendIr;
use burn_mx_core::{MxAutodiff, MxBackend, MxDevice, MxSpecs};
use burn_remote::server::start_websocket;
use burn_remote::{RemoteBackend, RemoteDevice};

use layer::{pass, product};

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

/// The specs are the client's: the server is plain Flex.
#[test]
fn a_client_emulates_on_any_server() {
    let server = serve::<Flex>(FlexDevice);
    for specs in [MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4_sr_rht()] {
        let specs = specs.resolve().expect("a preset is sound");
        let remote = MxDevice::new(server.clone(), &specs).expect("resolved specs");
        let here = MxDevice::new(FlexDevice, &specs).expect("resolved specs");
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
    let device = MxDevice::new(FlexDevice, &specs).expect("resolved specs");
    let server = serve::<MxBackend<Flex>>(device.clone());
    let emulated = product::<MxBackend<Flex>>(&device);
    assert_eq!(product::<RemoteBackend>(&server), emulated);
    assert_ne!(product::<Flex>(&FlexDevice), emulated);
}
