//! Attention that is written out as matmuls and a softmax in a scope. Two things give the expected bits: Burn's op where the order of ops is
//! equal, and a model here that rounds at the same points.

use burn::tensor::activation::{quiet_softmax, softmax};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Bool, Distribution, Tensor};
use burn_mx::{
    AttentionBackward, AttentionSpecs, Delta, MxAutodiff, MxBackend, MxSpecs, ValueAxis,
    attention_scope,
};

use super::arrays::*;
use super::attention_points::*;
use crate::backend::TestBackend;
use crate::support::*;

const SCALE: f64 = 0.4;

/// Attention as a model writes it.
fn written_out<const D: usize>(
    case: &Case,
    [q, k, v]: [Tensor<Mx, D>; 3],
    bias: Option<Tensor<Mx, D>>,
    mask: Option<Tensor<Mx, D, Bool>>,
) -> Tensor<Mx, D> {
    let mut scores = q.matmul(k.transpose()) * SCALE;
    if let Some(cap) = case.softcap {
        scores = (scores / cap).tanh() * cap;
    }
    if let Some(mask) = mask {
        scores = scores.mask_fill(mask, f32::NEG_INFINITY);
    }
    if let Some(bias) = bias {
        scores = scores + bias;
    }
    softmax(scores, D - 1).matmul(v)
}

/// The output and the gradients of query, key, value and bias, in a scope.
fn by_ops(case: &Case, specs: &MxSpecs) -> Vec<Vec<f32>> {
    let device = mx_device(specs);
    let inputs = case.inputs();
    let leaves = [0, 1, 2, 3].map(|i| inputs[i].tensor::<Mx, 4>(&device).require_grad());
    let [q, k, v, bias] = leaves.clone();
    let (bias, mask) = (case.bias.then_some(bias), case.mask(&device));
    let out = attention_scope(|| written_out(case, [q, k, v], bias, mask));
    let grads = Mx::loss_with_gradient(out.clone(), inputs[4].tensor(&device)).backward();
    let wanted = if case.bias { 4 } else { 3 };
    let gradients = leaves[..wanted].iter();
    let gradients = gradients.map(|leaf| values(leaf.grad(&grads).expect("it is a leaf")));
    [values(out)].into_iter().chain(gradients).collect()
}

/// A case and specs of ops apart, by a seed.
fn random_apart(seed: u64) -> (Case, AttentionSpecs) {
    let (case, mut specs) = (0..)
        .map(|next| random(1000 * seed + next))
        .find(|(_, specs)| specs.tile == 0)
        .expect("one has no tiles");
    let mut number = seed;
    specs.delta = Delta::Probabilities;
    specs.backward = choose(
        &mut number,
        &[AttentionBackward::Quantized, AttentionBackward::Float],
    );
    if specs.backward == AttentionBackward::Float {
        specs = AttentionSpecs {
            q_bp: None,
            k_bp: None,
            v_bp: None,
            probabilities_bp: None,
            ..specs
        };
    }
    // As softmax sees it, a causal mask is a mask.
    let case = Case {
        causal: false,
        ..case
    };
    (case, specs)
}

/// Attention without a cap in a scope, with roundings at the points: output, dq, dk, dv, and the bias's gradient for one batch.
fn model(case: &Case, specs: &AttentionSpecs, kv_heads: usize) -> Vec<Vec<f32>> {
    let device = Default::default();
    let bf = |x: Four| {
        Array::of(x)
            .rounded(case.bfloat16)
            .tensor::<TestBackend, 4>(&device)
    };
    let [q, k, v, bias, g] = case
        .inputs()
        .map(|x| bf(x.tensor::<TestBackend, 4>(&device)));
    // Copies for all heads: a product may sum up in another order where a tensor is a view, or broadcasts.
    let [k, v] = [k, v].map(|x| {
        let copies = x
            .narrow(1, 0, kv_heads)
            .repeat_dim(1, case.heads / kv_heads);
        Array::of(copies).tensor::<TestBackend, 4>(&device)
    });
    let float = [&q, &k, &v].map(Tensor::clone);
    let operand_scale = specs.probability_scale as f32;

    // q·kᵀ
    let k_mean = k.clone().mean_dim(2);
    let k_rest = if specs.smooth_k {
        k - k_mean.clone()
    } else {
        k
    };
    let mut q_means = q.zeros_like();
    if specs.smooth_q > 0 {
        let groups = (0..case.queries).step_by(specs.smooth_q).map(|first| {
            let rows = specs.smooth_q.min(case.queries - first);
            let mean = q.clone().narrow(2, first, rows).mean_dim(2);
            mean.repeat_dim(2, rows)
        });
        q_means = Tensor::cat(groups.collect(), 2);
    }
    let q_rest = if specs.smooth_q > 0 {
        q.clone() - q_means.clone()
    } else {
        q.clone()
    };
    let q_hat = in_lines(specs.q, q_rest.clone(), specs.q_rows);
    let k_hat = in_lines(specs.k, k_rest.clone(), specs.k_rows);
    let mut scores = q_hat.clone().matmul(k_hat.clone().transpose());
    if specs.smooth_q > 0 {
        scores = scores + q_means.clone().matmul(k_rest.clone().transpose());
    }
    if specs.smooth_k {
        scores = scores + q.matmul(k_mean.clone().transpose());
    }
    let scores = bf(at(specs.scores, scores, 3));

    // Scale, mask and bias are one op each.
    let mut shown = bf(scores * SCALE);
    let hidden: Vec<bool> = (0..case.batch * case.heads * case.queries * case.keys)
        .map(|i| case.is_hidden(i / case.keys % case.queries, i % case.keys))
        .collect();
    let hidden = Tensor::<TestBackend, 1, Bool>::from_data(&*hidden, &device);
    let hidden = hidden.reshape([case.batch, case.heads, case.queries, case.keys]);
    shown = shown.mask_fill(hidden.clone(), f32::NEG_INFINITY);
    if case.bias {
        shown = bf(shown + bias);
    }

    // Softmax.
    let rounded_shown = |format, x: Four| {
        let hidden = x.clone().equal_elem(f32::NEG_INFINITY);
        let shown = x.mask_fill(hidden.clone(), 0.0);
        at(format, shown, 3).mask_fill(hidden, f32::NEG_INFINITY)
    };
    let shown = rounded_shown(specs.scaled_scores, shown);
    let maximum = at(specs.maximum, shown.clone().max_dim(3), 3).clamp_min(f32::MIN);
    let exact = rounded_shown(specs.differences, shown.clone() - maximum.clone()).exp();
    let rounded = at(specs.exponentials, exact.clone(), 3);
    let summed = match specs.row_sums {
        burn_mx::RowSums::Exact => exact,
        _ => rounded.clone(),
    };
    let sum = at(specs.sum, summed.sum_dim(3), 3).clamp_min(f32::MIN_POSITIVE);
    let p = bf(rounded / sum.clone());
    let statistics = at(specs.statistics, maximum + sum.log(), 3).clamp_min(f32::MIN);

    // p·v
    let v_scales = specs.v_range.map(|range| {
        let scales = v.clone().abs().max_dim(2) / range.get();
        scales.clone().mask_fill(scales.equal_elem(0.0), 1.0)
    });
    let v_rest = match &v_scales {
        Some(scales) => v / scales.clone(),
        None => v,
    };
    let v_axis = if specs.v_axis == ValueAxis::Keys {
        2
    } else {
        3
    };
    let own = |format, before: Four, forward: Four, axis| match format {
        None => forward,
        format => at(format, before, axis),
    };
    let v_hat = at(specs.v, v_rest, v_axis);
    let times_scales = |x: Four| match &v_scales {
        Some(scales) => x * scales.clone(),
        None => x,
    };
    let p_hat = at(specs.probabilities, p.clone() * operand_scale, 3);
    let out = p_hat.clone().matmul(v_hat.clone()) / operand_scale;
    let out = bf(at(specs.output, times_scales(out), 3));

    // Gradients.
    let of_heads = |x: Four| {
        if kv_heads < case.heads {
            x.sum_dim(1)
        } else {
            x
        }
    };
    let quantized = specs.backward == AttentionBackward::Quantized;
    let [q_float, k_float, v_float] = float;
    let [q, k, v, p_hat] = match quantized {
        true => {
            let q_hat = own(specs.q_bp, q_rest, q_hat, 2);
            let k_hat = own(specs.k_bp, k_rest, k_hat, 2);
            [
                if specs.smooth_q > 0 {
                    q_hat + q_means
                } else {
                    q_hat
                },
                if specs.smooth_k {
                    k_hat + k_mean
                } else {
                    k_hat
                },
                own(specs.v_bp, v_float.clone(), times_scales(v_hat), 3),
                own(specs.probabilities_bp, p.clone(), p_hat / operand_scale, 2),
            ]
        }
        false => [q_float, k_float, v_float, p],
    };
    let dv = bf(of_heads(p_hat.transpose().matmul(at(
        specs.d_output,
        g.clone(),
        2,
    ))));
    let dp = at(specs.d_output_dp.or(specs.d_output), g, 3).matmul(v.transpose());
    let dp = bf(at(specs.d_probabilities, dp, 3));
    let p = (shown - statistics).exp();
    let delta = (p.clone() * dp.clone()).sum_dim(3);
    let dbias = bf(p * (dp - delta));
    let ds = bf(dbias.clone().mask_fill(hidden, 0.0) * SCALE);
    let dq = bf(at(specs.d_scores, ds.clone(), 3).matmul(k));
    let dk = bf(of_heads(at(specs.d_scores, ds, 2).transpose().matmul(q)));
    let mut results = vec![out, dq, dk, dv];
    if case.bias && case.batch == 1 {
        results.push(dbias);
    }
    results.into_iter().map(values).collect()
}

#[test]
fn every_op_rounds_where_the_model_rounds() {
    for seed in 0..60 {
        let (case, specs) = random_apart(seed);
        let case = Case {
            softcap: None,
            ..case
        };
        let mut got = by_ops(&case, &case.specs(specs));
        let expected = model(&case, &specs, case.heads);
        got.truncate(expected.len());
        let what = format!("seed {seed}, {specs}, {case:?}: out, dq, dk, dv, dbias");
        assert_all_same_bits(&got, &expected, &what);
    }
}

/// The scale and the mask are the same ops, in the same order, if no point lies between them.
#[test]
fn where_the_order_is_equal_the_bits_are_those_of_the_op() {
    for seed in 0..60 {
        let (case, mut specs) = random_apart(seed);
        let case = Case {
            bfloat16: false,
            ..case
        };
        if case.masked || case.bias {
            specs.scaled_scores = None;
        }
        if case.softcap.is_none() {
            // Without a cap, the op leaves out what softmax does not see.
            specs.smooth_k = false;
        }
        let all = case.specs(specs);
        let (got, expected) = (by_ops(&case, &all), case.by_op(&all));
        let what = format!("seed {seed}, {specs}, {case:?}");
        assert_same_bits(&got[0], &expected[0], &what);
        // The op computes the scores again from unrounded operands, and the slope of a cap in other steps.
        if case.softcap.is_none() && specs.backward == AttentionBackward::Quantized {
            // A mask's gradient is 0, and the op's may be −0.
            let [got, expected] = [got, expected].map(|all| {
                let gradients = all[1..3].iter();
                let unsigned = |x: &Vec<f32>| x.iter().map(|x| x + 0.0).collect::<Vec<_>>();
                gradients.map(unsigned).collect::<Vec<_>>()
            });
            assert_all_same_bits(&got, &expected, &format!("{what}: dq, dk"));
        }
    }
}

/// Batch and heads as one axis, as five axes with heads in groups, and without both.
#[test]
fn tensors_may_have_other_numbers_of_axes() {
    let specs: AttentionSpecs = "attention(q=nvfp4,k=mxfp4,v=nvfp4,probabilities=mxfp8_e4m3,d_output=mxfp8_e5m2,d_scores=mxfp4)"
        .parse()
        .expect("it is one");
    fn run<const D: usize>(case: &Case, specs: &MxSpecs, batch: &[usize]) -> Vec<Vec<f32>> {
        let device = mx_device(specs);
        let shaped = |array: &Array| {
            let shape = [batch, &array.shape[2..]].concat();
            let array = Array {
                shape,
                values: array.values.clone(),
            };
            array.tensor::<Mx, D>(&device).require_grad()
        };
        let inputs = case.inputs();
        let leaves = [0, 1, 2].map(|i| shaped(&inputs[i]));
        let out = attention_scope(|| written_out(case, leaves.clone(), None, None));
        let grads = Mx::loss_with_gradient(out.clone(), shaped(&inputs[4])).backward();
        let gradients = leaves
            .iter()
            .map(|leaf| values(leaf.grad(&grads).expect("it is a leaf")));
        [values(out)].into_iter().chain(gradients).collect()
    }
    let case = Case { batch: 2, ..SMALL };
    let all = case.specs(specs);
    let expected = by_ops(&case, &all);
    assert_all_same_bits(&run::<3>(&case, &all, &[4]), &expected, "three axes");
    assert_all_same_bits(&run::<5>(&case, &all, &[2, 1, 2]), &expected, "five axes");
    let one = Case { heads: 1, ..SMALL };
    assert_all_same_bits(&run::<2>(&one, &all, &[]), &by_ops(&one, &all), "two axes");
}

/// Several heads of queries share one head of keys and values.
#[test]
fn keys_and_values_may_broadcast() {
    for seed in 0..20 {
        let (case, specs) = random_apart(seed);
        let case = Case {
            softcap: None,
            bias: false,
            heads: 3,
            // Burn's `matmul` makes one head of heads with one query each.
            queries: case.queries.max(2),
            ..case
        };
        let device = mx_device(&case.specs(specs));
        let inputs = case.inputs();
        let leaf = |i: usize, heads: usize| {
            let tensor = inputs[i].tensor::<Mx, 4>(&device).narrow(1, 0, heads);
            Array::of(tensor).tensor::<Mx, 4>(&device).require_grad()
        };
        let leaves = [leaf(0, 3), leaf(1, 1), leaf(2, 1)];
        let mask = case.mask(&device);
        let out = attention_scope(|| written_out(&case, leaves.clone(), None, mask));
        let grads = Mx::loss_with_gradient(out.clone(), inputs[4].tensor(&device)).backward();
        let gradients = leaves
            .iter()
            .map(|leaf| values(leaf.grad(&grads).expect("it is a leaf")));
        let got: Vec<_> = [values(out)].into_iter().chain(gradients).collect();
        let expected = model(&case, &specs, 1);
        assert_all_same_bits(&got, &expected, &format!("seed {seed}, {specs}, {case:?}"));
    }
}

/// Matrix units of gradient products, where the heads of queries share a key and a value.
#[test]
fn units_of_gradients_take_operands_that_broadcast() {
    let format = "mx(element=fp8_e4m3,block_size=4)";
    let formats = [
        "q_bp",
        "k_bp",
        "v_bp",
        "probabilities_bp",
        "d_output",
        "d_scores",
    ];
    let formats = formats.map(|field| format!("{field}={format}")).join(",");
    let unit = "accumulator(order=joint,terms=4,fraction_bits=8,output=e8m7_rz)";
    let units = ["dv", "dp", "dq", "dk"].map(|of| format!("{of}_accumulator={unit}"));
    let text = format!(
        "attention(q=nvfp4,smooth_q=2,{formats},{})",
        units.join(",")
    );
    let device = mx_device(&SMALL.specs(text.parse().expect(&text)));
    let run = |copies: usize| {
        let noise = |shape: [usize; 4], seed| Array::noise(&shape, seed).tensor::<Mx, 4>(&device);
        let q = noise([1, 3, 5, 16], 1).require_grad();
        let [k, v] = [2, 3].map(|seed| noise([1, 1, 7, 16], seed).require_grad());
        let out = attention_scope(|| {
            let [k, v] = [&k, &v].map(|x| x.clone().repeat_dim(1, copies));
            written_out(&SMALL, [q.clone(), k, v], None, None)
        });
        let grads = Mx::loss_with_gradient(out.clone(), noise([1, 3, 5, 16], 4)).backward();
        let gradients = [q, k, v].map(|leaf| values(leaf.grad(&grads).expect("it is a leaf")));
        (values(out), gradients)
    };
    let (out, [dq, dk, dv]) = run(1);
    let (out_of_copies, [dq_of_copies, dk_of_copies, dv_of_copies]) = run(3);
    assert_same_bits(&out, &out_of_copies, "out");
    assert_same_bits(&dq, &dq_of_copies, "dq");
    // The sums over heads may have another order.
    for (got, expected) in [(dk, dk_of_copies), (dv, dv_of_copies)] {
        let pairs = got.iter().zip(&expected);
        assert!(
            pairs.clone().all(|(a, b)| (a - b).abs() < 1e-5),
            "{got:?}, {expected:?}"
        );
    }
}

/// Five axes of which keys and values lack one have the bits of copies.
#[test]
fn more_than_four_axes_may_broadcast() {
    let specs: AttentionSpecs = "attention(q=nvfp4,k=nvfp4,v=nvfp4,d_scores=mxfp4)"
        .parse()
        .expect("it is one");
    let device = mx_device(&SMALL.specs(specs));
    let noise = |shape: [usize; 5], seed| Array::noise(&shape, seed).tensor::<Mx, 5>(&device);
    let run = |copies: usize| {
        let q = noise([2, 1, 3, 5, 16], 1).require_grad();
        let [k, v] = [2, 3].map(|seed| noise([2, 1, 1, 7, 16], seed).require_grad());
        let out = attention_scope(|| {
            let [k, v] = [&k, &v].map(|x| x.clone().repeat_dim(2, copies));
            written_out(&SMALL, [q.clone(), k, v], None, None)
        });
        let grads = Mx::loss_with_gradient(out.clone(), noise([2, 1, 3, 5, 16], 4)).backward();
        [
            out,
            q.grad(&grads)
                .map(Tensor::from_inner)
                .expect("it is a leaf"),
        ]
        .map(values)
        .to_vec()
    };
    assert_all_same_bits(&run(1), &run(3), "out, dq");
}

#[test]
fn training_and_inference_give_the_same_bits() {
    let (case, specs) = random_apart(3);
    let specs = case.specs(specs);
    let device = mx_device(&specs);
    let inputs = case.inputs();
    let [q, k, v] = [0, 1, 2].map(|i| inputs[i].tensor::<MxBackend<TestBackend>, 4>(&device));
    let scores = attention_scope(|| {
        let mut scores = q.matmul(k.transpose()) * SCALE;
        if let Some(cap) = case.softcap {
            scores = (scores / cap).tanh() * cap;
        }
        softmax(scores, 3).matmul(v)
    });
    let case = Case {
        masked: false,
        bias: false,
        ..case
    };
    assert_same_bits(&values(scores), &by_ops(&case, &specs)[0], "out");
}

/// Scores of all heads, then softmax of all, then all products; a dropout of nothing between.
#[test]
fn the_parts_of_several_heads_may_interleave() {
    let specs: AttentionSpecs =
        "attention(q=nvfp4,v=nvfp4,probabilities=nvfp4,scaled_scores=bfloat16)"
            .parse()
            .expect("it is one");
    let device = mx_device(&SMALL.specs(specs));
    let head = |seed| {
        [seed, seed + 1, seed + 2].map(|seed| noise_tensor::<Mx, 3>([2, 8, 16], seed, &device))
    };
    let one = |[q, k, v]: [Tensor<Mx, 3>; 3]| softmax(q.matmul(k.transpose()), 2).matmul(v);
    let apart = attention_scope(|| [head(1), head(4)].map(one));
    let [[q, k, v], [q2, k2, v2]] = [head(1), head(4)];
    let interleaved = attention_scope(|| {
        let p = softmax(q.matmul(k.transpose()), 2);
        let s2 = q2.matmul(k2.transpose());
        let o = (p * 1.0).matmul(v);
        [o, softmax(s2, 2).matmul(v2)]
    });
    for (apart, interleaved) in apart.into_iter().zip(interleaved) {
        assert_same_bits(&values(apart), &values(interleaved), "a head");
    }
}

/// Products with one parameter, other softmaxes, scopes without the field, and ops outside of the scope have their bits.
#[test]
fn other_ops_do_not_change() {
    let specs: AttentionSpecs = "attention(q=nvfp4,k=nvfp4,v=nvfp4,probabilities=nvfp4)"
        .parse()
        .expect("it is one");
    let run = |specs: &MxSpecs, scope: bool| {
        let device = mx_device(specs);
        let work = || {
            let [a, b] = [1, 2].map(|seed| noise_tensor::<Mx, 2>([8, 8], seed, &device));
            let weight = b.clone().require_grad();
            let linear = a.clone().matmul(weight);
            let gate = softmax(a.clone(), 0);
            [linear, gate].map(values)
        };
        if scope { attention_scope(work) } else { work() }
    };
    let with = MxSpecs {
        attention: Some(specs),
        ..MxSpecs::mxfp4()
    };
    assert_eq!(run(&with, true), run(&with, false));
    let whole = |specs: &MxSpecs, scope: bool| {
        let device = mx_device(specs);
        let tensor = |seed| noise_tensor::<Mx, 2>([8, 8], seed, &device);
        let work = || softmax(tensor(1).matmul(tensor(2).transpose()), 1).matmul(tensor(3));
        values(if scope { attention_scope(work) } else { work() })
    };
    assert_eq!(
        whole(&MxSpecs::mxfp4(), true),
        whole(&MxSpecs::mxfp4(), false)
    );
    assert_ne!(whole(&with, true), whole(&with, false));
    // After a scope, and after a panic in one, nothing is left.
    let panic = std::panic::catch_unwind(|| attention_scope(|| panic!("in the scope")));
    assert!(panic.is_err());
    assert_eq!(whole(&with, false), whole(&MxSpecs::mxfp4(), false));
    // A scope in a scope is the same scope.
    assert_eq!(attention_scope(|| whole(&with, true)), whole(&with, true));
}

#[test]
fn an_empty_batch_gives_nothing() {
    let (_, specs) = random_apart(1);
    let case = Case { batch: 0, ..SMALL };
    let got = by_ops(&case, &case.specs(specs));
    assert!(got.iter().all(Vec::is_empty));
}

/// The backward pass in float32 has the gradients of the ops without formats, of the same probabilities.
#[test]
fn a_backward_pass_that_is_not_quantized_reads_unrounded_operands() {
    let specs: AttentionSpecs = "attention(q=nvfp4,k=nvfp4,v=nvfp4)"
        .parse()
        .expect("it is one");
    let float = |attention| MxSpecs {
        quantize_backprop: false,
        ..SMALL.specs(attention)
    };
    let got = by_ops(&SMALL, &float(specs));
    let expected = model(
        &SMALL,
        &AttentionSpecs {
            backward: AttentionBackward::Float,
            ..specs
        },
        2,
    );
    assert_all_same_bits(&got, &expected, "out, dq, dk, dv");
}

#[test]
fn what_does_not_fit_is_named() {
    type Work = fn([Tensor<Mx, 3>; 3]) -> Tensor<Mx, 3>;
    let plain: Work = |[q, k, v]| softmax(q.matmul(k.transpose()), 2).matmul(v);
    let cases: [(&str, Work, &str); 7] = [
        (
            "sageattention3",
            plain,
            "attention_scope: `attention.tile` is 128; allowed: 0",
        ),
        (
            "attention(delta=output)",
            plain,
            "attention_scope: `attention.delta` is output; allowed: probabilities",
        ),
        (
            "attention(q=nvfp4)",
            |[q, k, v]| softmax(q.matmul(k.transpose()), 1).matmul(v),
            "a softmax of scores along axis 1 of 3; allowed: the last axis, 2",
        ),
        (
            "attention(q=nvfp4)",
            |[q, k, v]| q.matmul(k.transpose()).matmul(v),
            "a matmul of scores and another tensor; allowed: query and key",
        ),
        (
            "attention(q=nvfp4)",
            |[q, k, v]| quiet_softmax(q.matmul(k.transpose()), 2).matmul(v),
            "a matmul of scores and another tensor; allowed: query and key",
        ),
        (
            "attention(q=nvfp4)",
            |[q, k, v]| v.transpose().matmul(softmax(q.matmul(k.transpose()), 2)),
            "a matmul of another tensor and probabilities; allowed: query and key",
        ),
        (
            "attention(q=nvfp4)",
            |[q, k, _]| {
                let p = softmax(q.matmul(k.transpose()), 2);
                p.clone().matmul(p)
            },
            "a matmul of probabilities and probabilities",
        ),
    ];
    for (text, work, expected) in cases {
        let device = mx_device(&SMALL.specs(text.parse().expect(text)));
        let tensor = || Tensor::<Mx, 3>::random([2, 4, 4], Distribution::Default, &device);
        let operands = [tensor(), tensor(), tensor()];
        let run = || attention_scope(|| work(operands));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let message = panic.err().map(|panic| match panic.downcast::<String>() {
            Ok(text) => *text,
            // A text without values.
            Err(panic) => (*panic.downcast::<&str>().expect("it is a text")).to_owned(),
        });
        let message = message.unwrap_or_else(|| panic!("{expected}: no panic"));
        assert!(message.contains(expected), "{text}: {message}");
    }
}

/// With gradient checkpointing, and a backward pass in the scope.
#[test]
fn checkpointing_and_a_backward_pass_in_the_scope_change_nothing() {
    use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
    fn run<B: Exact + AutodiffBackend>(device: &B::Device, inside: bool) -> Vec<f32> {
        let [q, k, v] =
            [1, 2, 3].map(|seed| noise_tensor::<B, 3>([2, 8, 16], seed, device).require_grad());
        let grad = noise_tensor::<B, 3>([2, 8, 16], 4, device);
        let forward =
            || softmax(q.clone().matmul(k.clone().transpose()) * SCALE, 2).matmul(v.clone());
        let loss = |out| B::loss_with_gradient(out, grad.clone()).backward();
        let grads = match inside {
            true => attention_scope(|| loss(forward())),
            false => loss(attention_scope(forward)),
        };
        values(q.grad(&grads).expect("it is a leaf"))
    }
    let specs = SMALL.specs(
        "attention(q=nvfp4,k=nvfp4,v=mxfp4,d_scores=nvfp4)"
            .parse()
            .expect("it is one"),
    );
    let device = mx_device(&specs);
    let expected = run::<Mx>(&device, false);
    assert_same_bits(&run::<Mx>(&device, true), &expected, "inside");
    type Balanced = MxAutodiff<TestBackend, BalancedCheckpointing>;
    assert_same_bits(&run::<Balanced>(&device, false), &expected, "checkpointing");
}
