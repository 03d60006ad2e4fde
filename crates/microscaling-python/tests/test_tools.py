"""The bytes that other tools make today, where they are installed; `test_golden` has those of known versions."""

import numpy as np
import pytest

import microscaling as ms

torch = pytest.importorskip("torch", reason="PyTorch is not installed: no tool is asked for its bytes")
WEIGHT = torch.randn(64, 128, generator=torch.Generator().manual_seed(6)) * torch.logspace(-3, 1, 64)[:, None]


def check(dialect, format, scales, elements):
    packed = ms.pack(WEIGHT, format, dialect=dialect)
    for own, theirs in [(packed.scales, scales), (packed.elements, elements)]:
        theirs = theirs.contiguous().view(torch.uint8).numpy()
        np.testing.assert_array_equal(own.ravel(), theirs.ravel())
    return packed


@pytest.mark.parametrize("format, bits", [("mxfp4", 4), ("mxfp8_e4m3", 8)])
def test_mx_of_compressed_tensors(format, bits):
    reason = "compressed-tensors is not installed: its bytes are not compared"
    utils = pytest.importorskip("compressed_tensors.compressors.mx_utils", reason=reason)
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    args = QuantizationArgs(num_bits=bits, type="float", strategy="group", group_size=32, symmetric=True, scale_dtype=torch.uint8)
    blocks = WEIGHT.unflatten(-1, (-1, 32))
    scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args)
    codes = quantize(WEIGHT, scale, zero, args)
    elements = pack_fp4_to_uint8(codes) if bits == 4 else codes.to(torch.float8_e4m3fn)
    check("compressed-tensors", format, utils.compress_mx_scale(scale, torch.uint8), elements)


def test_modelopt():
    reason = "NVIDIA Model Optimizer is not installed: its bytes are not compared"
    mxfp4 = pytest.importorskip("modelopt.torch.quantization.qtensor.mxfp4_tensor", reason=reason)
    from modelopt.torch.quantization.qtensor.mxfp8_tensor import MXFP8QTensor
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    packed, scales = mxfp4.MXFP4QTensor.quantize(WEIGHT.clone(), 32)
    check("modelopt", "mxfp4", scales, packed._quantized_data)
    packed, scales = MXFP8QTensor.quantize(WEIGHT.clone())
    check("modelopt", "mxfp8_e4m3", scales, packed._quantized_data)
    packed, scales, scale = NVFP4QTensor.quantize(WEIGHT.clone(), 16)
    own = check("modelopt", "nvfp4(tensor_scale=true)", scales, packed._quantized_data)
    assert own.tensor_scale == scale.item()


def test_torchao():
    reason = "torchao is not installed: its bytes are not compared"
    tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", reason=reason)
    for format, dtype in [("mxfp8_e4m3", torch.float8_e4m3fn), ("mxfp4", torch.float4_e2m1fn_x2)]:
        scales, elements = tensor.to_mx(WEIGHT, dtype, 32)
        check("torchao", format, scales, elements)


def test_microxcaling():
    reason = "microxcaling is not on the path: its values are not compared"
    mx_ops = pytest.importorskip("mx.mx_ops", reason=reason)
    for element in ["fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1", "int8", "int4"]:
        for axis in (0, 1):
            for rounding in ["nearest", "even", "floor"]:
                theirs = mx_ops._quantize_mx(WEIGHT, 8, element, axes=[axis], block_size=32, round=rounding)
                own = ms.quantize(WEIGHT, f"mx(element={element})", axis, rounding)
                assert torch.equal(own, theirs), (element, axis, rounding)
