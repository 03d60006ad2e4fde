//! Sequence parallelism: two products whose activations have their rows divided, forward and backward.

use burn_core::tensor::Tensor;
use burn_flex::Flex;
use burn_mx_core::{MxAutodiff, MxDevice, MxSpecs};
use burn_mx_optim::communication::{
    Communication, RankGradients, Route, SequenceParallel, TensorState,
};
use microscaling::Rounding;

use super::{assert_same, floats, written_out::Loops};
use crate::{B, DEVICE, tensor};

type Plain = Tensor<Flex, 2>;
type Product = fn(&SequenceParallel, Tensor<B, 2>, Tensor<B, 2>, usize) -> Tensor<B, 2>;

const GATHERED: Product = |transfers, x, w, ranks| transfers.gathered_product(x, w, ranks).unwrap();
const SCATTERED: Product =
    |transfers, x, w, ranks| transfers.scattered_product(x, w, ranks).unwrap();

fn with(format: &str) -> Communication {
    Communication {
        format: Some(format.into()),
        ..Communication::default()
    }
}

/// Settings of values and gradients.
fn wires() -> Vec<[Communication; 2]> {
    let stochastic = Communication {
        route: Route::AllToAll,
        rounding: Rounding::Stochastic,
        seed: 5,
        ..with("mxfp8_e5m2")
    };
    let tree = Communication {
        route: Route::Tree,
        accumulator: Some("bfloat16".into()),
        ..with("mxfp6_e3m2")
    };
    vec![
        [Communication::default(), Communication::default()],
        [with("mxfp4"), Communication::default()],
        [Communication::default(), with("mxfp4")],
        [with("mxfp8_e4m3"), stochastic.clone()],
        [stochastic, tree.clone()],
        [tree, with("bfloat16")],
    ]
}

/// Value and gradients of the product for `x` and `w`, where `factor` is the gradient of the product.
fn product(
    of: Product,
    transfers: &SequenceParallel,
    [x, w, factor]: [Tensor<B, 2>; 3],
    ranks: usize,
) -> [Vec<f32>; 3] {
    let [x, w] = [x, w].map(Tensor::require_grad);
    let y = of(transfers, x.clone(), w.clone(), ranks);
    let gradients = (y.clone() * factor).sum().backward();
    let [of_x, of_w] = [x, w].map(|tensor| floats(tensor.grad(&gradients).unwrap()));
    [floats(y.inner()), of_x, of_w]
}

/// The rows of a matrix as all ranks have them after a gather.
fn gathered(wire: &Communication, call: u64, x: &Plain, ranks: usize) -> Plain {
    let [rows, columns] = x.dims();
    let loops = Loops::new(wire, 0, call);
    let shard = |rank| {
        let shard = x.clone().narrow(0, rank * (rows / ranks), rows / ranks);
        loops.sent(4, rank, rank, &floats(shard))
    };
    let numbers: Vec<f32> = (0..ranks).flat_map(shard).collect();
    Plain::from_data(
        burn_core::tensor::TensorData::new(numbers, [rows, columns]),
        &DEVICE,
    )
}

/// The sum of each rank's matrix, whose rows the ranks have in parts.
fn scattered(wire: &Communication, call: u64, of_ranks: Vec<Plain>) -> Vec<f32> {
    let operands: Vec<_> = of_ranks.into_iter().map(floats).collect();
    Loops::new(wire, 0, call).reduce_scatter(&operands).concat()
}

fn joined(axis: usize, ranks: usize, of: impl Fn(usize) -> Plain) -> Vec<f32> {
    floats(Tensor::cat((0..ranks).map(of).collect(), axis))
}

const SHAPES: [[usize; 3]; 3] = [[12, 7, 12], [24, 33, 24], [12, 1, 36]];
const RANKS: [usize; 4] = [2, 3, 4, 12];

fn inputs([m, k, n]: [usize; 3]) -> [Tensor<B, 2>; 3] {
    [tensor([m, k], 1), tensor([k, n], 2), tensor([m, n], 3)]
}

#[test]
fn a_gathered_product_is_as_written_out() {
    for (number, [values, gradients]) in wires().into_iter().enumerate() {
        for (shape, ranks) in SHAPES
            .into_iter()
            .flat_map(|s| RANKS.map(|ranks| (s, ranks)))
        {
            let transfers = SequenceParallel::new(values.clone(), gradients.clone());
            let length = shape[2] / ranks;
            for call in 0..2 {
                let what = format!("{number}: {shape:?}, {ranks} ranks, call {call}");
                let [y, of_x, of_w] = product(GATHERED, &transfers, inputs(shape), ranks);
                let [x, w, factor] = inputs(shape).map(Tensor::inner);
                let part = |x: &Plain, rank| x.clone().narrow(1, rank * length, length);
                let x = gathered(&values, call, &x, ranks);
                let forward = joined(1, ranks, |rank| x.clone().matmul(part(&w, rank)));
                assert_same(&y, &forward, &what);
                let of_weights = |rank| x.clone().transpose().matmul(part(&factor, rank));
                assert_same(&of_w, &joined(1, ranks, of_weights), &what);
                let of_rank = |rank| part(&factor, rank).matmul(part(&w, rank).transpose());
                let operands = (0..ranks).map(of_rank).collect();
                assert_same(&of_x, &scattered(&gradients, call, operands), &what);
            }
            for state in [&transfers.of_values, &transfers.of_gradients] {
                let calls = state.lock().unwrap().calls();
                assert!(
                    calls == 2 || calls == 0,
                    "a gather without a format has no call"
                );
            }
        }
    }
}

#[test]
fn a_scattered_product_is_as_written_out() {
    for (number, [values, gradients]) in wires().into_iter().enumerate() {
        for ([m, n, k], ranks) in SHAPES
            .into_iter()
            .flat_map(|s| RANKS.map(|ranks| (s, ranks)))
        {
            let shape = [m, k, n];
            let transfers = SequenceParallel::new(values.clone(), gradients.clone());
            let length = k / ranks;
            for call in 0..2 {
                let what = format!("{number}: {shape:?}, {ranks} ranks, call {call}");
                let [y, of_x, of_w] = product(SCATTERED, &transfers, inputs(shape), ranks);
                let [x, w, factor] = inputs(shape).map(Tensor::inner);
                let of_x_rank = |rank| x.clone().narrow(1, rank * length, length);
                let of_w_rank = |rank| w.clone().narrow(0, rank * length, length);
                let operands = (0..ranks).map(|rank| of_x_rank(rank).matmul(of_w_rank(rank)));
                assert_same(&y, &scattered(&values, call, operands.collect()), &what);
                let grad = gathered(&gradients, call, &factor, ranks);
                let of_inputs = |rank| grad.clone().matmul(of_w_rank(rank).transpose());
                assert_same(&of_x, &joined(1, ranks, of_inputs), &what);
                let of_weights = |rank| of_x_rank(rank).transpose().matmul(grad.clone());
                assert_same(&of_w, &joined(0, ranks, of_weights), &what);
            }
        }
    }
}

/// One rank: the bits of the plain product. No format: a gather changes nothing.
#[test]
fn one_rank_or_no_format_changes_no_bit() {
    for [values, gradients] in wires() {
        for of in [GATHERED, SCATTERED] {
            let transfers = SequenceParallel::new(values.clone(), gradients.clone());
            let got = product(of, &transfers, inputs([6, 10, 8]), 1);
            let [x, w, factor] = inputs([6, 10, 8]);
            let [x, w] = [x, w].map(Tensor::require_grad);
            let y = x.clone().matmul(w.clone());
            let grads = (y.clone() * factor).sum().backward();
            let of_inputs = [x, w].map(|tensor| floats(tensor.grad(&grads).unwrap()));
            assert_same(&got[0], &floats(y.inner()), "value");
            assert_same(&got[1], &of_inputs[0], "gradient of x");
            assert_same(&got[2], &of_inputs[1], "gradient of w");
            for state in [&transfers.of_values, &transfers.of_gradients] {
                assert_eq!(*state.lock().unwrap(), TensorState::default());
            }
        }
    }
    let plain = Communication::default();
    let transfers = SequenceParallel::new(plain.clone(), plain.clone());
    let [x, w, _] = inputs([12, 10, 8]);
    let divided = plain.divided_product(x.clone(), w.clone(), 4, &Default::default());
    let y = transfers.gathered_product(x, w, 4).unwrap();
    let divided = divided.unwrap().inner();
    assert_same(&floats(y.inner()), &floats(divided), "nothing is rounded");
}

/// A feed-forward network whose activations have their rows divided before and after.
fn network<T: RankGradients>(
    device: &T::Device,
    format: Option<&str>,
    ranks: usize,
) -> Vec<Vec<f32>> {
    let of = |shape: [usize; 3], seed| {
        let data = tensor::<Flex, 3>(shape, seed).into_data();
        Tensor::<T, 3>::from_data(data, device).require_grad()
    };
    let (x, up, down) = (of([2, 8, 16], 1), of([1, 16, 24], 2), of([1, 24, 8], 3));
    let y = match ranks {
        0 => x.clone().matmul(up.clone()).tanh().matmul(down.clone()),
        _ => {
            let wire = format.map_or_else(Communication::default, with);
            let transfers = || SequenceParallel::new(wire.clone(), wire.clone());
            let hidden = transfers().gathered_product(x.clone(), up.clone(), ranks);
            let hidden = hidden.unwrap().tanh();
            let y = transfers().scattered_product(hidden, down.clone(), ranks);
            y.unwrap()
        }
    };
    assert_eq!(y.dims(), [2, 8, 8]);
    let gradients = y.clone().powf_scalar(2.0).mean().backward();
    let values = |data: burn_core::tensor::TensorData| data.into_vec::<f32>().unwrap();
    let of = |tensor: Tensor<T, 3>| values(tensor.grad(&gradients).unwrap().into_data());
    let [x, up, down] = [x, up, down].map(of);
    vec![values(y.into_data()), x, up, down]
}

fn largest_difference(got: &[Vec<f32>], wanted: &[Vec<f32>]) -> f32 {
    let pairs = got.iter().flatten().zip(wanted.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn a_network_has_the_gradients_of_one_device() {
    let wanted = network::<B>(&DEVICE, None, 0);
    for ranks in [1, 2, 4, 8] {
        let got = network::<B>(&DEVICE, None, ranks);
        assert!(largest_difference(&got, &wanted) < 1e-5, "{ranks}");
        if ranks > 1 {
            let rounded = network::<B>(&DEVICE, Some("mxfp8_e4m3"), ranks);
            assert!(largest_difference(&rounded, &wanted) > 1e-4);
            let finer = network::<B>(&DEVICE, Some("bfloat16"), ranks);
            assert!(largest_difference(&finer, &wanted) < largest_difference(&rounded, &wanted));
        }
    }
    // On the decorator the formats of operands apply, and gradients are still gradients.
    type Mx = MxAutodiff<Flex>;
    for format in [None, Some("mxfp8_e4m3")] {
        let device = MxDevice::new(DEVICE, MxSpecs::none()).unwrap();
        let emulated = network::<Mx>(&device, format, 4);
        assert_eq!(emulated, network::<B>(&DEVICE, format, 4));
    }
    let device = MxDevice::new(DEVICE, "mxfp8_e4m3").unwrap();
    let emulated = network::<Mx>(&device, None, 0);
    assert_ne!(emulated, wanted);
    assert_eq!(network::<Mx>(&device, Some("mxfp4"), 1), emulated);
    let parallel = network::<Mx>(&device, Some("mxfp4"), 4);
    assert!(parallel.iter().flatten().all(|x| x.is_finite()));
    assert_ne!(parallel, emulated);
}

/// With batches a rank has rows of every matrix, and they are one message.
#[test]
fn rows_of_all_batches_are_one_message() {
    let wire = with("mxfp4");
    let [batches, rows, columns, ranks] = [3, 4, 10, 2];
    let x = tensor::<Flex, 3>([batches, rows, columns], 1);
    let identity = Tensor::<Flex, 2>::eye(columns, &DEVICE).unsqueeze::<3>();
    let [x_of, w_of] = [&x, &identity].map(|x| Tensor::<B, 3>::from_inner(x.clone()));
    let transfers = SequenceParallel::new(wire.clone(), Communication::default());
    let got = transfers.gathered_product(x_of, w_of, ranks).unwrap();
    let got = floats(got.inner());
    let numbers = floats(x);
    let loops = Loops::new(&wire, 0, 0);
    let place = |batch: usize, row: usize| (batch * rows + row) * columns;
    let mut expected = vec![0.0; numbers.len()];
    for rank in 0..ranks {
        let own = rank * rows / ranks..(rank + 1) * rows / ranks;
        let places: Vec<usize> = own
            .flat_map(|row| (0..batches).map(move |batch| place(batch, row)))
            .collect();
        let message: Vec<f32> = places
            .iter()
            .flat_map(|at| numbers[*at..*at + columns].to_vec())
            .collect();
        let arrived = loops.sent(4, rank, rank, &message);
        for (at, row) in places.into_iter().zip(arrived.chunks_exact(columns)) {
            expected[at..at + columns].copy_from_slice(row);
        }
    }
    // The product with the identity makes 0 of −0.
    assert_eq!(got, expected);
}

/// NaN, empty tensors, errors that are kept, and a state that goes on.
#[test]
fn unusual_inputs() {
    let feedback = Communication {
        error_feedback: Some("float32".into()),
        ..with("mxfp4")
    };
    let whole = SequenceParallel::new(feedback.clone(), feedback.clone());
    let step = |transfers: &SequenceParallel| {
        let gathered = product(GATHERED, transfers, inputs([8, 33, 8]), 4);
        gathered.concat()
    };
    let [first, second] = [step(&whole), step(&whole)];
    assert_ne!(first, second, "errors are added to the next message");
    let part = SequenceParallel::new(feedback.clone(), feedback.clone());
    step(&part);
    let text = |state: &std::sync::Mutex<TensorState>| {
        serde_json::to_string(&*state.lock().unwrap()).unwrap()
    };
    let loaded = |text: String| {
        let state: TensorState = serde_json::from_str(&text).unwrap();
        std::sync::Arc::new(std::sync::Mutex::new(state))
    };
    let resumed = SequenceParallel {
        of_values: loaded(text(&part.of_values)),
        of_gradients: loaded(text(&part.of_gradients)),
        ..part
    };
    assert_same(&step(&resumed), &second, "a resumed run");

    let transfers = SequenceParallel::new(with("mxfp8_e4m3"), with("mxfp8_e4m3"));
    for (m, k, n) in [(0, 4, 4), (4, 0, 4), (4, 4, 0)] {
        for of in [GATHERED, SCATTERED] {
            let y = of(
                &transfers,
                Tensor::ones([m, k], &DEVICE),
                Tensor::ones([k, n], &DEVICE),
                2,
            );
            assert_eq!(y.dims(), [m, n]);
        }
    }
    let mut x = vec![1.0; 128];
    x[0] = f32::NAN;
    let x = Tensor::<B, 1>::from_floats(x.as_slice(), &DEVICE).reshape([2, 64]);
    let y = GATHERED(&transfers, x, Tensor::ones([64, 2], &DEVICE), 2);
    let y = floats(y.inner());
    assert!(
        y[0].is_nan() && y[1].is_nan() && y[2..] == [64.0; 2],
        "{y:?}"
    );
}

#[test]
fn wrong_arguments_are_named() {
    let plain = Communication::default;
    let difference = Communication {
        difference: true,
        ..with("mxfp4")
    };
    let hadamard = Communication {
        hadamard: 32,
        ..with("mxfp4")
    };
    let refused = |of: usize, wires: [Communication; 2], ranks, start: &str| {
        let [values, gradients] = wires;
        let transfers = SequenceParallel::new(values, gradients);
        let [x, w, _] = inputs([8, 6, 4]);
        let product = match of {
            0 => transfers.gathered_product(x, w, ranks),
            _ => transfers.scattered_product(x, w, ranks),
        };
        let error = product.unwrap_err().to_string();
        let whole = error.starts_with(start) && error.contains("; allowed: ");
        assert!(whole, "{error}");
    };
    let none = || [plain(), plain()];
    refused(
        0,
        none(),
        0,
        "`ranks` is 0; allowed: 1 or more, a divisor of the 8 rows",
    );
    refused(
        0,
        none(),
        3,
        "`ranks` is 3; allowed: 1 or more, a divisor of the 8 rows",
    );
    refused(
        0,
        none(),
        8,
        "`ranks` is 8; allowed: 1 or more, a divisor of the 4 columns",
    );
    refused(
        1,
        none(),
        4,
        "`ranks` is 4; allowed: 1 or more, a divisor of the 6 numbers",
    );
    for of in [0, 1] {
        refused(of, [with("mxfp9"), plain()], 2, "`format` is mxfp9");
        refused(
            of,
            [plain(), with("fp8")],
            2,
            "`format` is fp8; allowed: bfloat10",
        );
        refused(
            of,
            [hadamard.clone(), plain()],
            2,
            "`hadamard` is 32; allowed: 0, or a divisor of the ",
        );
    }
    // Gathers alone send differences.
    refused(0, [plain(), difference.clone()], 2, "`difference` is true");
    refused(1, [difference.clone(), plain()], 2, "`difference` is true");
    let [x, w, _] = inputs([8, 6, 4]);
    let gathers = SequenceParallel::new(difference, plain());
    assert!(gathers.gathered_product(x, w, 2).is_ok());
}
