"""PyTorch's tensors, by DLPack."""

import numpy as np
import pytest

import microscaling as ms

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its tensors are not tried")
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_tensors_give_tensors(dtype):
    x = random(6, 64, dtype=dtype)
    before = x.clone()
    got = ms.quantize(x, "mxfp4")
    assert isinstance(got, torch.Tensor) and got.dtype == dtype and torch.equal(x, before)
    expected = ms.quantize(x.float().numpy(), "mxfp4")
    np.testing.assert_array_equal(got.float().numpy(), expected)
    for strided in [x.clone(), x.T.clone().T, torch.cat([x, x])[::2]]:
        expected = ms.quantize(strided, "mxfp4")
        pointer = strided.data_ptr()
        assert ms.quantize_(strided, "mxfp4") is strided and strided.data_ptr() == pointer
        assert torch.equal(strided, expected)
    assert ms.pack(before, "mxfp4") == ms.pack(before.float().numpy(), "mxfp4")
    assert ms.bfloat(before, 12).dtype == ms.hadamard(before).dtype == dtype


def test_nothing_is_copied():
    """Memory that PyTorch and we both see: of the input in place, and of the result."""
    for dtype in FLOATS:
        x = random(4, 32, dtype=dtype)
        assert ms._arrays.view(x).ctypes.data == x.data_ptr()
    x = random(4, 32)
    assert ms._arrays.contiguous(ms._arrays.view(x)).ctypes.data == x.data_ptr()
    array = np.ones((2, 2), np.float32)
    assert ms._arrays.like(x, array).data_ptr() == array.ctypes.data


def test_what_is_refused():
    with pytest.raises(BufferError, match="require gradient"):
        ms.quantize(random(2, 32).requires_grad_(), "mxfp4")
    with pytest.raises(TypeError, match="int32"):
        ms.quantize(torch.ones(32, dtype=torch.int32), "mxfp4")
    if torch.cuda.is_available():
        with pytest.raises(ValueError, match="expected one on the CPU"):
            ms.quantize(random(32).cuda(), "mxfp4")


def test_another_device_is_refused():
    class Elsewhere:
        def __dlpack__(self):
            raise AssertionError("nobody may ask for this memory")

        def __dlpack_device__(self):
            return 2, 0

    with pytest.raises(ValueError, match="x is on DLPack's device 2, expected one on the CPU"):
        ms.quantize(Elsewhere(), "mxfp4")


def test_tensors_of_checkpoints():
    packed = ms.pack(random(8, 64), "nvfp4(tensor_scale=true)", dialect="modelopt")
    stored = packed.store("modelopt-nvfp4", "w")
    tensors = {
        "w": torch.from_numpy(stored["w"]),
        "w_scale": torch.from_numpy(stored["w_scale"].view(np.uint8)).view(torch.float8_e4m3fn),
        "w_scale_2": torch.tensor(packed.tensor_scale),
        "another": torch.ones(2, dtype=torch.bfloat16),
        "w_of_another_type": torch.ones(2, dtype=torch.bfloat16),
    }
    assert ms.load("modelopt-nvfp4", "w", tensors) == packed
