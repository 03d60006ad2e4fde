//! The bytes that a training step reads and writes, by op.
//!
//! A backend around the measured one counts its ops and kernels. An op reads its operands once and writes its result once. Views move
//! nothing.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use burn::tensor::{DType, Scalar, Shape};
use burn_backend::TensorMetadata;
use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_flex::FlexTensor;
use burn_mx::{MxKernels, Portable};
use burn_mx_core::internal::{OpWatch, SeenTensors};
use burn_mx_kernels::internal::{
    AdamWStep, Convolution, ConvolutionProduct, KernelOp, KernelSet, OpRounding, Operand,
    OperandForm, accumulated::AccumulatedProduct,
};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// The ops so far, by name.
static MOVED: Mutex<BTreeMap<&'static str, Moved>> = Mutex::new(BTreeMap::new());

/// The calls of an op, and the bytes that they move.
#[derive(Clone, Copy, Default, Serialize)]
struct Moved {
    calls: u64,
    read: u64,
    written: u64,
    /// The bytes that a kernel moves if it does the op together with the ops that need it.
    least: u64,
}

impl Moved {
    fn bytes(&self) -> u64 {
        self.read + self.written
    }

    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.read += other.read;
        self.written += other.written;
        self.least += other.least;
    }
}

/// The least bytes of an op.
#[derive(Clone, Copy)]
enum Least {
    /// Operands and result once
    Same,
    /// None: the op before or the next one could do this op, too
    Nothing,
    /// Operands of this size, and the result once
    Operands(u64),
}

/// Adds a call of an op.
fn count(op: &'static str, read: u64, written: u64, least: Least) {
    let least = match least {
        Least::Same => read + written,
        Least::Nothing => 0,
        Least::Operands(bytes) => bytes + written,
    };
    let moved = Moved {
        calls: 1,
        read,
        written,
        least,
    };
    let mut all = MOVED.lock().expect("no op panics while it counts");
    all.entry(op).or_default().add(moved);
}

/// The calls and the bytes of each op of a run.
#[derive(Serialize)]
pub(crate) struct Traffic {
    ops: BTreeMap<&'static str, Moved>,
}

impl Traffic {
    pub(crate) fn of(run: impl FnOnce()) -> Self {
        MOVED.lock().expect("no op panics while it counts").clear();
        run();
        let ops = std::mem::take(&mut *MOVED.lock().expect("no op panics while it counts"));
        Self { ops }
    }

    fn total(&self) -> Moved {
        let mut total = Moved::default();
        self.ops.values().for_each(|&moved| total.add(moved));
        total
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header([
            "op",
            "calls",
            "read, MB",
            "written, MB",
            "least, MB",
        ]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut line = |name: &str, moved: Moved| {
            let mb = |bytes: u64| format!("{:.2}", bytes as f64 / 1e6);
            table.add_row([
                name.to_string(),
                moved.calls.to_string(),
                mb(moved.read),
                mb(moved.written),
                mb(moved.least),
            ]);
        };
        let mut ops: Vec<_> = self.ops.iter().collect();
        ops.sort_by_key(|(_, moved)| std::cmp::Reverse(moved.bytes()));
        for (name, moved) in ops {
            line(name, *moved);
        }
        let total = self.total();
        line("all", total);
        let ratio = total.bytes() as f64 / total.least as f64;
        write!(f, "{ratio:.2} of the least traffic\n{table}")
    }
}

/// The watch of a backend whose ops are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted;

/// A backend whose ops are counted.
pub(crate) type CountedBackend<B> = Portable<B, Counted>;

/// An op that is called, and the bytes of its operands; `None` if it moves nothing.
pub(crate) type Call = Option<(&'static str, u64)>;

impl<B: MxKernels> OpWatch<B> for Counted {
    type Call = Call;

    fn kernels() -> &'static dyn KernelSet<CountedBackend<B>> {
        &CountedKernels
    }

    fn before(op: &'static str, tensors: &[SeenTensors<'_>]) -> Call {
        let tensor = tensors.iter().find_map(|seen| seen.tensor);
        let bytes = tensors.iter().map(|seen| seen.bytes).sum();
        (!is_view(op, tensor)).then_some((op, bytes))
    }

    fn after(call: Call, bytes: u64) {
        if let Some((op, read)) = call
            && read + bytes > 0
        {
            let least = match op.contains("reshape") {
                true => Least::Nothing,
                false => Least::Same,
            };
            count(op, read, bytes, least);
        }
    }
}

/// Whether the op's result shares the numbers of its tensor. A reshape copies if the numbers do not lie in order, which is known of
/// Flex's tensors alone.
fn is_view(op: &str, tensor: Option<&dyn Any>) -> bool {
    let (_, name) = op.split_once('_').unwrap_or(("", op));
    match name {
        "swap_dims" | "permute" | "transpose" | "expand" | "slice" | "unfold" | "detach"
        | "set_require_grad" | "to_device" | "empty" => true,
        "reshape" => tensor
            .and_then(|tensor| tensor.downcast_ref::<FlexTensor>())
            .is_none_or(FlexTensor::is_contiguous),
        _ => false,
    }
}

/// The kernels of the backend within, counted.
struct CountedKernels;

fn bytes(tensor: &(impl TensorMetadata + 'static)) -> u64 {
    SeenTensors::of(tensor).bytes
}

fn bytes_of<'a, P: TensorMetadata + 'static>(tensors: impl IntoIterator<Item = &'a P>) -> u64 {
    tensors.into_iter().map(bytes).sum()
}

/// The bytes of an operand of a product, and of the same operand in float32. Panels have zeros behind their rows and columns.
fn operand_bytes<P: TensorMetadata + 'static>(operand: &Operand<P>) -> [u64; 2] {
    let (bytes, elements) = match operand {
        Operand::Tensor { values, .. } | Operand::ToAccumulate { values, .. } => {
            (bytes(values), values.shape().num_elements())
        }
        Operand::Panels { panels, .. } => {
            let elements = panels.matrices() * panels.free() * panels.summed();
            (panels.bytes() as u64, elements)
        }
        Operand::Accumulated(_) => unreachable!("the core multiplies these operands"),
    };
    [bytes, (elements * size_of::<f32>()) as u64]
}

/// Computes a product of two operands, to which a bias is added, and counts it.
fn counted_product<P: TensorMetadata + 'static>(
    operands: [Operand<P>; 2],
    bias: Option<P>,
    product: impl FnOnce([Operand<P>; 2], Option<P>) -> P,
) -> P {
    let of_bias = bytes_of(&bias);
    let [left, right] = operands.each_ref().map(operand_bytes);
    let [read, float32] = [0, 1].map(|i| left[i] + right[i] + of_bias);
    let result = product(operands, bias);
    count("mx_product", read, bytes(&result), Least::Operands(float32));
    result
}

impl<B: MxKernels> KernelSet<CountedBackend<B>> for CountedKernels {
    fn run(
        &self,
        op: KernelOp,
        first: FloatTensor<B>,
        others: [Option<FloatTensor<B>>; 2],
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        let read = bytes(&first) + bytes_of(others.iter().flatten());
        let (first, second) = B::kernels().run(op, first, others);
        let written = bytes(&first) + bytes_of(&second);
        let least = match op {
            KernelOp::Quantize { .. } | KernelOp::Hadamard { .. } | KernelOp::Round { .. } => {
                Least::Nothing
            }
            _ => Least::Same,
        };
        count(op.name(), read, written, least);
        (first, second)
    }

    fn reshape(&self, tensor: FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
        let is_view = is_view("float_reshape", Some(&tensor));
        let result = B::kernels().reshape(tensor, shape);
        if !is_view {
            let bytes = bytes(&result);
            count("float_reshape", bytes, bytes, Least::Nothing);
        }
        result
    }

    fn cat(&self, tensors: Vec<FloatTensor<B>>, axis: usize) -> FloatTensor<B> {
        let result = B::kernels().cat(tensors, axis);
        let bytes = bytes(&result);
        count("float_cat", bytes, bytes, Least::Same);
        result
    }

    fn mask_fill(
        &self,
        tensor: FloatTensor<B>,
        mask: BoolTensor<B>,
        value: Scalar,
    ) -> FloatTensor<B> {
        let read = bytes(&tensor) + bytes(&mask);
        let result = B::kernels().mask_fill(tensor, mask, value);
        count("float_mask_fill", read, bytes(&result), Least::Same);
        result
    }

    fn function(
        &self,
        tensor: FloatTensor<B>,
        rounding: OpRounding,
        function: fn(FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        let read = bytes(&tensor);
        let result = B::kernels().function(tensor, rounding, function);
        count("mx_function", read, bytes(&result), Least::Same);
        result
    }

    fn column_sums(&self, tensor: FloatTensor<B>, rounding: OpRounding) -> FloatTensor<B> {
        let read = bytes(&tensor);
        let result = B::kernels().column_sums(tensor, rounding);
        count("mx_column_sums", read, bytes(&result), Least::Same);
        result
    }

    fn adamw(
        &self,
        step: AdamWStep,
        tensors: [FloatTensor<B>; 4],
    ) -> Result<[FloatTensor<B>; 3], [FloatTensor<B>; 4]> {
        let read = bytes_of(&tensors);
        let results = B::kernels().adamw(step, tensors)?;
        count("mx_adamw", read, bytes_of(&results), Least::Same);
        Ok(results)
    }

    fn has_own_product(&self, device: &B::Device) -> bool {
        B::kernels().has_own_product(device)
    }

    fn operand_dtype(&self, device: &B::Device, form: OperandForm) -> (DType, bool) {
        B::kernels().operand_dtype(device, form)
    }

    fn product_operand(
        &self,
        tensor: FloatTensor<B>,
        form: OperandForm,
    ) -> Operand<FloatTensor<B>> {
        let read = bytes(&tensor);
        let operand = B::kernels().product_operand(tensor, form);
        let [written, _] = operand_bytes(&operand);
        count("mx_product_operand", read, written, Least::Nothing);
        operand
    }

    fn has_operand_pair(&self, device: &B::Device, shape: &Shape, forms: [OperandForm; 2]) -> bool {
        B::kernels().has_operand_pair(device, shape, forms)
    }

    fn operand_pair(
        &self,
        tensor: FloatTensor<B>,
        forms: [OperandForm; 2],
    ) -> [Operand<FloatTensor<B>>; 2] {
        let read = bytes(&tensor);
        let pair = B::kernels().operand_pair(tensor, forms);
        let written = pair.iter().map(|operand| operand_bytes(operand)[0]).sum();
        count("mx_operand_pair", read, written, Least::Nothing);
        pair
    }

    fn product(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        counted_product([lhs, rhs], None, |[lhs, rhs], _| {
            B::kernels().product(lhs, rhs)
        })
    }

    fn rounded_product(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
        rounding: OpRounding,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        counted_product([lhs, rhs], bias, |[lhs, rhs], bias| {
            B::kernels().rounded_product(lhs, rhs, rounding, bias)
        })
    }

    fn has_accumulators(&self) -> bool {
        B::kernels().has_accumulators()
    }

    fn has_accumulated_product(&self, product: &AccumulatedProduct) -> bool {
        B::kernels().has_accumulated_product(product)
    }

    fn accumulated_product(
        &self,
        product: &AccumulatedProduct,
        operands: [FloatTensor<B>; 2],
    ) -> FloatTensor<B> {
        let read = bytes_of(&operands);
        let result = B::kernels().accumulated_product(product, operands);
        count("mx_accumulated_product", read, bytes(&result), Least::Same);
        result
    }

    fn has_own_convolution(&self, device: &B::Device, significant_bits: u32) -> bool {
        B::kernels().has_own_convolution(device, significant_bits)
    }

    fn convolution_product(
        &self,
        convolution: &Convolution,
        product: &ConvolutionProduct,
        operands: [&FloatTensor<B>; 2],
        bias: Option<&FloatTensor<B>>,
        significant_bits: u32,
    ) -> Option<FloatTensor<B>> {
        let kernels = B::kernels();
        let result =
            kernels.convolution_product(convolution, product, operands, bias, significant_bits)?;
        let read = bytes_of(operands) + bytes_of(bias);
        count("mx_convolution", read, bytes(&result), Least::Same);
        Some(result)
    }
}
