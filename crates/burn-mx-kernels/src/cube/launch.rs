//! Common code for launching kernels.

use burn_backend::{DType, Shape, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, full_client};
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;
use cubecl::server::CubeCountSelection;
use cubecl::std::tensor::layout::linear::LinearViewLaunch;

/// Where a kernel reads and where it writes: the tensor itself, if nobody else has it, or a new one.
pub(super) struct Target<R: CubeRuntime> {
    input: CubeTensor<R>,
    output: Option<CubeTensor<R>>,
}

impl<R: CubeRuntime> Target<R> {
    pub(super) fn of(input: CubeTensor<R>) -> Self {
        let shape = input.shape();
        Self::of_shape(input, shape)
    }

    /// For an output of the shape that the input broadcasts to.
    pub(super) fn of_shape(input: CubeTensor<R>, shape: Shape) -> Self {
        let in_place = shape == input.shape() && input.can_mut() && input.is_nonoverlapping();
        let output = (!in_place).then(|| empty_like(&input, shape, input.dtype));
        Self { input, output }
    }

    /// For an output of another float type.
    pub(super) fn of_type(input: CubeTensor<R>, dtype: DType) -> Self {
        let output = Some(empty_like(&input, input.shape(), dtype));
        Self { input, output }
    }

    pub(super) fn client(&self) -> ComputeClient<R> {
        self.input.client.clone()
    }

    /// The widest index that either tensor needs.
    pub(super) fn address_type(&self) -> AddressType {
        address_type([&self.input, self.output()])
    }

    /// The arguments of a kernel for its inputs and outputs; the inputs come first of all tensors.
    pub(super) fn arguments(&self) -> (TensorArg<R>, TensorArg<R>) {
        let output = match &self.output {
            Some(output) => output.clone().into_tensor_arg(),
            None => self.input.as_tensor_alias(0),
        };
        (self.input.clone().into_tensor_arg(), output)
    }

    /// The same as views of the elements in row-major order.
    pub(super) fn views(&self) -> (LinearViewLaunch<R>, LinearViewLaunch<R>) {
        match &self.output {
            Some(output) => (
                self.input.clone().into_linear_view_like(output),
                output.clone().into_linear_view(),
            ),
            None => (
                self.input.clone().into_linear_view(),
                self.input.as_linear_view_alias(0),
            ),
        }
    }

    /// Whether the elements along an axis lie side by side, in both tensors.
    pub(super) fn is_dense(&self, axis: usize) -> bool {
        let stride = |tensor: &CubeTensor<R>| tensor.meta.strides()[axis];
        stride(&self.input) == 1 && stride(self.output()) == 1
    }

    /// Whether both tensors lie in row-major order without gaps.
    pub(super) fn is_in_row_major_order(&self) -> bool {
        self.input.is_contiguous() && self.output().is_contiguous()
    }

    pub(super) fn input(&self) -> &CubeTensor<R> {
        &self.input
    }

    pub(super) fn output(&self) -> &CubeTensor<R> {
        self.output.as_ref().unwrap_or(&self.input)
    }

    pub(super) fn into_output(self) -> CubeTensor<R> {
        self.output.unwrap_or(self.input)
    }
}

/// The widest index that one of the tensors needs.
pub(super) fn address_type<R: CubeRuntime, const N: usize>(
    tensors: [&CubeTensor<R>; N],
) -> AddressType {
    let each = tensors.map(|tensor| tensor.required_address_type());
    each.into_iter().max().unwrap_or_default()
}

/// A tensor for a kernel to fill, in row-major order.
pub(super) fn empty_like<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shape: Shape,
    dtype: DType,
) -> CubeTensor<R> {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, dtype)
}

/// The tensor's words in row-major order.
pub(super) fn dense<R: CubeRuntime>(tensor: &CubeTensor<R>) -> CubeTensor<R> {
    let mut words = tensor.clone();
    words.dtype = DType::U32;
    into_contiguous(words)
}

/// As many units as there is work.
pub(super) fn units<R: CubeRuntime>(
    client: &ComputeClient<R>,
    count: usize,
) -> (CubeCount, CubeDim) {
    let cube = CubeDim::new(client, count);
    (calculate_cube_count_elemwise(client, count, cube), cube)
}

/// As many cubes as the work needs, with `each` pieces of work for a cube.
pub(super) fn cubes<R: CubeRuntime>(
    client: &ComputeClient<R>,
    count: usize,
    each: usize,
) -> CubeCount {
    let cubes = count.div_ceil(each);
    CubeCountSelection::new(client, cubes as u32).cube_count()
}

/// One word on the device of a tensor.
pub(super) fn word<R: CubeRuntime>(like: &CubeTensor<R>, word: u32) -> CubeTensor<R> {
    full_client::<R, u32>(
        like.client.clone(),
        Shape::new([1]),
        like.device.clone(),
        word,
    )
}

/// Some words on the device of a tensor.
pub(super) fn words<R: CubeRuntime>(like: &CubeTensor<R>, words: &[u32]) -> CubeTensor<R> {
    let client = like.client.clone();
    let handle = client.create_from_slice(u32::as_bytes(words));
    let shape = Shape::new([words.len()]);
    CubeTensor::new_contiguous(client, like.device.clone(), shape, handle, DType::U32)
}

/// A float32 pattern as an output's: of a bfloat16 the upper half.
#[cube]
pub(super) fn upper_bits<O: Int>(pattern: u32) -> O {
    // `O::BITS` would belong to the type that stands for any integer.
    let bits = O::type_size_bits().comptime();
    O::cast_from(pattern >> comptime!(32 - bits as u32))
}
