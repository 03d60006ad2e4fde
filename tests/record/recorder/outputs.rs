//! Model Optimizer's score of weights, against its formula.

use burn::module::{AutodiffModule, Module, Param};
use burn::tensor::module::{conv2d, linear};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Tensor, backend::Backend};
use burn_mx::Rounder;
use burn_mx::module::{pack, unpack};
use burn_mx::record::{Budget, Score, Search, SearchError, Sensitivity, output_sensitivities};
use burn_mx::{MxAutodiff, MxBackend, MxSpecs, Slot};

use crate::support::*;

type A = MxAutodiff<TestBackend>;
type B = MxBackend<TestBackend>;

/// A layer, and another one that is used twice.
#[derive(Module, Debug)]
struct Model<B: Backend> {
    first: Param<Tensor<B, 2>>,
    second: Param<Tensor<B, 2>>,
}

impl<B: Backend> Model<B> {
    /// The results of both uses of the second layer, the other one on the input itself.
    fn forward(&self, x: Tensor<B, 2>) -> [Tensor<B, 2>; 2] {
        let second = |x| linear(x, self.second.val(), None);
        let hidden = linear(x.clone(), self.first.val(), None);
        [second(hidden), second(x)]
    }

    /// Half the square of one result, and the square of the other one: their gradients are the results, once and twice.
    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let [one, other] = self.forward(x);
        one.powi_scalar(2).sum().div_scalar(2.0) + other.powi_scalar(2).sum()
    }
}

fn model() -> (Model<A>, Vec<Tensor<B, 2>>) {
    let device = mx_device(&MxSpecs::none());
    let noise = |shape, seed| noise_tensor::<B, 2>(shape, seed, &device);
    let weight = |shape, seed| Param::from_tensor(Tensor::<A, 2>::from_inner(noise(shape, seed)));
    let model = Model {
        first: weight([64, 64], 3),
        second: weight([64, 8], 4),
    };
    (model, vec![noise([5, 64], 5), noise([7, 64], 6)])
}

fn scores(formats: &[&str]) -> Result<Vec<Sensitivity>, SearchError> {
    let (model, batches) = model();
    let formats: Vec<String> = formats.iter().map(|format| (*format).to_owned()).collect();
    let mut passes = Vec::new();
    let scores = output_sensitivities(
        &model,
        &formats,
        &batches,
        |model, x| model.loss(Tensor::from_inner(x.clone())),
        |model: &Model<B>, x| model.forward(x.clone()),
        |done, all| passes.push((done, all)),
    )?;
    let all = 2 * formats.len() * batches.len();
    assert_eq!(
        passes,
        (1..=all).map(|done| (done, all)).collect::<Vec<_>>()
    );
    Ok(scores)
}

fn square(tensor: Tensor<B, 2>) -> f64 {
    let values = tensor.into_data();
    values.iter::<f64>().map(|x| x * x).sum()
}

#[test]
fn scores_follow_the_formula() {
    let scores = scores(&["mxfp8_e4m3", "mxfp4"]).unwrap();
    let (model, batches) = model();
    let model = model.valid();
    for format in ["mxfp8_e4m3", "mxfp4"] {
        let change = |weight: &Param<Tensor<B, 2>>| {
            let weight = weight.val();
            let packed = pack(
                weight.clone(),
                0,
                format.parse().unwrap(),
                Rounder::NearestEven,
            );
            unpack(&packed.unwrap().view(), &weight.device()) - weight
        };
        let [first, second] = [&model.first, &model.second].map(change);
        let mut expected = [0.0; 2];
        for x in &batches {
            let hidden = x.clone().matmul(model.first.val());
            let [one, other] = model.forward(x.clone());
            let gradient = one.clone().matmul(model.second.val().transpose());
            expected[0] += square(gradient * x.clone().matmul(first.clone()));
            expected[1] += square(one * hidden.matmul(second.clone()));
            expected[1] += square(other * 2.0 * x.clone().matmul(second.clone()));
        }
        for (place, expected) in scores.iter().zip(expected) {
            let got = place.score(format).unwrap();
            assert!((got / expected - 1.0).abs() < 1e-3, "{place:?} {expected}");
        }
    }
    let names: Vec<_> = scores
        .iter()
        .map(|place| (&*place.layer, place.slot))
        .collect();
    assert_eq!(names, [("first", Slot::W), ("second", Slot::W)]);
    let elements: Vec<f64> = scores.iter().map(|place| place.elements).collect();
    assert_eq!(elements, [4096.0, 512.0]);
}

#[test]
fn more_bits_never_have_a_larger_score() {
    let unknown = scores(&["mxint8", "mxfp5"]);
    assert!(matches!(unknown, Err(SearchError::Format { format, .. }) if format == "mxfp5"));
    let scores = scores(&["mxfp8_e5m2", "mxfp6_e2m3", "mxfp4"]).unwrap();
    for place in scores {
        let [narrow, middle, wide] =
            ["mxfp4", "mxfp6_e2m3", "mxfp8_e5m2"].map(|format| place.score(format).unwrap());
        // By itself E5M2, with two bits of mantissa, loses more than E2M3 with three.
        assert!(narrow > middle && middle == wide, "{place:?}");
    }
}

/// The sum over fewer batches would be smaller for no other reason.
#[test]
fn every_batch_passes_every_layer() {
    let (model, mut batches) = model();
    for _ in 0..2 {
        // The batch of seven inputs leaves out the first layer.
        let result = output_sensitivities(
            &model,
            &["mxfp4".to_owned()],
            &batches,
            |model, x| model.loss(Tensor::from_inner(x.clone())),
            |model: &Model<B>, x| match x.dims()[0] {
                7 => vec![linear(x.clone(), model.second.val(), None); 2],
                _ => model.forward(x.clone()).into(),
            },
            |_, _| (),
        );
        let error = result.unwrap_err().to_string();
        assert!(error.contains("`first`: not every batch"), "{error}");
        batches.reverse();
    }
}

#[test]
fn a_search_chooses_by_given_scores() {
    let places = scores(&["mxfp8_e4m3", "mxfp4"]).unwrap();
    let text = serde_json::to_string(&places).unwrap();
    let places: Vec<Sensitivity> = serde_json::from_str(&text).unwrap();
    let search = Search {
        formats: vec!["mxfp4".into(), "mxfp8_e4m3".into()],
        // The small layer alone can have the wide format.
        budget: Budget::Bits(5.0),
        specs: MxSpecs::mxfp8_e4m3(),
        score: Score::default(),
        slots: vec![Slot::W],
        keep: Vec::new(),
        pairs: Vec::new(),
        shared: false,
    };
    let found = search.find_by(places).unwrap();
    let formats: Vec<&str> = found.places.iter().map(|place| &*place.format).collect();
    assert_eq!(formats, ["mxfp4", "mxfp8_e4m3"]);
}

#[test]
fn a_layer_without_a_gradient_is_named() {
    let (model, batches) = model();
    let error = output_sensitivities(
        &model,
        &["mxfp4".to_owned()],
        &batches,
        |model, x| {
            let [_, other] = model.forward(Tensor::from_inner(x.clone()));
            other.sum()
        },
        |model: &Model<B>, x| model.forward(x.clone()),
        |_, _| (),
    );
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "`first`: the loss has no gradient for the result");
}

#[test]
fn a_convolution_has_the_score_of_the_formula() {
    #[derive(Module, Debug)]
    struct Net<B: Backend> {
        weight: Param<Tensor<B, 4>>,
    }
    fn convolved<B: Backend>(x: Tensor<B, 4>, weight: Tensor<B, 4>) -> Tensor<B, 4> {
        conv2d(x, weight, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1))
    }
    let device = mx_device(&MxSpecs::none());
    let x = noise_tensor::<B, 4>([2, 32, 5, 6], 7, &device);
    let weight = noise_tensor::<B, 4>([8, 32, 3, 3], 8, &device);
    let net = Net {
        weight: Param::from_tensor(Tensor::<A, 4>::from_inner(weight.clone())),
    };
    // The gradient is three times the result.
    let scores = output_sensitivities(
        &net,
        &["mxfp4".to_owned()],
        std::slice::from_ref(&x),
        |net, x| {
            let y = convolved(Tensor::from_inner(x.clone()), net.weight.val());
            y.powi_scalar(2).sum().mul_scalar(1.5)
        },
        |net: &Net<B>, x| convolved(x.clone(), net.weight.val()),
        |_, _| (),
    );
    let got = scores.unwrap()[0].score("mxfp4").unwrap();
    let format = "mxfp4".parse().unwrap();
    let packed = pack(weight.clone(), 1, format, Rounder::NearestEven).unwrap();
    let change = convolved(x.clone(), unpack(&packed.view(), &device) - weight.clone());
    let products = (change * convolved(x, weight) * 3.0).into_data();
    let expected: f64 = products.iter::<f64>().map(|x| x * x).sum();
    assert!((got / expected - 1.0).abs() < 1e-3, "{got} {expected}");
}
