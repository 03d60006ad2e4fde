//! One call of every op of Burn's float, module and activation traits, by its name.

use std::cell::{Cell, RefCell};

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Distribution, Shape, Slice, TensorData};
use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConvOptions,
    GridSampleOptions, InterpolateMode, InterpolateOptions, UnfoldOptions,
};
use burn_backend::tensor::{BoolTensor, IndexingUpdateOp};
use burn_backend::{
    BoolDType, FloatDType, IntDType, TensorMetadata, get_device_settings, read_sync,
};
use half::bf16;

use crate::support::noise;

/// The result of an op.
pub(crate) enum Output<B: Backend> {
    Floats(Vec<FloatTensor<B>>),
    /// Values of other types, or what there is to say of an op without a fixed result.
    Values(Vec<f64>),
}

/// Calls ops on the same inputs on any backend.
pub(crate) struct Calls<B: Backend> {
    pub(crate) device: B::Device,
    /// Whether the inputs are rounded to bfloat16.
    pub(crate) rounded: bool,
    /// Whether the inputs require gradients.
    pub(crate) tracked: bool,
    /// The conversion of the inputs before the op takes them.
    pub(crate) role: fn(FloatTensor<B>) -> FloatTensor<B>,
    /// The inputs of the calls so far.
    pub(crate) inputs: RefCell<Vec<FloatTensor<B>>>,
    /// The input that is taken next, where an op is called again on the inputs that it had.
    pub(crate) again: Cell<Option<usize>>,
}

/// The values of a float tensor.
pub(crate) fn floats<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    let data = read_sync(B::float_into_data(tensor)).expect("the tensor can be read");
    data.into_vec().expect("the tensor holds f32")
}

fn ints<B: Backend>(tensor: IntTensor<B>) -> Vec<f64> {
    let data = read_sync(B::int_into_data(tensor)).expect("the tensor can be read");
    data.iter::<f64>().collect()
}

fn bools<B: Backend>(tensor: BoolTensor<B>) -> Vec<f64> {
    let data = read_sync(B::bool_into_data(tensor)).expect("the tensor can be read");
    data.iter::<bool>()
        .map(|x| f64::from(u8::from(x)))
        .collect()
}

impl<B: Backend> Calls<B> {
    pub(crate) fn new(device: B::Device, rounded: bool, tracked: bool) -> Self {
        Self {
            device,
            rounded,
            tracked,
            role: |tensor| tensor,
            inputs: RefCell::new(Vec::new()),
            again: Cell::new(None),
        }
    }

    /// An input of these values.
    fn input(&self, mut values: Vec<f32>, shape: &[usize]) -> FloatTensor<B> {
        if let Some(at) = self.again.get() {
            self.again.set(Some(at + 1));
            return (self.role)(self.inputs.borrow()[at].clone());
        }
        if self.rounded {
            let round = |x: &mut f32| *x = bf16::from_f32(*x).to_f32();
            values.iter_mut().for_each(round);
        }
        let mut tensor = self.position(values, shape);
        if self.tracked {
            tensor = B::float_set_require_grad(tensor, true);
        }
        self.inputs.borrow_mut().push(tensor.clone());
        (self.role)(tensor)
    }

    /// A tensor of these values, which no backend is asked to round.
    fn position(&self, values: Vec<f32>, shape: &[usize]) -> FloatTensor<B> {
        B::float_from_data(
            TensorData::new(values, Shape::from(shape.to_vec())),
            &self.device,
        )
    }

    /// Values of either sign and any magnitude.
    fn of(&self, seed: u64, shape: &[usize]) -> FloatTensor<B> {
        self.input(noise(shape.iter().product(), seed), shape)
    }

    /// Values between 0 and 1.
    fn unit(&self, seed: u64, shape: &[usize]) -> FloatTensor<B> {
        let values = noise(shape.iter().product(), seed);
        let unit = |x: f32| x.abs() / 4.0 + 0.01;
        self.input(values.into_iter().map(unit).collect(), shape)
    }

    fn int(&self, values: &[i64], shape: &[usize]) -> IntTensor<B> {
        let data = TensorData::new(values.to_vec(), Shape::from(shape.to_vec()));
        B::int_from_data(data.convert_dtype(self.int_dtype().into()), &self.device)
    }

    fn bool(&self, values: &[bool], shape: &[usize]) -> BoolTensor<B> {
        B::bool_from_data(
            TensorData::new(values.to_vec(), Shape::from(shape.to_vec())),
            &self.device,
        )
    }

    fn int_dtype(&self) -> IntDType {
        get_device_settings::<B>(&self.device).int_dtype
    }

    fn bool_dtype(&self) -> BoolDType {
        get_device_settings::<B>(&self.device).bool_dtype
    }

    /// The result of `op`; `None` if there is no call of that name here.
    pub(crate) fn call(&self, op: &str) -> Option<Output<B>> {
        self.creation(op)
            .or_else(|| self.comparison(op))
            .or_else(|| self.movement(op))
            .or_else(|| self.elementwise(op))
            .or_else(|| self.module(op))
            .or_else(|| self.product(op))
            .or_else(|| self.activation(op))
    }

    fn creation(&self, op: &str) -> Option<Output<B>> {
        let (device, dtype) = (&self.device, FloatDType::F32);
        let shape = || Shape::new([2, 3]);
        let x = || self.of(1, &[4, 6]);
        let dims = |tensor: FloatTensor<B>| {
            Output::Values(tensor.shape().iter().map(|&dim| dim as f64).collect())
        };
        Some(match op {
            "float_from_data" | "float_into_data" => one(x()),
            "float_random" => dims(B::float_random(
                shape(),
                Distribution::Default,
                device,
                dtype,
            )),
            "float_zeros" => one(B::float_zeros(shape(), device, dtype)),
            "float_ones" => one(B::float_ones(shape(), device, dtype)),
            "float_full" => one(B::float_full(shape(), 0.3f32.into(), device, dtype)),
            "float_empty" => dims(B::float_empty(shape(), device, dtype)),
            "float_device" => {
                Output::Values(vec![f64::from(u8::from(B::float_device(&x()) == *device))])
            }
            "float_to_device" => one(B::float_to_device(x(), device)),
            "float_into_int" => Output::Values(ints::<B>(B::float_into_int(x(), self.int_dtype()))),
            "float_cast" => one(B::float_cast(x(), dtype)),
            "float_detach" => one(B::float_detach(x())),
            "float_set_require_grad" => one(B::float_set_require_grad(x(), self.tracked)),
            "float_is_require_grad" => {
                Output::Values(vec![f64::from(u8::from(B::float_is_require_grad(&x())))])
            }
            "has_ctc_loss_backward" => {
                Output::Values(vec![f64::from(u8::from(B::has_ctc_loss_backward()))])
            }
            _ => return None,
        })
    }

    fn comparison(&self, op: &str) -> Option<Output<B>> {
        let (x, y) = (|| self.of(1, &[4, 6]), || self.of(2, &[4, 6]));
        // One bfloat16 with 0.3, but not one number.
        let elem = || 0.300_781_25f32.into();
        let near = || self.input(vec![0.3, 0.300_781_25, 1.0, 1.001], &[4]);
        let other = || self.input(vec![0.300_781_25, 0.3, 1.001, 1.0], &[4]);
        let (dtype, index) = (self.bool_dtype(), self.int_dtype());
        let values = |tensor| Output::Values(bools::<B>(tensor));
        let indices = |tensor| Output::Values(ints::<B>(tensor));
        Some(match op {
            "float_equal" => values(B::float_equal(near(), other(), dtype)),
            "float_not_equal" => values(B::float_not_equal(near(), other(), dtype)),
            "float_equal_elem" => values(B::float_equal_elem(near(), elem(), dtype)),
            "float_not_equal_elem" => values(B::float_not_equal_elem(near(), elem(), dtype)),
            "float_greater" => values(B::float_greater(near(), other(), dtype)),
            "float_greater_elem" => values(B::float_greater_elem(near(), elem(), dtype)),
            "float_greater_equal" => values(B::float_greater_equal(near(), other(), dtype)),
            "float_greater_equal_elem" => {
                values(B::float_greater_equal_elem(near(), elem(), dtype))
            }
            "float_lower" => values(B::float_lower(near(), other(), dtype)),
            "float_lower_elem" => values(B::float_lower_elem(near(), elem(), dtype)),
            "float_lower_equal" => values(B::float_lower_equal(near(), other(), dtype)),
            "float_lower_equal_elem" => values(B::float_lower_equal_elem(near(), elem(), dtype)),
            "float_any" => values(B::float_any(x(), dtype)),
            "float_any_dim" => values(B::float_any_dim(x(), 1, dtype)),
            "float_all" => values(B::float_all(y(), dtype)),
            "float_all_dim" => values(B::float_all_dim(y(), 1, dtype)),
            "float_is_nan" => values(B::float_is_nan(x(), dtype)),
            "float_is_inf" => values(B::float_is_inf(
                self.input(vec![3.4e38, f32::INFINITY], &[2]),
                dtype,
            )),
            "float_argmax" => indices(B::float_argmax(near(), 0, index)),
            "float_argmin" => indices(B::float_argmin(near(), 0, index)),
            "float_argtopk" => indices(B::float_argtopk(near(), 0, 3, index)),
            "float_argsort" => indices(B::float_argsort(near(), 0, false, index)),
            _ => return None,
        })
    }

    fn movement(&self, op: &str) -> Option<Output<B>> {
        let (x, y) = (|| self.of(1, &[4, 6]), || self.of(2, &[4, 6]));
        let rows = || self.int(&[2, 0, 2], &[3]);
        let mask = || self.bool(&[true, false, false, true, false, true].repeat(4), &[4, 6]);
        let slices = [Slice::new(1, Some(3), 1), Slice::new(0, Some(6), 1)];
        let index = self.int_dtype();
        Some(match op {
            "float_repeat_dim" => one(B::float_repeat_dim(x(), 1, 2)),
            "float_transpose" => one(B::float_transpose(x())),
            "float_swap_dims" => one(B::float_swap_dims(x(), 0, 1)),
            "float_permute" => one(B::float_permute(x(), &[1, 0])),
            "float_flip" => one(B::float_flip(x(), &[1])),
            "float_reshape" => one(B::float_reshape(x(), Shape::new([3, 8]))),
            "float_expand" => one(B::float_expand(self.of(1, &[1, 6]), Shape::new([4, 6]))),
            "float_unfold" => one(B::float_unfold(x(), 1, 3, 2)),
            "float_gather" => one(B::float_gather(1, x(), self.int(&[1, 1, 5, 0], &[4, 1]))),
            "float_gather_nd" => one(B::float_gather_nd(x(), self.int(&[1, 1, 3, 0], &[2, 2]))),
            "float_select" => one(B::float_select(x(), 0, rows())),
            "float_slice" => one(B::float_slice(x(), &slices)),
            "float_slice_assign" => one(B::float_slice_assign(x(), &slices, self.of(2, &[2, 6]))),
            "float_mask_where" => one(B::float_mask_where(x(), mask(), y())),
            "float_mask_fill" => one(B::float_mask_fill(x(), mask(), 0.3f32.into())),
            "float_cat" => one(B::float_cat(vec![x(), y()], 0)),
            "float_neg" => one(B::float_neg(x())),
            "float_abs" => one(B::float_abs(x())),
            "float_sign" => one(B::float_sign(x())),
            "float_clamp" => one(B::float_clamp(x(), (-0.3f32).into(), 0.3f32.into())),
            "float_clamp_min" => one(B::float_clamp_min(x(), 0.3f32.into())),
            "float_clamp_max" => one(B::float_clamp_max(x(), 0.3f32.into())),
            "float_cummin" => one(B::float_cummin(x(), 1)),
            "float_cummax" => one(B::float_cummax(x(), 1)),
            "float_sort" => one(B::float_sort(x(), 1, false)),
            "float_sort_with_indices" => one(B::float_sort_with_indices(x(), 1, true, index).0),
            "float_topk" => one(B::float_topk(x(), 1, 2)),
            "float_max" => one(B::float_max(x())),
            "float_max_dim" => one(B::float_max_dim(x(), 1)),
            "float_max_dim_with_indices" => one(B::float_max_dim_with_indices(x(), 1, index).0),
            "float_min" => one(B::float_min(x())),
            "float_min_dim" => one(B::float_min_dim(x(), 1)),
            "float_min_dim_with_indices" => one(B::float_min_dim_with_indices(x(), 1, index).0),
            "float_max_abs" => one(B::float_max_abs(x())),
            "float_max_abs_dim" => one(B::float_max_abs_dim(x(), 1)),
            _ => return None,
        })
    }

    fn elementwise(&self, op: &str) -> Option<Output<B>> {
        let (x, y) = (|| self.of(1, &[4, 6]), || self.of(2, &[4, 6]));
        let unit = || self.unit(1, &[4, 6]);
        let scalar = || 0.3f32.into();
        let rows = || self.int(&[2, 0, 2], &[3]);
        Some(match op {
            "float_add" => one(B::float_add(x(), y())),
            "float_sub" => one(B::float_sub(x(), y())),
            "float_mul" => one(B::float_mul(x(), y())),
            "float_div" => one(B::float_div(x(), y())),
            "float_remainder" => one(B::float_remainder(x(), y())),
            "float_powf" => one(B::float_powf(unit(), y())),
            "float_atan2" => one(B::float_atan2(x(), y())),
            "float_cross" => one(B::float_cross(self.of(1, &[4, 3]), self.of(2, &[4, 3]), 1)),
            "float_powi" => one(B::float_powi(x(), self.int(&[2, 3, 1].repeat(8), &[4, 6]))),
            "float_add_scalar" => one(B::float_add_scalar(x(), scalar())),
            "float_sub_scalar" => one(B::float_sub_scalar(x(), scalar())),
            "float_mul_scalar" => one(B::float_mul_scalar(x(), scalar())),
            "float_div_scalar" => one(B::float_div_scalar(x(), scalar())),
            "float_remainder_scalar" => one(B::float_remainder_scalar(x(), scalar())),
            "float_powi_scalar" => one(B::float_powi_scalar(x(), 3.into())),
            "float_powi_scalar_impl" => one(B::float_powi_scalar_impl(x(), 3.into())),
            "float_powf_scalar" => one(B::float_powf_scalar(unit(), 1.7f32.into())),
            "float_powf_scalar_impl" => one(B::float_powf_scalar_impl(unit(), 1.7f32.into())),
            "float_exp" => one(B::float_exp(x())),
            "float_log" => one(B::float_log(unit())),
            "float_log1p" => one(B::float_log1p(unit())),
            "float_sqrt" => one(B::float_sqrt(unit())),
            "float_recip" => one(B::float_recip(x())),
            "float_cos" => one(B::float_cos(x())),
            "float_sin" => one(B::float_sin(x())),
            "float_tan" => one(B::float_tan(unit())),
            "float_cosh" => one(B::float_cosh(x())),
            "float_sinh" => one(B::float_sinh(x())),
            "float_tanh" => one(B::float_tanh(x())),
            "float_acos" => one(B::float_acos(unit())),
            "float_acosh" => one(B::float_acosh(self.input(vec![1.1, 1.7, 3.3], &[3]))),
            "float_asin" => one(B::float_asin(unit())),
            "float_asinh" => one(B::float_asinh(x())),
            "float_atan" => one(B::float_atan(x())),
            "float_atanh" => one(B::float_atanh(unit())),
            // Halves that rounding the operand makes.
            "float_round" => one(B::float_round(
                self.input(vec![2.4999, 3.5001, -1.4999], &[3]),
            )),
            "float_floor" => one(B::float_floor(self.input(vec![1.9999, -0.0001], &[2]))),
            "float_ceil" => one(B::float_ceil(self.input(vec![1.0001, 2.3], &[2]))),
            "float_trunc" => one(B::float_trunc(self.input(vec![1.9999, -1.9999], &[2]))),
            "float_erf" => one(B::float_erf(x())),
            "float_sum" => one(B::float_sum(x())),
            "float_sum_dim" => one(B::float_sum_dim(x(), 1)),
            "float_prod" => one(B::float_prod(self.unit(1, &[4]))),
            "float_prod_dim" => one(B::float_prod_dim(unit(), 1)),
            "float_mean" => one(B::float_mean(x())),
            "float_mean_dim" => one(B::float_mean_dim(x(), 1)),
            "float_cumsum" => one(B::float_cumsum(x(), 1)),
            "float_cumprod" => one(B::float_cumprod(x(), 1)),
            "float_scatter_add" => {
                let indices = self.int(&[1, 1, 5, 0, 2, 2, 4, 0], &[4, 2]);
                one(B::float_scatter_add(1, x(), indices, self.of(2, &[4, 2])))
            }
            "float_select_add" => one(B::float_select_add(x(), 0, rows(), self.of(2, &[3, 6]))),
            "float_scatter_nd" => {
                let indices = self.int(&[1, 3], &[2, 1]);
                one(B::float_scatter_nd(
                    x(),
                    indices,
                    self.of(2, &[2, 6]),
                    IndexingUpdateOp::Add,
                ))
            }
            "float_grid_sample_2d" => {
                let grid = noise(2 * 3 * 4 * 2, 3)
                    .into_iter()
                    .map(|x| x / 2.0)
                    .collect();
                let grid = self.position(grid, &[2, 3, 4, 2]);
                let options = GridSampleOptions::new(InterpolateMode::Bilinear);
                one(B::float_grid_sample_2d(
                    self.of(1, &[2, 2, 5, 4]),
                    grid,
                    options,
                ))
            }
            _ => return None,
        })
    }

    fn module(&self, op: &str) -> Option<Output<B>> {
        let (line, image) = (|| self.of(1, &[2, 3, 8]), || self.of(1, &[2, 3, 8, 6]));
        let linear = || InterpolateOptions::new(InterpolateMode::Bilinear);
        Some(match op {
            "embedding" => one(B::embedding(
                self.of(1, &[5, 4]),
                self.int(&[3, 0, 3, 1], &[2, 2]),
            )),
            "embedding_backward" => {
                let indices = self.int(&[3, 0, 3, 1], &[2, 2]);
                one(B::embedding_backward(
                    self.of(1, &[5, 4]),
                    self.of(2, &[2, 2, 4]),
                    indices,
                ))
            }
            "unfold4d" => {
                let options = UnfoldOptions::new([1, 1], [1, 1], [1, 1]);
                one(B::unfold4d(image(), [3, 2], options))
            }
            "avg_pool1d" => one(B::avg_pool1d(line(), 3, 2, 1, true, false)),
            "avg_pool1d_backward" => one(B::avg_pool1d_backward(
                line(),
                self.of(2, &[2, 3, 4]),
                3,
                2,
                1,
                true,
                false,
            )),
            "avg_pool2d" => one(B::avg_pool2d(image(), [3, 2], [2, 2], [1, 0], true, false)),
            "avg_pool2d_backward" => {
                let grad = self.of(2, &[2, 3, 4, 3]);
                one(B::avg_pool2d_backward(
                    image(),
                    grad,
                    [3, 2],
                    [2, 2],
                    [1, 0],
                    true,
                    false,
                ))
            }
            "adaptive_avg_pool1d" => one(B::adaptive_avg_pool1d(line(), 3)),
            "adaptive_avg_pool1d_backward" => one(B::adaptive_avg_pool1d_backward(
                line(),
                self.of(2, &[2, 3, 3]),
            )),
            "adaptive_avg_pool2d" => one(B::adaptive_avg_pool2d(image(), [3, 4])),
            "adaptive_avg_pool2d_backward" => one(B::adaptive_avg_pool2d_backward(
                image(),
                self.of(2, &[2, 3, 3, 4]),
            )),
            "max_pool1d" => one(B::max_pool1d(line(), 3, 2, 1, 1, false)),
            "max_pool1d_with_indices" => {
                one(B::max_pool1d_with_indices(line(), 3, 2, 1, 1, false).output)
            }
            "max_pool1d_with_indices_backward" => {
                let x = self.position(noise(48, 1), &[2, 3, 8]);
                let indices = B::max_pool1d_with_indices(x.clone(), 3, 2, 1, 1, false).indices;
                let grad = self.of(2, &[2, 3, 4]);
                one(B::max_pool1d_with_indices_backward(x, 3, 2, 1, 1, false, grad, indices).x_grad)
            }
            "max_pool2d" => one(B::max_pool2d(
                image(),
                [3, 2],
                [2, 2],
                [1, 0],
                [1, 1],
                false,
            )),
            "max_pool2d_with_indices" => {
                one(
                    B::max_pool2d_with_indices(image(), [3, 2], [2, 2], [1, 0], [1, 1], false)
                        .output,
                )
            }
            "max_pool2d_with_indices_backward" => {
                let (kernel, stride, padding, dilation) = ([3, 2], [2, 2], [1, 0], [1, 1]);
                let x = self.position(noise(288, 1), &[2, 3, 8, 6]);
                let pooled =
                    B::max_pool2d_with_indices(x.clone(), kernel, stride, padding, dilation, false);
                let backward = B::max_pool2d_with_indices_backward(
                    x,
                    kernel,
                    stride,
                    padding,
                    dilation,
                    false,
                    self.of(2, &[2, 3, 4, 3]),
                    pooled.indices,
                );
                one(backward.x_grad)
            }
            "interpolate" => one(B::interpolate(image(), [5, 9], linear())),
            "interpolate_backward" => {
                let nearest = InterpolateOptions::new(InterpolateMode::Nearest);
                one(B::interpolate_backward(
                    image(),
                    self.of(2, &[2, 3, 5, 9]),
                    [5, 9],
                    nearest,
                ))
            }
            "layer_norm" => {
                let (gamma, beta) = (self.of(2, &[6]), self.of(3, &[6]));
                one(B::layer_norm(self.of(1, &[4, 6]), gamma, Some(beta), 1e-5))
            }
            "ctc_loss" => {
                let probabilities = self.input(
                    noise(6 * 2 * 4, 1)
                        .into_iter()
                        .map(|x| -x.abs() - 0.5)
                        .collect(),
                    &[6, 2, 4],
                );
                let targets = self.int(&[1, 2, 3, 1], &[2, 2]);
                let lengths = [self.int(&[6, 5], &[2]), self.int(&[2, 1], &[2])];
                let [inputs, outputs] = lengths;
                one(B::ctc_loss(probabilities, targets, inputs, outputs, 0))
            }
            "rfft" => {
                let (re, im) = B::rfft(self.of(1, &[2, 8]), 1, None);
                Output::Floats(vec![re, im])
            }
            "irfft" => one(B::irfft(self.of(1, &[2, 5]), self.of(2, &[2, 5]), 1, None)),
            _ => return None,
        })
    }

    fn product(&self, op: &str) -> Option<Output<B>> {
        let x = |rank: usize| self.of(1, &[&[2, 4][..], &[5, 4, 3][..rank]].concat());
        let w = |rank: usize| self.of(2, &[&[3, 4][..], &[2, 3, 2][..rank]].concat());
        let w_transposed = |rank: usize| self.of(2, &[&[4, 3][..], &[2, 3, 2][..rank]].concat());
        let b = || Some(self.of(3, &[3]));
        let g = |rank: usize| self.of(4, &[&[2, 3][..], &[4, 2, 2][..rank]].concat());
        let g_transposed = |rank: usize| self.of(4, &[&[2, 3][..], &[6, 6, 4][..rank]].concat());
        let bias = || self.of(3, &[3]);
        fn conv<const N: usize>() -> ConvOptions<N> {
            ConvOptions::new([1; N], [0; N], [1; N], 1)
        }
        fn transposed<const N: usize>() -> ConvTransposeOptions<N> {
            ConvTransposeOptions::new([1; N], [0; N], [0; N], [1; N], 1)
        }
        let deformed = || DeformConvOptions::new([1, 1], [0, 0], [1, 1], 1, 1);
        let offset = || {
            let offset = noise(2 * 12 * 8, 5);
            self.position(offset, &[2, 12, 4, 2])
        };
        let mask = || Some(self.of(6, &[2, 6, 4, 2]));
        let heads = |seed| self.of(seed, &[2, 2, 5, 4]);
        Some(match op {
            "float_matmul" => one(B::float_matmul(
                self.of(1, &[3, 5, 8]),
                self.of(2, &[3, 8, 4]),
            )),
            "linear" => one(B::linear(
                self.of(1, &[3, 5, 8]),
                self.of(2, &[8, 4]),
                Some(self.of(3, &[4])),
            )),
            "linear_x_backward" => one(B::linear_x_backward(
                self.of(2, &[8, 4]),
                self.of(4, &[3, 5, 4]),
            )),
            "linear_weight_backward" => one(B::linear_weight_backward(
                self.of(1, &[3, 5, 8]),
                self.of(4, &[3, 5, 4]),
            )),
            "linear_bias_backward" => one(B::linear_bias_backward(self.of(4, &[3, 5, 4]))),
            "conv1d" => one(B::conv1d(x(1), w(1), b(), conv())),
            "conv1d_x_backward" => one(B::conv1d_x_backward(x(1), w(1), g(1), conv())),
            "conv1d_weight_backward" => one(B::conv1d_weight_backward(x(1), w(1), g(1), conv())),
            "conv1d_bias_backward" => one(B::conv1d_bias_backward(x(1), bias(), g(1))),
            "conv2d" => one(B::conv2d(x(2), w(2), b(), conv())),
            "conv2d_x_backward" => one(B::conv2d_x_backward(x(2), w(2), g(2), conv())),
            "conv2d_weight_backward" => one(B::conv2d_weight_backward(x(2), w(2), g(2), conv())),
            "conv2d_bias_backward" => one(B::conv2d_bias_backward(x(2), bias(), g(2))),
            "conv3d" => one(B::conv3d(x(3), w(3), b(), conv())),
            "conv3d_x_backward" => one(B::conv3d_x_backward(x(3), w(3), g(3), conv())),
            "conv3d_weight_backward" => one(B::conv3d_weight_backward(x(3), w(3), g(3), conv())),
            "conv3d_bias_backward" => one(B::conv3d_bias_backward(x(3), bias(), g(3))),
            "deform_conv2d" => one(B::deform_conv2d(
                x(2),
                offset(),
                w(2),
                mask(),
                b(),
                deformed(),
            )),
            "deform_conv2d_backward" => {
                let grads =
                    B::deform_conv2d_backward(x(2), offset(), w(2), mask(), b(), g(2), deformed());
                one(grads.x_grad)
            }
            "conv_transpose1d" => one(B::conv_transpose1d(
                x(1),
                w_transposed(1),
                b(),
                transposed(),
            )),
            "conv_transpose1d_x_backward" => one(B::conv_transpose1d_x_backward(
                w_transposed(1),
                g_transposed(1),
                transposed(),
            )),
            "conv_transpose1d_weight_backward" => {
                let (w, g) = (w_transposed(1), g_transposed(1));
                one(B::conv_transpose1d_weight_backward(
                    x(1),
                    w,
                    g,
                    transposed(),
                ))
            }
            "conv_transpose1d_bias_backward" => one(B::conv_transpose1d_bias_backward(
                x(1),
                bias(),
                g_transposed(1),
            )),
            "conv_transpose2d" => one(B::conv_transpose2d(
                x(2),
                w_transposed(2),
                b(),
                transposed(),
            )),
            "conv_transpose2d_x_backward" => one(B::conv_transpose2d_x_backward(
                w_transposed(2),
                g_transposed(2),
                transposed(),
            )),
            "conv_transpose2d_weight_backward" => {
                let (w, g) = (w_transposed(2), g_transposed(2));
                one(B::conv_transpose2d_weight_backward(
                    x(2),
                    w,
                    g,
                    transposed(),
                ))
            }
            "conv_transpose2d_bias_backward" => one(B::conv_transpose2d_bias_backward(
                x(2),
                bias(),
                g_transposed(2),
            )),
            "conv_transpose3d" => one(B::conv_transpose3d(
                x(3),
                w_transposed(3),
                b(),
                transposed(),
            )),
            "conv_transpose3d_x_backward" => one(B::conv_transpose3d_x_backward(
                w_transposed(3),
                g_transposed(3),
                transposed(),
            )),
            "conv_transpose3d_weight_backward" => {
                let (w, g) = (w_transposed(3), g_transposed(3));
                one(B::conv_transpose3d_weight_backward(
                    x(3),
                    w,
                    g,
                    transposed(),
                ))
            }
            "conv_transpose3d_bias_backward" => one(B::conv_transpose3d_bias_backward(
                x(3),
                bias(),
                g_transposed(3),
            )),
            "attention" => {
                let options = AttentionModuleOptions::default();
                one(B::attention(
                    heads(1),
                    heads(2),
                    heads(3),
                    None,
                    None,
                    options,
                ))
            }
            _ => return None,
        })
    }

    fn activation(&self, op: &str) -> Option<Output<B>> {
        let (x, y) = (|| self.of(1, &[4, 6]), || self.of(2, &[4, 6]));
        Some(match op {
            "relu" => one(B::relu(x())),
            "relu_backward" => one(B::relu_backward(x(), y())),
            "leaky_relu" => one(B::leaky_relu(x(), 0.3f32.into())),
            "prelu" => one(B::prelu(x(), self.of(2, &[1, 6]))),
            "gelu" => one(B::gelu(x())),
            "gelu_backward" => one(B::gelu_backward(x(), y())),
            "sigmoid" => one(B::sigmoid(x())),
            "sigmoid_backward" => one(B::sigmoid_backward(self.unit(1, &[4, 6]), y())),
            "hard_sigmoid" => one(B::hard_sigmoid(x(), 0.2f32.into(), 0.5f32.into())),
            "log_sigmoid" => one(B::log_sigmoid(x())),
            "log_sigmoid_backward" => one(B::log_sigmoid_backward(x(), y())),
            "softmax" => one(B::softmax(x(), 1)),
            "log_softmax" => one(B::log_softmax(x(), 1)),
            "softmin" => one(B::softmin(x(), 1)),
            _ => return None,
        })
    }
}

fn one<B: Backend>(tensor: FloatTensor<B>) -> Output<B> {
    Output::Floats(vec![tensor])
}
