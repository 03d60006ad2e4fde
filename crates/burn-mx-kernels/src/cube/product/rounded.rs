//! Products whose kernels round each result, and perhaps add a bias, where they write it: no pass over the results follows.

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::features::TypeUsage;
use cubecl::ir::VectorSize;
use cubecl::prelude::barrier::BarrierExpand;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::{LinearView, LinearViewLaunch};
use cubecl::std::tensor::{
    MatrixBatchLayout, View, ViewExpand, ViewOperationsExpand, ViewOperationsMutExpand,
    matrix_batch_layout,
};
use cubek::matmul::components::global::memory::GlobalLayoutConfig;
use cubek::matmul::definition::{
    AvailableVectorSizes, MatmulAvailabilityError, MatmulElems, MatmulProblem, MatmulSetupError,
    TilingBlueprint,
};
use cubek::matmul::launch::{
    Acc, AccSize, BatchedCoords, ConcreteInputsFactory, ConcreteOutputFactory, InputArg,
    MatmulArgs, TensorArgs, TensorMapArgs, TensorOutput, launch_kernel,
};
use cubek::matmul::routines::{BlueprintStrategy, Routine};
use cubek::std::InputBinding;
use microscaling::{FloatFormat, Rounding};

use crate::cube::numbers::float::{self, Float32};
use crate::cube::numbers::round::round_float;

/// How results are rounded. Not stochastic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) struct ResultRounding {
    pub(in crate::cube) format: FloatFormat,
    pub(in crate::cube) rounding: Rounding,
}

/// Operands and result of a product, and a bias: one float32 number for each column of the result.
pub(super) struct Bindings<R: CubeRuntime> {
    pub(super) lhs: InputBinding<R>,
    pub(super) rhs: InputBinding<R>,
    pub(super) output: TensorBinding<R>,
    pub(super) bias: Option<LinearViewLaunch<R>>,
}

/// The result of a product, and its epilogue.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct RoundedOutput<EO: CubePrimitive> {
    output: TensorOutput<EO>,
    epilogue: KernelEpilogue,
}

/// A result is rounded. If there is a bias, the rounded bias is added, and the sum is rounded.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct KernelEpilogue {
    bias: ComptimeOption<LinearView<u32>>,
    #[cube(comptime)]
    how: ResultRounding,
    #[cube(comptime)]
    float32: Float32,
}

/// The arguments of a kernel that cubek has as `$of`, with a result that is rounded.
macro_rules! rounded_args {
    ($(#[$doc:meta])* $name:ident, $of:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub(super) struct $name;

        #[cube]
        impl MatmulArgs for $name {
            type Input<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive> =
                <$of as MatmulArgs>::Input<Lhs, Rhs, EO>;
            type Output<EO: CubePrimitive> = RoundedOutput<EO>;
            type Config = ();
            type State<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive> =
                (<$of as MatmulArgs>::State<Lhs, Rhs, EO>, KernelEpilogue);

            fn init_state<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                input: &Self::Input<Lhs, Rhs, EO>,
                output: &mut Self::Output<EO>,
                config: (),
                #[comptime] lhs_layout_config: GlobalLayoutConfig,
                #[comptime] rhs_layout_config: GlobalLayoutConfig,
                #[comptime] out_layout_config: GlobalLayoutConfig,
            ) -> Self::State<Lhs, Rhs, EO> {
                let state = $of::init_state::<Lhs, Rhs, EO>(
                    input,
                    &mut output.output,
                    config,
                    lhs_layout_config,
                    rhs_layout_config,
                    out_layout_config,
                );
                (state, output.epilogue)
            }

            fn view_lhs<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                state: &Self::State<Lhs, Rhs, EO>,
            ) -> View<Lhs, BatchedCoords> {
                $of::view_lhs::<Lhs, Rhs, EO>(&state.0)
            }

            fn batch_lhs<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                state: &Self::State<Lhs, Rhs, EO>,
                batch: usize,
            ) -> usize {
                $of::batch_lhs::<Lhs, Rhs, EO>(&state.0, batch)
            }

            fn view_rhs<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                state: &Self::State<Lhs, Rhs, EO>,
            ) -> View<Rhs, BatchedCoords> {
                $of::view_rhs::<Lhs, Rhs, EO>(&state.0)
            }

            fn batch_rhs<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                state: &Self::State<Lhs, Rhs, EO>,
                batch: usize,
            ) -> usize {
                $of::batch_rhs::<Lhs, Rhs, EO>(&state.0, batch)
            }

            fn view_acc<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                state: &Self::State<Lhs, Rhs, EO>,
            ) -> ComptimeOption<View<EO, BatchedCoords>> {
                $of::view_acc::<Lhs, Rhs, EO>(&state.0)
            }

            fn batch_acc<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                state: &Self::State<Lhs, Rhs, EO>,
                batch: usize,
            ) -> usize {
                $of::batch_acc::<Lhs, Rhs, EO>(&state.0, batch)
            }

            fn view_out<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                state: &mut Self::State<Lhs, Rhs, EO>,
            ) -> View<EO, BatchedCoords, ReadWrite> {
                let epilogue = state.1;
                rounded_view::<EO>($of::view_out::<Lhs, Rhs, EO>(&mut state.0), epilogue)
            }

            fn batch_out<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                state: &Self::State<Lhs, Rhs, EO>,
                batch: usize,
            ) -> usize {
                $of::batch_out::<Lhs, Rhs, EO>(&state.0, batch)
            }

            fn runtime_config<Lhs: CubePrimitive, Rhs: CubePrimitive, EO: CubePrimitive>(
                _state: &Self::State<Lhs, Rhs, EO>,
            ) {
            }
        }
    };
}

type OfTensors = TensorArgs<()>;
type OfTensorMaps = TensorMapArgs<()>;

rounded_args!(
    /// Operands are tensors.
    RoundedTensors,
    OfTensors
);
rounded_args!(
    /// Operands are tensor maps.
    RoundedTensorMaps,
    OfTensorMaps
);

/// The view, which rounds written numbers.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
fn rounded_view<EO: CubePrimitive>(
    view: View<EO, BatchedCoords, ReadWrite>,
    epilogue: KernelEpilogue,
) -> View<EO, BatchedCoords, ReadWrite> {
    intrinsic!(|_| ViewExpand::new_mut(RoundedView { view, epilogue }))
}

/// Each float32 number of a vector, rounded. The first one stands in this column.
#[cube]
fn rounded_vector<N: Size>(
    value: Vector<f32, N>,
    column: u32,
    epilogue: &KernelEpilogue,
) -> Vector<f32, N> {
    let how = comptime!(epilogue.how);
    let float32 = comptime!(epilogue.float32);
    let mut rounded = Vector::<f32, N>::empty();
    #[unroll]
    for i in 0..N::value() {
        let word = rounded_word(u32::reinterpret(value[i]), how);
        #[comptime]
        let word = match epilogue.bias {
            ComptimeOption::Some(bias) => {
                // Columns beyond the last one are not written.
                let bias = bias.read_checked(column as usize + i);
                let bias = rounded_word(bias, how);
                rounded_word(float::add(word, bias, float32), how)
            }
            ComptimeOption::None => word,
        };
        rounded[i] = f32::reinterpret(word);
    }
    rounded
}

#[cube]
fn rounded_word(word: u32, #[comptime] how: ResultRounding) -> u32 {
    round_float(word, 0u32.runtime(), how.format, how.rounding)
}

/// A view that rounds written numbers.
struct RoundedView<EO: CubePrimitive> {
    view: ViewExpand<EO, BatchedCoords, ReadWrite>,
    epilogue: KernelEpilogueExpand,
}

type ResultPlace = <BatchedCoords as CubeType>::ExpandType;

impl<EO: CubePrimitive> RoundedView<EO> {
    fn rounded(
        &self,
        scope: &mut Scope,
        pos: &ResultPlace,
        value: EO::ExpandType,
    ) -> EO::ExpandType {
        let value = Vector::<f32, EO::Size>::__expand_cast_from(scope, value);
        let (column, epilogue) = (pos.2.clone(), self.epilogue.clone());
        let rounded = rounded_vector::expand::<EO::Size>(scope, value, column, epilogue);
        EO::__expand_cast_from(scope, rounded)
    }
}

impl<EO: CubePrimitive> VectorizedExpand for RoundedView<EO> {
    fn vector_size(&self) -> VectorSize {
        self.view.vector_size()
    }
}

/// Nothing is rounded that is read.
impl<EO: CubePrimitive> ViewOperationsExpand<EO, BatchedCoords> for RoundedView<EO> {
    fn __expand_read_method(&self, scope: &mut Scope, pos: ResultPlace) -> EO::ExpandType {
        ViewOperationsExpand::__expand_read_method(&self.view, scope, pos)
    }

    fn __expand_read_checked_method(&self, scope: &mut Scope, pos: ResultPlace) -> EO::ExpandType {
        ViewOperationsExpand::__expand_read_checked_method(&self.view, scope, pos)
    }

    fn __expand_read_masked_method(
        &self,
        scope: &mut Scope,
        pos: ResultPlace,
        value: EO::ExpandType,
    ) -> EO::ExpandType {
        ViewOperationsExpand::__expand_read_masked_method(&self.view, scope, pos, value)
    }

    fn __expand_read_unchecked_method(
        &self,
        scope: &mut Scope,
        pos: ResultPlace,
    ) -> EO::ExpandType {
        ViewOperationsExpand::__expand_read_unchecked_method(&self.view, scope, pos)
    }

    fn __expand_to_linear_slice_method(
        &self,
        scope: &mut Scope,
        pos: ResultPlace,
        size: ResultPlace,
    ) -> SliceExpand<EO, ReadOnly> {
        ViewOperationsExpand::__expand_to_linear_slice_method(&self.view, scope, pos, size)
    }

    fn __expand_tensor_map_load_method(
        &self,
        scope: &mut Scope,
        barrier: BarrierExpand,
        shared_memory: SliceExpand<EO, ReadWrite>,
        pos: ResultPlace,
    ) {
        ViewOperationsExpand::__expand_tensor_map_load_method(
            &self.view,
            scope,
            barrier,
            shared_memory,
            pos,
        );
    }

    fn __expand_shape_method(&self, scope: &mut Scope) -> ResultPlace {
        ViewOperationsExpand::__expand_shape_method(&self.view, scope)
    }

    fn __expand_is_in_bounds_method(
        &self,
        scope: &mut Scope,
        pos: ResultPlace,
    ) -> NativeExpand<bool> {
        ViewOperationsExpand::__expand_is_in_bounds_method(&self.view, scope, pos)
    }
}

impl<EO: CubePrimitive> ViewOperationsMutExpand<EO, BatchedCoords> for RoundedView<EO> {
    fn __expand_write_method(&self, scope: &mut Scope, pos: ResultPlace, value: EO::ExpandType) {
        let value = self.rounded(scope, &pos, value);
        ViewOperationsMutExpand::__expand_write_method(&self.view, scope, pos, value);
    }

    fn __expand_write_checked_method(
        &self,
        scope: &mut Scope,
        pos: ResultPlace,
        value: EO::ExpandType,
    ) {
        let value = self.rounded(scope, &pos, value);
        ViewOperationsMutExpand::__expand_write_checked_method(&self.view, scope, pos, value);
    }

    fn __expand_to_linear_slice_mut_method(
        &self,
        _scope: &mut Scope,
        _pos: ResultPlace,
        _size: ResultPlace,
    ) -> SliceExpand<EO, ReadWrite> {
        unimplemented!("burn-mx: a product's kernel wrote around the rounding of its results")
    }

    fn __expand_tensor_map_store_method(
        &self,
        _scope: &mut Scope,
        _shared_memory: SliceExpand<EO, ReadOnly>,
        _pos: ResultPlace,
    ) {
        unimplemented!("burn-mx: a product's kernel wrote around the rounding of its results")
    }
}

/// Launches a product by this routine of cubek, whose kernel rounds the result.
///
/// # Errors
///
/// If the routine does not fit the shapes, the layouts or the device. Then nothing was launched.
pub(super) fn launch<R: CubeRuntime, A: Routine<()>>(
    client: &ComputeClient<R>,
    bindings: Bindings<R>,
    strategy: &BlueprintStrategy<(), A>,
    elements: &MatmulElems,
    how: ResultRounding,
) -> Result<(), MatmulSetupError> {
    let bindings = bindings.with_layouts(client, |layout| {
        !matches!(layout, MatrixBatchLayout::HighlyPermuted)
    })?;
    let sizes = AvailableVectorSizes::from_type_sizes(
        client,
        bindings.lhs.data_elem_size(),
        bindings.rhs.data_elem_size(),
        elements.acc_global.size(),
    );
    launch_by::<RoundedTensors, R, A>(client, bindings, strategy, sizes, elements, how)
}

/// The same with operands that the TMA loads.
pub(super) fn launch_tma<R: CubeRuntime, A: Routine<(), Blueprint = TilingBlueprint>>(
    client: &ComputeClient<R>,
    bindings: Bindings<R>,
    strategy: &BlueprintStrategy<(), A>,
    elements: &MatmulElems,
    how: ResultRounding,
) -> Result<(), MatmulSetupError> {
    let bindings = bindings.with_layouts(client, |layout| match layout {
        MatrixBatchLayout::Contiguous => true,
        MatrixBatchLayout::MildlyPermuted { batch_swap, .. } => !batch_swap,
        MatrixBatchLayout::HighlyPermuted => false,
    })?;
    let sizes = AvailableVectorSizes::from_type_size_tma(client, elements.acc_global.size());
    launch_by::<RoundedTensorMaps, R, A>(client, bindings, strategy, sizes, elements, how)
}

impl<R: CubeRuntime> Bindings<R> {
    /// The same, with copies of operands whose layouts do not fit.
    fn with_layouts(
        self,
        client: &ComputeClient<R>,
        fits: impl Fn(MatrixBatchLayout) -> bool,
    ) -> Result<Self, MatmulSetupError> {
        let operand = |operand: InputBinding<R>| {
            let layout = matrix_batch_layout(&operand.data().strides, operand.scheme());
            match fits(layout) {
                true => Ok::<_, MatmulSetupError>(operand),
                false => Ok(operand.into_contiguous(client)?),
            }
        };
        let Self { lhs, rhs, .. } = self;
        Ok(Self {
            lhs: operand(lhs)?,
            rhs: operand(rhs)?,
            ..self
        })
    }
}

fn launch_by<MA, R: CubeRuntime, A: Routine<()>>(
    client: &ComputeClient<R>,
    bindings: Bindings<R>,
    strategy: &BlueprintStrategy<(), A>,
    sizes: AvailableVectorSizes,
    elements: &MatmulElems,
    how: ResultRounding,
) -> Result<(), MatmulSetupError>
where
    MA: MatmulArgs<Config = (), Output<Vector<Acc, AccSize>> = RoundedOutput<Vector<Acc, AccSize>>>,
    InputArg<MA>: ConcreteInputsFactory<A>,
{
    let Bindings {
        lhs,
        rhs,
        output,
        bias,
    } = bindings;
    let [lhs_type, rhs_type, output_type] = [
        elements.lhs_global,
        elements.rhs_global,
        elements.acc_global,
    ];
    let features = &client.properties().features;
    let converts = |kind| features.type_usage(kind).contains(TypeUsage::Conversion);
    if ![lhs_type, rhs_type, output_type].into_iter().all(converts) {
        let error = MatmulAvailabilityError::TypesUnavailable {
            lhs: lhs_type,
            rhs: rhs_type,
            output: output_type,
        };
        return Err(MatmulSetupError::Unavailable(error));
    }
    let address_type = (lhs.required_address_type())
        .max(rhs.required_address_type())
        .max(output.required_address_type(output_type.size()));
    let problem = MatmulProblem::from_shapes_and_strides(
        lhs.shape().into(),
        rhs.shape().into(),
        output.shape.clone(),
        lhs.data().strides.clone(),
        rhs.data().strides.clone(),
        output.strides.clone(),
        elements.as_global_elems(),
        address_type,
        None,
        None,
    )?;
    let sizes = sizes
        .filter_lhs_with_tensor(&problem.lhs_strides, &problem.lhs_shape, problem.lhs_layout)
        .filter_rhs_with_tensor(&problem.rhs_strides, &problem.rhs_shape, problem.rhs_layout)
        .filter_out_with_tensor(&problem.out_strides, &problem.out_shape)
        .pick_max()?;
    let settings = A::device_settings(client, sizes);
    let expanded = A::expand_blueprint(&problem, &settings, strategy)?;
    let launched = A::prepare(&problem, &settings, expanded)?;
    let (blueprint, sizes) = (&launched.blueprint, &launched.vector_sizes);
    let input = <InputArg<MA> as ConcreteInputsFactory<A>>::create(
        lhs, rhs, blueprint, &problem, sizes, elements,
    );
    type Output = TensorOutput<Vector<Acc, AccSize>>;
    let output =
        <Output as ConcreteOutputFactory<A>>::create(output, blueprint, &problem, sizes, elements);
    let bias = match bias {
        Some(bias) => ComptimeOptionArgs::Some(bias),
        None => ComptimeOptionArgs::None,
    };
    let epilogue = KernelEpilogueLaunch::new(bias, how, Float32::of(client));
    let output = RoundedOutputLaunch::new(output, epilogue);
    launch_kernel::<MA, R, A>(client, input, output, (), launched)
}
