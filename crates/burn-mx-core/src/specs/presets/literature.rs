//! Training recipes of the literature, as specs.

use microscaling::{
    BlockFormat, ElementFormat, Headroom, OuterScale, Rounding, ScaleFormat, ScaleMode,
};

use crate::specs::{
    ColumnChoice, ColumnScore, ElementwiseScope, GradientOperands, Hadamard, HadamardSigns,
    HotColumns, HotTreatment, MxSpecs, SlotFormat,
};

/// 4/3: the headroom that brings the largest FP4 element under scale mode `floor` from less than 8 steps to less than 6.
const FOUR_THIRDS: Headroom = match Headroom::new(4, 3) {
    Ok(headroom) => headroom,
    Err(_) => panic!("4/3 is a headroom"),
};

/// 3/2: the headroom that rounds the scale's exponent to nearest.
const THREE_HALVES: Headroom = match Headroom::new(3, 2) {
    Ok(headroom) => headroom,
    Err(_) => panic!("3/2 is a headroom"),
};

/// 17/16 · 0.93.
const EDEN_HEADROOM: Headroom = match Headroom::new(1581, 1600) {
    Ok(headroom) => headroom,
    Err(_) => panic!("it is one"),
};

/// 17/16: the headroom under which no element saturates where E4M3 rounds a scale of NVFP4 down.
const SEVENTEEN_SIXTEENTHS: Headroom = match Headroom::new(17, 16) {
    Ok(headroom) => headroom,
    Err(_) => panic!("17/16 is a headroom"),
};

/// The signs of TransformerEngine's Hadamard transform, the same in every layer and step.
const TRANSFORMER_ENGINE_SIGNS: u128 = 0xd7e8;

/// MXFP4 blocks of 32 elements.
const MXFP4: BlockFormat = BlockFormat::mx(ElementFormat::FP4_E2M1, 32);

impl MxSpecs {
    /// NVIDIA's pretraining in MXFP8 (Mishra et al., "Recipes for Pre-training LLMs with MXFP8", arXiv 2506.08027;
    /// TransformerEngine's `MXFP8BlockScaling`). Weights, activations and gradients are E4M3 in blocks of 32 along one axis,
    /// with scales rounded up. Each product quantizes the original operands. Products of activations, such as attention's,
    /// and the head stay in bfloat16, see [`Recipe`](crate::Recipe).
    pub fn mxfp8_pretraining() -> Self {
        Self {
            quantize_matmul: false,
            ..Self::mxfp8_rceil()
        }
    }

    /// The formats' authors' training in MXFP6 (Rouhani et al., "Microscaling Data Formats for Deep Learning", arXiv 2310.10537,
    /// by the settings of their library's example): E3M2 for all operands of all products, blocks of 32, scale mode `floor`,
    /// ties away from zero, also in the bfloat16 of all other ops.
    pub fn mxfp6_training() -> Self {
        Self {
            round: Rounding::NearestAway,
            ..Self::mxfp6_e3m2()
        }
    }

    /// Gradients in MXFP4 (Tseng, Yu and Park, "Training LLMs with MXFP4", arXiv 2502.20586, algorithms 2 and 3, and their
    /// code). The forward pass is in bfloat16, gradient products are in MXFP4. A gradient product first transforms its
    /// operands by a Hadamard transform in blocks of 64, with new signs for each product. Operands are multiplied by 3/4
    /// after the choice of the scale and rounded stochastically, and the product is multiplied by 16/9. Products of
    /// activations and the head stay in bfloat16.
    ///
    /// The authors' code rounds the transformed operands to bfloat16. Here they stay float32 until they are quantized.
    pub fn mxfp4_backward() -> Self {
        let transform = Hadamard::new(64).with_signs(HadamardSigns::Product);
        Self {
            hadamard_input_grad: Some(transform),
            hadamard_weight_grad: Some(transform),
            headroom_bp: FOUR_THIRDS,
            ..Self::bfloat16().with_gradients(MXFP4, Some(Rounding::Stochastic))
        }
    }

    /// NVIDIA's pretraining in NVFP4 ("Pretraining Large Language Models with NVFP4", arXiv 2509.25149, section 4 and
    /// appendices A to C; TransformerEngine's `NVFP4BlockScaling`). Activations and gradients have blocks of 16 along the
    /// summed axis, weights have blocks of 16 × 16, and each tensor has a scale. Rounding is to nearest, ties to even; both
    /// gradient products round the output's gradient stochastically. The weight's gradient has a Hadamard transform of 16
    /// with fixed signs. Products of activations, the head and the last 15 % of the layers stay in bfloat16, see
    /// [`Recipe`](crate::Recipe).
    ///
    /// The scales follow [`BlockFormat::nvfp4`], whose float32 operations are in torchao's order and not in
    /// TransformerEngine's. Transformed operands stay float32 until they are quantized.
    pub fn nvfp4_pretraining() -> Self {
        let one_axis = BlockFormat::nvfp4(true);
        let square = BlockFormat {
            square: true,
            ..one_axis
        };
        let [activations, weights] =
            [one_axis, square].map(|format| Some(SlotFormat::Block(format)));
        let signs = HadamardSigns::Given(TRANSFORMER_ENGINE_SIGNS);
        let stochastic = Some(Rounding::Stochastic);
        Self {
            w_elem_format: weights,
            a_elem_format: activations,
            round_mx_grad_output_grad_input: stochastic,
            round_mx_grad_output_grad_weight: stochastic,
            hadamard_weight_grad: Some(Hadamard::new(16).with_signs(signs)),
            ..Self::bfloat16()
        }
    }

    /// Quartet (Castro et al., "Quartet: Native FP4 Training Can Be Optimal for Large Language Models", arXiv 2505.14669,
    /// algorithm 1 of its last version). Both passes are in MXFP4. The forward pass has a fixed Hadamard transform of 32,
    /// and scales from the blocks' root mean squares, which clip. Gradient products take the operands that the forward
    /// product used, with a Hadamard transform whose signs are drawn. Operands are multiplied by 3/4 after the choice of
    /// the scale and rounded to nearest, and the product is multiplied by 16/9. The result becomes zero where the forward
    /// operand was clipped, and is transformed back. Products of activations and the head stay in bfloat16.
    ///
    /// The scale is 3/2 times the root mean square's optimum, rounded down to a power of two. So an optimum of at least 4/3
    /// of a power of two rounds up, a smaller one rounds down. With this rule the errors equal the paper's table 2 (mean
    /// squared 1.33 %, misaligned by 1.3 %). The authors' released code rounds the optimum itself down:
    /// [`quartet_code`](Self::quartet_code).
    ///
    /// The first version of the paper rounded gradients stochastically (`round_grad_input: stochastic` of the MX
    /// fields). According to the last version, stochastic rounding was not better. The authors' code takes the standard
    /// deviation for the root mean square, draws signs for a layer and not for a product, and breaks ties toward zero.
    pub fn quartet() -> Self {
        let headroom = THREE_HALVES;
        Self::quartet_with(BlockFormat { headroom, ..MXFP4 })
    }

    /// [`quartet`](Self::quartet) with the rule of its released code (github.com/IST-DASLab/Quartet): the scale's exponent is
    /// rounded down, which clips 5 % of the elements in place of 0.5 %.
    pub fn quartet_code() -> Self {
        Self::quartet_with(MXFP4)
    }

    /// Quartet with this block format forward, by root mean squares.
    fn quartet_with(format: BlockFormat) -> Self {
        let forward = BlockFormat {
            scale_mode: ScaleMode::Rms,
            ..format
        };
        let forward = Some(SlotFormat::Block(forward));
        let drawn = Hadamard::new(32).with_signs(HadamardSigns::Product);
        Self {
            w_elem_format: forward,
            a_elem_format: forward,
            hadamard_forward: Some(Hadamard::new(32).with_signs(HadamardSigns::Given(0))),
            hadamard_input_grad: Some(drawn),
            hadamard_weight_grad: Some(drawn),
            headroom_bp: FOUR_THIRDS,
            gradient_operands: GradientOperands::Forward,
            mask_clipped: true,
            ..Self::bfloat16().with_gradients(MXFP4, None)
        }
    }

    /// Quartet II (Panferov et al., "Quartet II: Accurate LLM Pre-Training in NVFP4 by Improved Unbiased Gradient Estimation",
    /// arXiv 2601.22813): both passes in NVFP4. The forward pass has four over six and rounds to nearest. Gradient products take
    /// the operands that the forward product used, and the gradient. A Hadamard transform of 128 with drawn signs comes first, then
    /// [MS-EDEN](BlockFormat::eden). Scales have the released code's headroom, 17/16 · 0.93. Products of activations and the
    /// head stay in bfloat16.
    ///
    /// The released code (github.com/IST-DASLab/Quartet-II) takes 1 for a block scale that would round to 0, where this preset takes
    /// the smallest scale, 2^−9, and has the same signs for both products of a layer.
    pub fn quartet2() -> Self {
        let forward = BlockFormat {
            four_over_six: true,
            ..BlockFormat::nvfp4(true)
        };
        let forward = Some(SlotFormat::Block(forward));
        let backward = BlockFormat {
            tensor_scale: true,
            eden: true,
            headroom: EDEN_HEADROOM,
            ..BlockFormat::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE4M3, 16)
        };
        let drawn = Hadamard::new(128).with_signs(HadamardSigns::Product);
        Self {
            w_elem_format: forward,
            a_elem_format: forward,
            hadamard_input_grad: Some(drawn),
            hadamard_weight_grad: Some(drawn),
            gradient_operands: GradientOperands::Forward,
            ..Self::bfloat16().with_gradients(backward, Some(Rounding::Stochastic))
        }
    }

    /// NVFP4 with four over six in training (arXiv 2512.02010, by the released code, github.com/mit-han-lab/fouroversix):
    /// [`nvfp4_pretraining`](Self::nvfp4_pretraining) in which every operand takes the better of two scales by the squared
    /// error, and the tensor scale is amax / 1536. The output's gradient is rounded stochastically with a headroom of 17/16.
    /// Products of activations, the head and 17 % of the layers before the head stay in bfloat16: the code keeps the last 4 of
    /// 24 blocks.
    ///
    /// Three choices are this project's own, because the sources that were read leave them open: weights have blocks of
    /// 16 × 16, the transform has [`nvfp4_pretraining`](Self::nvfp4_pretraining)'s signs, and the head is exempt. In the code the draws of
    /// stochastic rounding also choose the scale, which makes the gradient biased; here they do not
    /// ([`BlockFormat::four_over_six`]).
    pub fn nvfp4_four_over_six() -> Self {
        let one_axis = BlockFormat {
            four_over_six: true,
            ..BlockFormat::nvfp4(true)
        };
        let weights = BlockFormat {
            square: true,
            ..one_axis
        };
        let gradients = BlockFormat {
            headroom: SEVENTEEN_SIXTEENTHS,
            ..one_axis
        };
        let [activations, weights, gradients] =
            [one_axis, weights, gradients].map(|format| Some(SlotFormat::Block(format)));
        Self {
            w_elem_format: weights,
            a_elem_format: activations,
            a_elem_format_bp_ex: gradients,
            a_elem_format_bp_os: gradients,
            ..Self::nvfp4_pretraining()
        }
    }

    /// TetraJet-v2 (arXiv 2510.27527, by the released code, github.com/thu-ml/TetraJet-v2-NVFP4Training at ca5953f): FP4 in both passes, in blocks
    /// of 16 along one axis with an E4M3 scale, and a float32 scale for 1 × 128 elements, for weights, too. The forward pass rounds to
    /// nearest, ties to even. Gradient products take the operands that the forward product used, and the gradient; a Hadamard transform of
    /// 16 with drawn signs comes first, then stochastic rounding of both operands. OutControl keeps the hottest 10 % of the input channels in MXFP8 with
    /// scales rounded up ([`HotColumns`]). Their number is rounded up to a multiple of 128. OutControl acts in the forward product and in the
    /// weight's gradient, which rounds these channels to nearest without a transform. Products of activations and the head stay in bfloat16.
    ///
    /// The channels are fixed after a window of steps: run the training with `module::ColumnRanks`, whose defaults are the code's. Until then no
    /// channel is hot. [`ColumnChoice::Product`] ranks in each product. The reset of oscillating weights is the optimizer's
    /// (`optim::OscillationReset`).
    pub fn tetrajet_v2() -> Self {
        let format = BlockFormat {
            outer: Some(OuterScale::new(128)),
            ..BlockFormat::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE4M3, 16)
        };
        let hot_format = BlockFormat {
            scale_mode: ScaleMode::Rceil,
            ..BlockFormat::mx(ElementFormat::FP8_E4M3, 32)
        };
        let slot = Some(SlotFormat::Block(format));
        let drawn = Some(Hadamard::new(16).with_signs(HadamardSigns::Product));
        Self {
            w_elem_format: slot,
            a_elem_format: slot,
            hadamard_input_grad: drawn,
            hadamard_weight_grad: drawn,
            gradient_operands: GradientOperands::Forward,
            hot_columns: Some(HotColumns {
                percent: 10,
                multiple: 128,
                format: Some(hot_format.into()),
                chosen: ColumnChoice::Fixed,
                ..HotColumns::default()
            }),
            ..Self::bfloat16().with_gradients(format, Some(Rounding::Stochastic))
        }
    }

    /// CHON (arXiv 2602.02047): [`nvfp4_pretraining`](Self::nvfp4_pretraining) with the residuals of hot channels in forward products
    /// ([`HotTreatment::Residual`]). Channels are ranked by the mean errors of both operands.
    ///
    /// The score and the residuals are second-hand: this project read another person's notes on the paper. These choices are this project's own:
    /// * 5 % of the channels, ranked in each product. The paper refreshes the choice now and then.
    /// * Residuals are exact, and gradients have none.
    /// * The head is the only exempt layer. The paper also keeps the output projections of attention in bfloat16: name these layers in
    ///   [`Recipe::layers`](crate::Recipe::layers).
    pub fn chon() -> Self {
        Self {
            hot_columns: Some(HotColumns {
                percent: 5,
                treatment: HotTreatment::Residual,
                score: ColumnScore::Error,
                ..HotColumns::default()
            }),
            ..Self::nvfp4_pretraining()
        }
    }

    /// Averis (arXiv 2603.10444, first version): NVFP4 in both passes, with the mean of inputs and of output gradients apart
    /// ([`mean_apart`](Self::mean_apart)). Every operand is rounded stochastically. Products of activations and the head stay in bfloat16.
    ///
    /// The split and the roundings are second-hand: this project read another person's notes on the first version, and found no code. The roundings of the
    /// second version are not known. These choices are this project's own:
    /// * The mean is over all rows of an operand. Its blocks lie along its channels, in weights' gradients too.
    /// * Weights have blocks along one axis.
    /// * The head is the only exempt layer.
    pub fn averis() -> Self {
        let format = Some(SlotFormat::Block(BlockFormat::nvfp4(true)));
        let stochastic = Some(Rounding::Stochastic);
        Self {
            w_elem_format: format,
            a_elem_format: format,
            round_mx_output: stochastic,
            mean_apart: true,
            ..Self::bfloat16().with_gradients(BlockFormat::nvfp4(true), stochastic)
        }
    }

    /// UFP4 (arXiv 2606.20381): 4-bit elements in equal steps, E1M2, in both passes. Blocks of 16 along one axis have a float32
    /// scale, for weights, too. A Hadamard transform comes before the quantization of both operands of all three products.
    /// Rounding is to nearest, ties to even; both gradient products round the output's gradient stochastically. Products of
    /// activations and the head stay in bfloat16.
    ///
    /// The products, the roundings and the scale are second-hand: this project read the abstract and another person's notes,
    /// and found no code. These choices are this project's own: the transform's size, 16, its signs, which are
    /// [`nvfp4_pretraining`](Self::nvfp4_pretraining)'s, and the exempt layers.
    pub fn ufp4() -> Self {
        let specs = Self::in_float32_scales(ElementFormat::E1M2);
        Self {
            hadamard_forward: specs.hadamard_weight_grad,
            hadamard_input_grad: specs.hadamard_weight_grad,
            ..specs
        }
    }

    /// The recipe that UFP4 is compared with (arXiv 2606.20381): [`ufp4`](Self::ufp4) with E2M1 elements, and with a Hadamard
    /// transform in the weight's gradient alone. Both have the same sources and choices.
    pub fn ufp4_baseline() -> Self {
        Self::in_float32_scales(ElementFormat::FP4_E2M1)
    }

    /// Blocks of 16 of these elements, each block with a float32 scale. The output's gradient is rounded stochastically, and the
    /// weight's gradient has a Hadamard transform.
    fn in_float32_scales(element: ElementFormat) -> Self {
        let format = BlockFormat::float_scale(element, ScaleFormat::FLOAT32, 16);
        let format = Some(SlotFormat::Block(format));
        Self {
            w_elem_format: format,
            a_elem_format: format,
            ..Self::nvfp4_pretraining()
        }
    }

    /// Pretraining in HiF4 (arXiv 2604.08826): [`BlockFormat::HIF4`] for all operands of all products, rounded to nearest, ties
    /// to even, gradients included. Gradient products have a Hadamard transform of 64, the length of a block. Products of
    /// activations and the head stay in bfloat16.
    ///
    /// The format, the transform's size and the roundings are second-hand: this project read another person's notes on the paper.
    /// These choices are this project's own: the products with a transform (both gradient products), its signs (drawn for each
    /// product), blocks of weights along one axis, and the exempt layers.
    pub fn hif4_pretraining() -> Self {
        let format = Some(SlotFormat::Block(BlockFormat::HIF4));
        let transform = Some(Hadamard::new(64).with_signs(HadamardSigns::Product));
        Self {
            w_elem_format: format,
            a_elem_format: format,
            hadamard_input_grad: transform,
            hadamard_weight_grad: transform,
            ..Self::bfloat16()
        }
    }

    /// bfloat16 alone, ties to even, without blocks. Products of activations stay without blocks if formats are added.
    fn bfloat16() -> Self {
        Self {
            bfloat: 16,
            elementwise_scope: ElementwiseScope::Activations,
            round: Rounding::NearestEven,
            quantize_matmul: false,
            ..Self::default()
        }
    }

    /// The specs with this format and rounding in all gradient products.
    fn with_gradients(self, format: BlockFormat, rounding: Option<Rounding>) -> Self {
        let format = Some(format.into());
        Self {
            w_elem_format_bp: format,
            a_elem_format_bp: format,
            a_elem_format_bp_ex: format,
            a_elem_format_bp_os: format,
            round_mx_input_grad_input: rounding,
            round_mx_weight_grad_input: rounding,
            round_mx_grad_output_grad_input: rounding,
            round_mx_input_grad_weight: rounding,
            round_mx_grad_output_grad_weight: rounding,
            ..self
        }
    }
}
