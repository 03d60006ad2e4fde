//! The code of a model and of a loss that names full-precision pieces runs on plain Burn, and computes there what Burn computes.

use burn_autodiff::Autodiff;
use burn_core::module::Param;
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_core::tensor::{ElementConversion, Tensor, activation};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{ElementwiseScope, MxAutodiff, MxDevice, MxSpecs, Portable};
use burn_mx_module::{
    MxModelOps, as_activation, as_weight, distillation_loss, emulated, full_precision,
    gelu_first_order, hidden_state_loss, lerp, log_sum_exp, master, rms_norm, silu,
};
use burn_ndarray::{NdArray, NdArrayDevice};

const X: [[f32; 3]; 2] = [[1.01, -2.02, 0.3], [0.7, 3.3, -0.01]];

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().into_vec().expect("f32")
}

/// A device on which ops on data alone are emulated, too.
fn emulated_everywhere() -> MxDevice<FlexDevice> {
    let specs = MxSpecs {
        elementwise_scope: ElementwiseScope::All,
        ..MxSpecs::mxfp8_e4m3()
    };
    MxDevice::new(FlexDevice, specs).expect("sound specs")
}

/// A loss and its gradient by a model's code, and inference.
fn trained<B>(device: &B::Device) -> [Vec<f32>; 3]
where
    B: AutodiffBackend + MxModelOps,
    B::InnerBackend: MxModelOps,
{
    fn model<B: MxModelOps>(x: Tensor<B, 2>) -> Tensor<B, 2> {
        let gamma = Tensor::ones([3], &x.device());
        let x = as_weight(as_activation(x));
        rms_norm(gelu_first_order(silu(x)), gamma, None, 1e-5)
    }
    let x = Tensor::<B, 2>::from_floats(X, device).require_grad();
    let loss = full_precision(model(x.clone())).powi_scalar(2).mean();
    let grads = emulated(loss.clone()).backward();
    let gradient = x.grad(&grads).expect("a leaf");
    let x = Tensor::<B::InnerBackend, 2>::from_floats(X, device);
    [values(loss), values(gradient), values(model(x))]
}

/// The same model code, which does not name the emulation.
fn by_burn<B: AutodiffBackend>(device: &B::Device) -> [Vec<f32>; 3] {
    fn model<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = x.clone() * activation::sigmoid(x);
        let x = x.clone() * activation::sigmoid(x * 1.702);
        let mean = x.clone().powi_scalar(2).mean_dim(1);
        x / (mean + 1e-5).sqrt()
    }
    let x = Tensor::<B, 2>::from_floats(X, device).require_grad();
    let loss = model(x.clone()).powi_scalar(2).mean();
    let gradient = x.grad(&loss.backward()).expect("a leaf");
    [values(loss), values(gradient), values(model(x.inner()))]
}

fn assert_near(found: &[Vec<f32>; 3], expected: &[Vec<f32>; 3]) {
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() < 2e-6, "{found} {expected}");
    }
}

#[test]
fn a_models_code_runs_on_plain_burn() {
    let expected = by_burn::<Autodiff<Flex>>(&FlexDevice);
    assert_near(&trained::<Autodiff<Flex>>(&FlexDevice), &expected);
    assert_near(&trained::<Autodiff<Portable<Flex>>>(&FlexDevice), &expected);
    let ndarray = NdArrayDevice::Cpu;
    assert_near(&trained::<Autodiff<NdArray>>(&ndarray), &expected);
    assert_near(&trained::<Autodiff<NdArray<f64>>>(&ndarray), &expected);
    let emulated = trained::<MxAutodiff<Flex>>(&emulated_everywhere());
    let errors = emulated[2].iter().zip(&expected[2]);
    let largest = errors
        .map(|(found, exact)| (found - exact).abs())
        .fold(0.0, f32::max);
    assert!(largest > 1e-4, "inference is emulated: {largest}");
}

#[test]
fn a_full_precision_piece_of_plain_burn_is_the_identity() {
    let x = Tensor::<Autodiff<Flex>, 2>::from_floats(X, &FlexDevice).require_grad();
    let y = emulated(full_precision(as_activation(as_weight(x.clone()))));
    assert_eq!(values(y.clone()), X.concat());
    // The leaf itself, not a copy with its own node.
    let grads = y.sum().backward();
    assert_eq!(values(x.grad(&grads).expect("a leaf")), [1.0; 6]);
}

#[test]
fn weights_of_plain_burn_are_averaged() {
    fn averaged<B: AutodiffBackend + MxModelOps>(device: &B::Device) {
        let model = |value: f32| vec![Param::from_tensor(Tensor::<B, 1>::full([2], value, device))];
        let target = lerp(model(1.0), &model(2.0), 0.005).expect("equal shapes");
        assert_eq!(values(target[0].val()), [1.005; 2]);
        assert!(target[0].val().is_require_grad());
        assert_eq!(values(master(target[0].val()) * 2.0), [2.01; 2]);
    }
    averaged::<Autodiff<Flex>>(&FlexDevice);
    averaged::<Autodiff<NdArray>>(&NdArrayDevice::Cpu);
}

/// Cross-entropy with a z-loss, and the gradient of the logits.
fn z_loss<B: AutodiffBackend + MxModelOps>(device: &B::Device) -> [Vec<f32>; 2] {
    let logits = Tensor::<B, 2>::from_floats(X, device).require_grad();
    let targets = Tensor::from_ints([[2], [1]], device);
    let nll = -activation::log_softmax(logits.clone(), 1).gather(1, targets);
    let z = log_sum_exp(logits.clone(), 1).powi_scalar(2);
    let loss = (nll + z * 0.1).mean();
    let gradient = logits.grad(&loss.backward()).expect("a leaf");
    [values(loss), values(gradient)]
}

#[test]
fn a_z_loss_is_in_full_precision() {
    let expected = z_loss::<Autodiff<Flex>>(&FlexDevice);
    let exact = |row: [f32; 3]| row.map(|x| f64::from(x).exp()).iter().sum::<f64>().ln();
    let [first, second] = X.map(exact);
    let nll = first - f64::from(X[0][2]) + second - f64::from(X[1][1]);
    let loss = (nll + 0.1 * (first * first + second * second)) / 2.0;
    assert!((f64::from(expected[0][0]) - loss).abs() < 1e-6);
    let device = emulated_everywhere();
    assert_eq!(z_loss::<MxAutodiff<Flex>>(&device), expected);
    // The same of ops on the logits is rounded.
    let logits = Tensor::<MxAutodiff<Flex>, 2>::from_floats(X, &device);
    let rounded = values(logits.clone().exp().sum_dim(1).log());
    assert_ne!(rounded, values(log_sum_exp(logits, 1)));
}

/// The loss, and the gradients of the student's logits.
fn distillation<B: AutodiffBackend + MxModelOps>(
    teacher: [[f32; 3]; 2],
    temperature: f64,
    device: &B::Device,
) -> [Vec<f32>; 2] {
    let student = Tensor::<B, 2>::from_floats(X, device).require_grad();
    let teacher = Tensor::<B, 2>::from_floats(teacher, device);
    let loss = distillation_loss(student.clone(), teacher, temperature);
    let gradient = student.grad(&loss.backward()).expect("a leaf");
    [values(loss), values(gradient)]
}

#[test]
fn distillation_is_the_divergence_in_full_precision() {
    let teachers = [
        [[0.3, -2.0, 1.7], [5.0, 4.0, -30.0]],
        // A class that the teacher never chooses.
        [[0.3, f32::NEG_INFINITY, 1.7], [5.0, 4.0, -3e4]],
    ];
    for (teacher, temperature) in teachers.into_iter().flat_map(|t| [(t, 1.0), (t, 2.5)]) {
        let softmax = |row: [f32; 3]| {
            let powers = row.map(|x| (f64::from(x) / temperature).exp());
            powers.map(|power| power / powers.iter().sum::<f64>())
        };
        let (mut loss, mut gradient) = (0.0, Vec::new());
        for (student, teacher) in X.map(softmax).into_iter().zip(teacher.map(softmax)) {
            for (p, q) in teacher.into_iter().zip(student) {
                loss += if p > 0.0 { p * (p / q).ln() } else { 0.0 };
                gradient.push(temperature * (q - p) / 2.0);
            }
        }
        loss *= temperature * temperature / 2.0;
        let got = distillation::<Autodiff<Flex>>(teacher, temperature, &FlexDevice);
        assert!(
            (f64::from(got[0][0]) - loss).abs() < 2e-6 * loss.max(1.0),
            "{loss} {got:?}"
        );
        for (got, wanted) in got[1].iter().zip(gradient) {
            assert!((f64::from(*got) - wanted).abs() < 1e-6, "{got} {wanted}");
        }
        let device = emulated_everywhere();
        assert_eq!(
            distillation::<MxAutodiff<Flex>>(teacher, temperature, &device),
            got
        );
    }
}

#[test]
#[should_panic(expected = "`student` has the shape [2, 3], `teacher` [1, 3]")]
fn distillation_of_other_shapes_is_refused() {
    let logits = |rows| Tensor::<Flex, 2>::zeros([rows, 3], &FlexDevice);
    distillation_loss(logits(2), logits(1), 1.0);
}

/// The loss, and the gradients of the student's states.
fn hidden_states<B: AutodiffBackend + MxModelOps>(device: &B::Device) -> [Vec<f32>; 2] {
    let student = Tensor::<B, 2>::from_floats(X, device).require_grad();
    let teacher = Tensor::<B, 2>::from_floats([[1.0, -2.0, 0.3], [0.5, 0.0, 7.0]], device);
    let teacher = teacher.require_grad();
    let loss = hidden_state_loss(student.clone(), teacher.clone());
    let gradients = loss.backward();
    assert!(teacher.grad(&gradients).is_none());
    let gradient = student.grad(&gradients).expect("a leaf");
    [values(loss), values(gradient)]
}

#[test]
fn hidden_states_are_compared_in_full_precision() {
    let differences = [[0.01, -0.02, 0.0], [0.2, 3.3, -7.01]].concat();
    let loss = differences.iter().map(|x: &f64| x * x).sum::<f64>() / 6.0;
    let got = hidden_states::<Autodiff<Flex>>(&FlexDevice);
    assert!((f64::from(got[0][0]) - loss).abs() < 1e-6 * loss, "{got:?}");
    for (got, difference) in got[1].iter().zip(differences) {
        assert!((f64::from(*got) - difference / 3.0).abs() < 1e-6, "{got}");
    }
    let device = emulated_everywhere();
    assert_eq!(hidden_states::<MxAutodiff<Flex>>(&device), got);
}

#[test]
#[should_panic(expected = "hidden_state_loss: `student` has the shape [2, 3], `teacher` [2, 1]")]
fn hidden_states_of_other_widths_are_refused() {
    let states = |width| Tensor::<Flex, 2>::zeros([2, width], &FlexDevice);
    hidden_state_loss(states(3), states(1));
}

/// The largest element may be infinite, as a mask's are.
#[test]
fn a_sum_of_masked_logits_is_that_of_the_others() {
    let infinite = f32::NEG_INFINITY;
    let logits = [
        [infinite, 0.0, 0.0],
        [infinite; 3],
        [f32::INFINITY, 0.0, 1.0],
        [1e4, 1e4, -1e4],
    ];
    let logits = Tensor::<Flex, 2>::from_floats(logits, &FlexDevice);
    let sums = log_sum_exp(logits, 1);
    let ln_2: f32 = 2f32.ln().elem();
    assert_eq!(values(sums), [ln_2, infinite, f32::INFINITY, 1e4 + ln_2]);
}
