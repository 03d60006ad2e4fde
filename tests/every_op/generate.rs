//! Random arguments, the same for every backend from the same seed.

use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, DeformConvOptions};
use burn_backend::quantization::QuantScheme;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{
    Backend, BoolDType, BoolStore, DType, DeviceSettings, Distribution, FloatDType, IntDType,
    QTensorPrimitive, Scalar, Shape, Slice, TensorData, TensorMetadata, get_device_settings,
};
use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// A source of arguments that belong together: tensors of one shape and type, an axis of the shape, indices into the
/// axis.
pub(crate) struct Arguments<B: Backend> {
    rng: TestRng,
    pub(crate) device: Device<B>,
    shape: Vec<usize>,
    dtype: DType,
    int_dtype: DType,
    axis: usize,
    product: Product,
    pub(crate) window: Window,
    /// Whether float tensors are leaves that require gradients.
    tracked: bool,
    /// Whether somebody else holds the arguments too.
    shared: bool,
    pub(crate) floats: Vec<FloatTensor<B>>,
    pub(crate) ints: Vec<IntTensor<B>>,
    pub(crate) bools: Vec<BoolTensor<B>>,
    /// The parts of `floats`, `ints` and `bools` themselves.
    pub(crate) data: [Vec<TensorData>; 3],
}

/// Sizes of a product of `[.., m, k]` and `[.., k, n]`.
struct Product {
    batch: Vec<usize>,
    rhs_batch: Vec<usize>,
    m: usize,
    k: usize,
    n: usize,
}

/// Sizes of a convolution or pool in up to three dimensions.
pub(crate) struct Window {
    batch: usize,
    groups: usize,
    input: usize,
    output: usize,
    size: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
    pub(crate) flag: bool,
    pub(crate) other_flag: bool,
}

impl Window {
    fn new(rng: &mut TestRng) -> Self {
        let mut each = |range: core::ops::Range<usize>| -> [usize; 3] {
            core::array::from_fn(|_| rng.random_range(range.clone()))
        };
        let (kernel, stride, dilation) = (each(1..4), each(1..3), each(1..3));
        let (room, padding) = (each(0..4), each(0..2));
        let reach = |i: usize| dilation[i] * (kernel[i] - 1);
        Self {
            size: core::array::from_fn(|i| reach(i) + 1 + room[i]),
            padding: core::array::from_fn(|i| padding[i].min(kernel[i] / 2).min(reach(i) / 2)),
            kernel,
            stride,
            dilation,
            batch: rng.random_range(1..3),
            groups: rng.random_range(1..3),
            input: rng.random_range(1..4),
            output: rng.random_range(1..4),
            flag: rng.random(),
            other_flag: rng.random(),
        }
    }
}

impl Window {
    pub(crate) fn kernels<const N: usize>(&self) -> [usize; N] {
        first(self.kernel)
    }

    pub(crate) fn strides<const N: usize>(&self) -> [usize; N] {
        first(self.stride)
    }

    pub(crate) fn paddings<const N: usize>(&self) -> [usize; N] {
        first(self.padding)
    }

    pub(crate) fn dilations<const N: usize>(&self) -> [usize; N] {
        first(self.dilation)
    }
}

/// Whether the backend computes in this process's memory.
const ON_A_PROCESSOR: bool = cfg!(any(
    test_backend = "flex",
    test_backend = "ndarray",
    test_backend = "tch"
));

fn first<const N: usize>(all: [usize; 3]) -> [usize; N] {
    core::array::from_fn(|i| all[i])
}

impl<B: Backend> Arguments<B> {
    pub(crate) fn new(seed: u64, device: &Device<B>, tracked: bool) -> Self {
        let bytes: Vec<u8> = [seed, !seed].iter().flat_map(|s| s.to_le_bytes()).collect();
        let mut rng = TestRng::from_seed(RngAlgorithm::XorShift, &bytes);
        let rank = rng.random_range(1..5);
        let mut shape: Vec<usize> = (0..rank).map(|_| rng.random_range(1..6)).collect();
        if rng.random_bool(0.08) {
            shape[rng.random_range(0..rank)] = 0;
        }
        let dtype = match rng.random_range(0..12) {
            0 => DType::F64,
            1 => DType::F16,
            2 => DType::BF16,
            _ => DType::F32,
        };
        let supported = B::supports_dtype(device, dtype);
        let int_dtype = match rng.random_range(0..6) {
            0 => DType::I32,
            1 => DType::U8,
            _ => DType::I64,
        };
        let int_dtype = match ON_A_PROCESSOR || B::supports_dtype(device, int_dtype) {
            true => int_dtype,
            false => get_device_settings::<B>(device).int_dtype.into(),
        };
        let batch: Vec<usize> = (0..rng.random_range(0..3))
            .map(|_| rng.random_range(1..4))
            .collect();
        let rhs_batch = batch
            .iter()
            .map(|&n| if rng.random_bool(0.3) { 1 } else { n });
        let rhs_batch = rhs_batch.collect();
        let product = Product {
            batch,
            rhs_batch,
            m: rng.random_range(1..6),
            k: rng.random_range(1..40),
            n: rng.random_range(1..6),
        };
        Self {
            axis: rng.random_range(0..rank),
            shape,
            dtype: if supported { dtype } else { DType::F32 },
            int_dtype,
            product,
            window: Window::new(&mut rng),
            tracked,
            shared: tracked || rng.random(),
            device: device.clone(),
            rng,
            floats: Vec::new(),
            ints: Vec::new(),
            bools: Vec::new(),
            data: Default::default(),
        }
    }

    // Float tensors

    fn float_value(&mut self) -> f32 {
        match self.rng.random_range(0..40) {
            0 => 0.0,
            1 => -0.0,
            2 => f32::NAN,
            3 => f32::INFINITY,
            4 => f32::NEG_INFINITY,
            5 => 1e-40,
            6..12 => self.rng.random_range(-4..5) as f32,
            12..30 => self.rng.random_range(-1.0..1.0),
            _ => self.rng.random_range(-30.0..30.0),
        }
    }

    pub(crate) fn float_of(&mut self, shape: impl Into<Vec<usize>>) -> FloatTensor<B> {
        let shape: Vec<usize> = shape.into();
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| self.float_value()).collect();
        let data = TensorData::new(values, shape).convert_dtype(self.dtype);
        let tensor = B::float_from_data(data.clone(), &self.device);
        let tensor = match self.tracked {
            true => B::float_set_require_grad(tensor, true),
            false => tensor,
        };
        if self.shared {
            self.floats.push(tensor.clone());
            self.data[0].push(data);
        }
        tensor
    }

    pub(crate) fn float_data(&mut self) -> TensorData {
        let count = self.shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| self.float_value()).collect();
        TensorData::new(values, self.shape.clone()).convert_dtype(self.dtype)
    }

    /// A tensor of the case's shape.
    pub(crate) fn x(&mut self) -> FloatTensor<B> {
        self.float_of(self.shape.clone())
    }

    /// A tensor that broadcasts to the case's shape, and now and then does not.
    pub(crate) fn y(&mut self) -> FloatTensor<B> {
        let shape = self.broadcast_shape();
        self.float_of(shape)
    }

    /// A tensor like `other`.
    pub(crate) fn like(&mut self, other: &FloatTensor<B>) -> FloatTensor<B> {
        self.float_of(other.shape().to_vec())
    }

    pub(crate) fn row(&mut self) -> FloatTensor<B> {
        self.float_of([*self.shape.last().expect("the rank is positive")])
    }

    pub(crate) fn float_list(&mut self) -> Vec<FloatTensor<B>> {
        self.list_shapes()
            .into_iter()
            .map(|shape| self.float_of(shape))
            .collect()
    }

    fn broadcast_shape(&mut self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        for length in &mut shape {
            match self.rng.random_range(0..30) {
                0..8 => *length = 1,
                8 => *length += 1,
                _ => {}
            }
        }
        shape
    }

    fn list_shapes(&mut self) -> Vec<Vec<usize>> {
        let axis = self.axis;
        (0..self.rng.random_range(1..5))
            .map(|_| {
                let mut shape = self.shape.clone();
                shape[axis] = self.rng.random_range(0..4);
                shape
            })
            .collect()
    }

    // Int tensors

    pub(crate) fn int_of(
        &mut self,
        shape: impl Into<Vec<usize>>,
        range: core::ops::Range<i64>,
    ) -> IntTensor<B> {
        let shape: Vec<usize> = shape.into();
        let count = shape.iter().product();
        let values: Vec<i64> = (0..count)
            .map(|_| self.rng.random_range(range.clone()))
            .collect();
        let data = TensorData::new(values, shape).convert_dtype(self.int_dtype);
        let tensor = B::int_from_data(data.clone(), &self.device);
        if self.shared {
            self.ints.push(tensor.clone());
            self.data[1].push(data);
        }
        tensor
    }

    fn int_range(&self) -> core::ops::Range<i64> {
        match self.int_dtype {
            DType::U8 => 0..9,
            _ => -5..9,
        }
    }

    pub(crate) fn i(&mut self) -> IntTensor<B> {
        self.int_of(self.shape.clone(), self.int_range())
    }

    pub(crate) fn j(&mut self) -> IntTensor<B> {
        let shape = self.broadcast_shape();
        self.int_of(shape, self.int_range())
    }

    /// Exponents and shifts.
    pub(crate) fn small(&mut self) -> IntTensor<B> {
        self.int_of(self.shape.clone(), 0..5)
    }

    pub(crate) fn int_list(&mut self) -> Vec<IntTensor<B>> {
        let range = self.int_range();
        self.list_shapes()
            .into_iter()
            .map(|shape| self.int_of(shape, range.clone()))
            .collect()
    }

    /// Indices along the axis, in the shape of the tensor.
    pub(crate) fn positions(&mut self) -> IntTensor<B> {
        let length = self.shape[self.axis].max(1) as i64;
        self.int_of(self.shape.clone(), 0..length)
    }

    /// Three indices along the axis.
    pub(crate) fn indices(&mut self) -> IntTensor<B> {
        let length = self.shape[self.axis] as i64;
        let count = if length == 0 { 0 } else { 3 };
        self.int_of([count], 0..length.max(1))
    }

    /// The case's shape with three entries along the axis.
    pub(crate) fn selected_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[self.axis] = if shape[self.axis] == 0 { 0 } else { 3 };
        shape
    }

    /// Two indices into the first axis.
    pub(crate) fn leading_indices(&mut self) -> IntTensor<B> {
        let count = if self.shape[0] == 0 { 0 } else { 2 };
        let length = self.shape[0].max(1) as i64;
        self.int_of([count, 1], 0..length)
    }

    /// The values at [`leading_indices`](Self::leading_indices).
    pub(crate) fn leading_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[0] = if shape[0] == 0 { 0 } else { 2 };
        shape
    }

    pub(crate) fn int_data(&mut self) -> TensorData {
        let range = self.int_range();
        let count: usize = self.shape.iter().product();
        let values: Vec<i64> = (0..count)
            .map(|_| self.rng.random_range(range.clone()))
            .collect();
        TensorData::new(values, self.shape.clone()).convert_dtype(self.int_dtype)
    }

    // Bool tensors

    pub(crate) fn bool_of(&mut self, shape: impl Into<Vec<usize>>) -> BoolTensor<B> {
        let shape: Vec<usize> = shape.into();
        let count = shape.iter().product();
        let odds = [0.0, 0.5, 0.5, 1.0][self.rng.random_range(0..4)];
        let values: Vec<bool> = (0..count).map(|_| self.rng.random_bool(odds)).collect();
        let data = self.stored(TensorData::new(values, shape));
        let tensor = B::bool_from_data(data.clone(), &self.device);
        if self.shared {
            self.bools.push(tensor.clone());
            self.data[2].push(data);
        }
        tensor
    }

    pub(crate) fn b(&mut self) -> BoolTensor<B> {
        self.bool_of(self.shape.clone())
    }

    pub(crate) fn bool_list(&mut self) -> Vec<BoolTensor<B>> {
        self.list_shapes()
            .into_iter()
            .map(|shape| self.bool_of(shape))
            .collect()
    }

    pub(crate) fn bool_data(&mut self) -> TensorData {
        let count: usize = self.shape.iter().product();
        let values: Vec<bool> = (0..count).map(|_| self.rng.random()).collect();
        self.stored(TensorData::new(values, self.shape.clone()))
    }

    /// Bools as Burn hands them to the backend: in the type that its device stores them in.
    fn stored(&self, data: TensorData) -> TensorData {
        match ON_A_PROCESSOR {
            true => data,
            false => data.convert_dtype(get_device_settings::<B>(&self.device).bool_dtype.into()),
        }
    }

    // Quantized tensors

    pub(crate) fn scheme(&self) -> QuantScheme {
        QuantizedTensor::<B>::default_scheme()
    }

    pub(crate) fn q_of(&mut self, shape: impl Into<Vec<usize>>) -> QuantizedTensor<B> {
        let shape: Vec<usize> = shape.into();
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count)
            .map(|_| self.rng.random_range(-3.0..3.0))
            .collect();
        let tensor = B::float_from_data(TensorData::new(values, shape), &self.device);
        B::quantize_dynamic(tensor, &self.scheme())
    }

    pub(crate) fn q(&mut self) -> QuantizedTensor<B> {
        self.q_of(self.shape.clone())
    }

    pub(crate) fn q_list(&mut self) -> Vec<QuantizedTensor<B>> {
        self.list_shapes()
            .into_iter()
            .map(|shape| self.q_of(shape))
            .collect()
    }

    // Products

    pub(crate) fn lhs_shape(&self) -> Vec<usize> {
        let Product { batch, m, k, .. } = &self.product;
        [batch.as_slice(), &[*m, *k]].concat()
    }

    pub(crate) fn rhs_shape(&self) -> Vec<usize> {
        let Product {
            rhs_batch, k, n, ..
        } = &self.product;
        [rhs_batch.as_slice(), &[*k, *n]].concat()
    }

    pub(crate) fn lhs(&mut self) -> FloatTensor<B> {
        self.float_of(self.lhs_shape())
    }

    pub(crate) fn rhs(&mut self) -> FloatTensor<B> {
        self.float_of(self.rhs_shape())
    }

    pub(crate) fn weight(&mut self) -> FloatTensor<B> {
        self.float_of([self.product.k, self.product.n])
    }

    pub(crate) fn bias(&mut self) -> Option<FloatTensor<B>> {
        self.rng
            .random_bool(0.6)
            .then(|| self.float_of([self.product.n]))
    }

    /// The gradient of a linear layer's output.
    pub(crate) fn linear_grad(&mut self) -> FloatTensor<B> {
        let Product { batch, m, n, .. } = &self.product;
        self.float_of([batch.as_slice(), &[*m, *n]].concat())
    }

    // Windows

    /// An image of N dimensions, `[batch, channels, ..]`.
    pub(crate) fn image<const N: usize>(&mut self) -> FloatTensor<B> {
        let w = &self.window;
        let shape = [&[w.batch, w.input * w.groups], &w.size[..N]].concat();
        self.float_of(shape)
    }

    pub(crate) fn kernel<const N: usize>(&mut self) -> FloatTensor<B> {
        let w = &self.window;
        let shape = [&[w.output * w.groups, w.input], &w.kernel[..N]].concat();
        self.float_of(shape)
    }

    pub(crate) fn transposed_kernel<const N: usize>(&mut self) -> FloatTensor<B> {
        let w = &self.window;
        let shape = [&[w.input * w.groups, w.output], &w.kernel[..N]].concat();
        self.float_of(shape)
    }

    pub(crate) fn channel_bias(&mut self) -> FloatTensor<B> {
        self.float_of([self.window.output * self.window.groups])
    }

    pub(crate) fn maybe_channel_bias(&mut self) -> Option<FloatTensor<B>> {
        self.rng.random_bool(0.6).then(|| self.channel_bias())
    }

    fn output_size(&self, i: usize) -> usize {
        let w = &self.window;
        (w.size[i] + 2 * w.padding[i] - w.dilation[i] * (w.kernel[i] - 1) - 1) / w.stride[i] + 1
    }

    /// The gradient of a convolution's output.
    pub(crate) fn image_grad<const N: usize>(&mut self) -> FloatTensor<B> {
        let channels = [self.window.batch, self.window.output * self.window.groups];
        let size: [usize; N] = core::array::from_fn(|i| self.output_size(i));
        self.float_of([channels.as_slice(), &size].concat())
    }

    /// The gradient of a transposed convolution's output.
    pub(crate) fn transposed_grad<const N: usize>(&mut self) -> FloatTensor<B> {
        let w = &self.window;
        let size: [usize; N] = core::array::from_fn(|i| {
            (w.size[i] - 1) * w.stride[i] + w.dilation[i] * (w.kernel[i] - 1) + 1 - 2 * w.padding[i]
        });
        let channels = [w.batch, w.output * w.groups];
        self.float_of([channels.as_slice(), &size].concat())
    }

    pub(crate) fn conv<const N: usize>(&self) -> ConvOptions<N> {
        let w = &self.window;
        ConvOptions::new(
            first(w.stride),
            first(w.padding),
            first(w.dilation),
            w.groups,
        )
    }

    pub(crate) fn conv_transpose<const N: usize>(&self) -> ConvTransposeOptions<N> {
        let w = &self.window;
        let padding_out = [0; N];
        ConvTransposeOptions::new(
            first(w.stride),
            first(w.padding),
            padding_out,
            first(w.dilation),
            w.groups,
        )
    }

    pub(crate) fn deform(&self) -> DeformConvOptions<2> {
        let w = &self.window;
        DeformConvOptions::new(
            first(w.stride),
            first(w.padding),
            first(w.dilation),
            w.groups,
            1,
        )
    }

    /// The offsets of a deformable convolution, or its mask with one entry a position.
    pub(crate) fn offsets(&mut self, entries: usize) -> FloatTensor<B> {
        let [height, width] = first(self.window.kernel);
        let channels = entries * height * width;
        let shape = [
            self.window.batch,
            channels,
            self.output_size(0),
            self.output_size(1),
        ];
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count)
            .map(|_| self.rng.random_range(-1.0..1.0))
            .collect();
        B::float_from_data(
            TensorData::new(values, shape).convert_dtype(self.dtype),
            &self.device,
        )
    }

    // Plain values

    pub(crate) fn shape(&self) -> Shape {
        Shape::from(self.shape.clone())
    }

    /// As many elements in another shape, and now and then not.
    pub(crate) fn new_shape(&mut self) -> Shape {
        let mut shape = self.shape.clone();
        match self.rng.random_range(0..8) {
            0 => shape[0] += 1,
            1 => shape = vec![shape.iter().product()],
            2 => shape.insert(0, 1),
            _ => shape.reverse(),
        }
        Shape::from(shape)
    }

    /// A shape that the case's, shortened to length 1 here and there, expands to.
    pub(crate) fn flat(&mut self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        for length in &mut shape {
            if self.rng.random_bool(0.5) {
                *length = 1;
            }
        }
        shape
    }

    pub(crate) fn dim(&mut self) -> usize {
        self.axis
    }

    pub(crate) fn any_dim(&mut self) -> usize {
        self.rng.random_range(0..self.shape.len())
    }

    pub(crate) fn count(&mut self) -> usize {
        self.rng.random_range(1..4)
    }

    pub(crate) fn flip(&mut self) -> bool {
        self.rng.random()
    }

    pub(crate) fn axes(&mut self) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..self.shape.len()).collect();
        for i in (1..axes.len()).rev() {
            axes.swap(i, self.rng.random_range(0..=i));
        }
        axes
    }

    pub(crate) fn some_axes(&mut self) -> Vec<usize> {
        let axes = self.axes();
        let count = self.rng.random_range(0..=axes.len());
        axes[..count].to_vec()
    }

    /// Ranges with steps of either direction and ends counted from behind.
    pub(crate) fn slices(&mut self) -> Vec<Slice> {
        let shape = self.shape.clone();
        let one = |&length: &usize| {
            let length = length as isize;
            let step = [1, 1, 1, 2, 3, -1, -2][self.rng.random_range(0..7)];
            if length == 0 || self.rng.random_bool(0.2) {
                return Slice::new(0, None, step);
            }
            let start = self.rng.random_range(0..length as i64) as isize;
            let end = self.rng.random_range(start as i64 + 1..=length as i64) as isize;
            match self.rng.random_range(0..3) {
                0 => Slice::new(start - length, None, step),
                1 if end < length => Slice::new(start, Some(end - length), step),
                _ => Slice::new(start, Some(end), step),
            }
        };
        shape.iter().map(one).collect()
    }

    pub(crate) fn sliced_shape(&self, slices: &[Slice]) -> Vec<usize> {
        let lengths = self.shape.iter().zip(slices);
        lengths
            .map(|(&length, slice)| slice.output_size(length))
            .collect()
    }

    pub(crate) fn scalar(&mut self) -> Scalar {
        Scalar::from(self.rng.random_range(-2.0..2.0f32))
    }

    pub(crate) fn int_scalar(&mut self) -> Scalar {
        Scalar::from(self.rng.random_range(1..5i64))
    }

    pub(crate) fn bool_scalar(&mut self) -> Scalar {
        Scalar::from(self.rng.random::<bool>())
    }

    pub(crate) fn float_type(&mut self) -> FloatDType {
        let drawn = [
            FloatDType::F32,
            FloatDType::F32,
            FloatDType::F64,
            FloatDType::BF16,
        ][self.rng.random_range(0..4)];
        self.of_the_device(drawn, |settings| settings.float_dtype)
    }

    pub(crate) fn int_type(&mut self) -> IntDType {
        let drawn = [IntDType::I64, IntDType::I64, IntDType::I32, IntDType::U8]
            [self.rng.random_range(0..4)];
        self.of_the_device(drawn, |settings| settings.int_dtype)
    }

    pub(crate) fn bool_type(&mut self) -> BoolDType {
        let drawn = [
            BoolStore::Native,
            BoolStore::Native,
            BoolStore::U8,
            BoolStore::U32,
        ][self.rng.random_range(0..4)];
        match ON_A_PROCESSOR {
            true => drawn,
            // Devices are said to have others, but their kernels know this one.
            false => get_device_settings::<B>(&self.device).bool_dtype,
        }
    }

    /// The drawn type; the device's own type if a device (not a CPU) lacks the drawn type, because a device may crash
    /// there.
    fn of_the_device<T: Copy + Into<DType>>(
        &self,
        drawn: T,
        own: impl FnOnce(DeviceSettings) -> T,
    ) -> T {
        match ON_A_PROCESSOR || B::supports_dtype(&self.device, drawn.into()) {
            true => drawn,
            false => own(get_device_settings::<B>(&self.device)),
        }
    }

    pub(crate) fn distribution(&mut self) -> Distribution {
        match self.rng.random_range(0..4) {
            0 => Distribution::Default,
            1 => Distribution::Bernoulli(0.3),
            2 => Distribution::Uniform(-2.0, 5.0),
            _ => Distribution::Normal(1.0, 3.0),
        }
    }

    /// A seed for the backend.
    pub(crate) fn seed(&mut self) -> u64 {
        self.rng.random()
    }
}
