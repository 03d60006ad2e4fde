"""Products under accumulators: to the bit what the repository's reference files say, which other programs and GPUs made."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors

import microscaling as ms
from golden import ROOT

FOLDER = ROOT / "tests" / "data" / "accumulators"
CODES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn}
PLAIN = {"bf16": "bfloat16", "fp16": "float16", "tf32": "tf32"}


def read(name):
    with safetensors.safe_open(str(FOLDER / f"{name}.safetensors"), "numpy") as file:
        return json.loads(file.metadata()["cases"]), {key: file.get_tensor(key) for key in file.keys()}


def accumulator(fields):
    """The text of an accumulator whose fields a case has."""
    of = {
        "joint": ["terms", "fraction_bits", "output", "floor_exponent", "group"],
        "late": ["terms", "fraction_bits", "interleave", "output"],
        "exact": ["terms", "output"],
        "pairs": ["terms", "flush"],
    }[fields["order"]]
    return f"accumulator(order={fields['order']}," + ",".join(f"{name}={str(fields[name]).lower()}" for name in [*of, "promote_every", "scale_at"]) + ")"


def element(name):
    return PLAIN.get(name) or f"fp{sum(map(int, name.replace('fnuz', '')[1:].split('m'))) + 1}_{name}"


def packed(x, scales, name, scale, block):
    """Rows of elements and the scales of their blocks, packed by hand: ml_dtypes makes the codes."""
    codes = x.astype(CODES[name]).view(np.uint8)
    bits = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}[name]
    stream = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits]
    elements = np.packbits(stream.reshape(len(x), -1), axis=-1, bitorder="little")
    if scale == "ue8m0":
        scales, format = scales.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8), f"mx(element={element(name)},block_size={block})"
    else:
        scales, format = scales.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), "nvfp4"
    return ms.Packed(format, x.shape, scales, elements)


def turned(packed):
    """Rows as columns."""
    return ms.Packed(
        packed.format, packed.shape[::-1], packed.scales.T, repacked(packed.codes().T, packed.format.element_bits), axis=0
    )


def repacked(codes, bits):
    stream = np.unpackbits(np.ascontiguousarray(codes)[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(stream.reshape(-1), bitorder="little")


def assert_bits(got, expected, case):
    got, expected = np.asarray(got, np.float32), np.asarray(expected, np.float32)
    same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
    assert got.shape == expected.shape and same.all(), case


def test_products():
    cases, tensors = read("products")
    assert len(cases) == 20
    for case in cases:
        x, w = tensors[f"{case['set']}/x"], tensors[f"{case['set']}/w"]
        formats = [element(case["x"]), element(case["w"])]
        if case["scale"]:
            x = packed(x, tensors[f"{case['set']}/x_scale"], case["x"], case["scale"], case["block"])
            w = turned(packed(w.T, tensors[f"{case['set']}/w_scale"], case["w"], case["scale"], case["block"]))
            formats = [None, None]
        expected = tensors[f"{case['set']}/{case['chip']}/y"]
        texts = [accumulator(case["accumulator"])]
        if "promote32" not in case["chip"]:
            texts.append(case["chip"])
        for text in texts:
            got = ms.dot(x, w, text, *formats)
            assert got.dtype == np.float32
            assert_bits(got, expected, case)


def dots(name, inputs, output):
    """All dot products of a file, each of two vectors and a sum to begin with."""
    cases, tensors = read(name)
    count = 0
    for case in cases:
        path = inputs(case)
        a, b = tensors[f"{path}/a"], tensors[f"{path}/b"]
        c, expected = (tensors.get(f"{output(case)}/{x}", tensors.get(f"{path}/{x}")) for x in "cd")
        lhs, rhs = case.get("a", case.get("type")), case.get("b", case.get("type"))
        formats = [element(lhs), element(rhs)]
        if case.get("scale"):
            sides = [(a, "sa", lhs), (b, "sb", rhs)]
            a, b = ([packed(x[i : i + 1], tensors[f"{path}/{s}"][i : i + 1], t, case["scale"], case["block"]) for i in range(len(x))] for x, s, t in sides)
            b = [turned(x) for x in b]
            formats = [None, None]
        for i in range(len(c)):
            x, w, start = a[i], b[i], c[i]
            if case.get("scale"):
                start = start.reshape(1, 1)
            got = ms.dot(x, w, accumulator(case["accumulator"]), *formats, c=start)
            assert_bits(got, np.full_like(start, expected[i]), (case, i))
            count += 1
    return count


def test_dots_of_emulators():
    count = dots("dots", lambda case: f"in/{case['set']}/{case['K']}", lambda case: f"out/{case['chip']}/{case['set']}/{case['K']}")
    assert count > 5000


def test_dots_of_gpus():
    assert dots("silicon", lambda case: f"in/{case['set']}", lambda case: f"out/{case['gpu']}/{case['set']}") == 7040


def test_arrays_are_quantized_first():
    random = np.random.default_rng(3)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in [(5, 96), (96, 7)])
    for format, w_format in [("mxfp8_e4m3", None), ("mxfp8_e4m3", "mxfp4"), ("nvfp4", None), ("nvfp4(tensor_scale=true)", None)]:
        packed = ms.pack(x, format), ms.pack(w, w_format or format, axis=0)
        got = ms.dot(x, w, "accumulator(order=exact,terms=1024)", format, w_format)
        assert_bits(got, ms.dot(*packed, "accumulator(order=exact,terms=1024)"), format)
        exact = packed[0].unpack().astype(np.float64) @ packed[1].unpack().astype(np.float64)
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-6)
    strided = np.asfortranarray(x)[::-1], np.ascontiguousarray(w.T).T
    assert_bits(ms.dot(strided[0], strided[1], "hopper", "mxfp8_e4m3"), ms.dot(x[::-1].copy(), w, "hopper", "mxfp8_e4m3"), "strides")


def test_vectors_and_sizes():
    x, w = np.ones((3, 64), np.float32), np.full((64, 2), 0.5, np.float32)
    assert ms.dot(x, w, "hopper", "float16").tolist() == [[32, 32]] * 3
    assert ms.dot(x[0], w, "hopper", "float16").tolist() == [32, 32]
    assert ms.dot(x, w[:, 0], "hopper", "float16").tolist() == [32] * 3
    assert ms.dot(x[0], w[:, 0], "hopper", "mxfp8_e4m3") == 32
    assert ms.dot(ms.pack(x[0], "mxfp4"), ms.pack(w[:, 0], "mxfp4"), "blackwell") == 32
    assert ms.dot(x[:, :0], w[:0], "hopper", "float16").tolist() == [[0, 0]] * 3
    assert ms.dot(x[:0], w, "hopper", "mxfp8_e4m3").shape == (0, 2)
    c = np.full((3, 2), 8, np.float64)
    assert ms.dot(x, w, "hopper", "float16", c=c).tolist() == [[40, 40]] * 3 and (c == 8).all()


def test_torch_gives_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.ones(2, 32, dtype=torch.bfloat16)
    got = ms.dot(x, x.T, "hopper", "bfloat16")
    assert isinstance(got, torch.Tensor) and got.tolist() == [[32, 32]] * 2


@pytest.mark.parametrize(
    ["arguments", "message"],
    [
        ([np.ones(4), np.ones(4), "pascal", "float16"], "pascal"),
        ([np.ones(4), np.ones(4), "accumulator(order=joint,terms=4)", "float16"], "fraction_bits"),
        ([np.ones(4), np.ones(4), "hopper", "mxfp9"], "mxfp9"),
        ([np.ones(4), np.ones(4), "hopper", "mxfp6_e2m3"], "hopper has no matrix unit"),
        ([np.ones(4), np.ones(4), "hopper", "mx9"], "block format is mx9"),
        ([np.ones(4), np.ones(4), "hopper"], "x is an array and its format is None"),
        ([ms.pack(np.ones(4), "mxfp4"), np.ones(4), "hopper"], "w is an array and its format is None"),
        ([np.full(4, 1.1), np.ones(4), "hopper", "float16"], "1.1"),
        ([np.ones(4), np.ones(5), "hopper", "float16"], "left operand has 4"),
        ([np.ones((2, 2, 2)), np.ones(2), "hopper", "float16"], "x has 3 axes, expected 1 or 2"),
        ([ms.pack(np.ones((4, 4)), "mxfp4", axis=0), np.ones(4), "hopper", "mxfp4"], "x is packed along axis 0, expected 1"),
        ([np.ones(4), np.ones((4, 2)), "hopper", "float16", None, np.ones(3)], r"c has shape \(3,\), expected \(2,\)"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        ms.dot(*arguments)
