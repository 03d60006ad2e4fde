"""What functions compute, by plain NumPy."""

import numpy as np

import microscaling as ms

X = np.random.default_rng(3).standard_normal((48, 96)).astype(np.float32)


def test_mxfp4_by_numpy():
    """OCP MX v1.0, section 6.3: the scale is 2^(floor(log2 amax) − 2); then FP4 E2M1."""
    import ml_dtypes

    for axis in (0, 1):
        x = np.moveaxis(X, axis, -1)
        blocks = np.stack([b for b in np.split(x, x.shape[1] // 16, 1)], 1)
        scale = 2.0 ** (np.floor(np.log2(np.abs(blocks).max(-1, keepdims=True))) - 2)
        elements = np.clip(blocks / scale, -6, 6).astype(ml_dtypes.float4_e2m1fn)
        expected = np.moveaxis((elements.astype(np.float32) * scale).reshape(x.shape), -1, axis)
        format = "mx(element=fp4,block_size=16)"
        np.testing.assert_array_equal(ms.quantize(X, format, axis), expected)
        packed = ms.pack(X, format, axis)
        np.testing.assert_array_equal(np.moveaxis(packed.scales, axis, -1), (np.log2(scale[..., 0]) + 127).astype(np.uint8))
        np.testing.assert_array_equal(packed.unpack(), expected)


def test_stochastic_rounding_is_unbiased_and_repeats():
    x = np.full((1, 2**18), 1.2, np.float32)
    x[:, ::32] = 4
    one = ms.quantize(x, "mxfp4", rounding="stochastic", seed=1)
    np.testing.assert_array_equal(one, ms.quantize(x, "mxfp4", rounding="stochastic", seed=1))
    other = ms.quantize(x, "mxfp4", rounding="stochastic", seed=2)
    rest = np.arange(x.size) % 32 != 0
    assert set(one[0, rest]) == {1, 1.5}
    for got in (one, other):
        assert abs(got[0, rest].mean() - 1.2) < 5 * 0.25 / rest.sum() ** 0.5
    assert 0.3 < (one != other)[0, rest].mean() < 0.6
    packed = ms.pack(x, "mxfp4", rounding="stochastic", seed=1)
    np.testing.assert_array_equal(packed.unpack(), one)


def test_statistics():
    q = ms.quantize(X, "mxfp4")
    for got in [ms.statistics(X, "mxfp4"), ms.statistics(X, "mxfp4", quantized=q)]:
        x, error = X.astype(np.float64), X.astype(np.float64) - q
        np.testing.assert_allclose(got.sqnr, 10 * np.log10((x**2).sum() / (error**2).sum()), rtol=1e-12)
        np.testing.assert_allclose(got.mse, (error**2).mean(), rtol=1e-12)
        np.testing.assert_allclose(got.cosine, (x * q).sum() / np.sqrt((x**2).sum() * (q.astype(np.float64) ** 2).sum()), rtol=1e-12)
        assert got.elements == X.size and got.blocks == X.size // 32 and got.non_finite == 0
        assert got.nonzero == (X != 0).sum()
        assert got.underflow == ((X != 0) & (q == 0)).sum() > 0
        scales = np.repeat(ms.pack(X, "mxfp4").scales.astype(int) - 127, 32, axis=1)
        assert got.saturated == (np.abs(X) > 6 * 2.0**scales).sum() > 0
        assert got.scales == {int(s): int((scales == s).sum() // 32) for s in np.unique(scales)}
        assert got.amax == np.abs(X).max() and got.smallest == np.abs(X).min()
        blocks = (error**2).reshape(-1, 32).sum(1) / (x**2).reshape(-1, 32).sum(1)
        np.testing.assert_allclose(got.block_sqnr(0), -10 * np.log10(blocks.max()), rtol=1e-6)
        np.testing.assert_allclose(got.block_sqnr(1), -10 * np.log10(blocks.min()), rtol=1e-6)


def test_bfloat_and_fp_are_numpys():
    import ml_dtypes

    x = np.random.default_rng(4).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    x = x[np.isfinite(x)]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(ms.bfloat(x, 16), x.astype(ml_dtypes.bfloat16).astype(np.float32))
        np.testing.assert_array_equal(ms.fp(x, 16), x.astype(np.float16).astype(np.float32))
    toward_zero = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(ms.bfloat(x, 16, "floor"), toward_zero)


def test_hadamard_by_its_matrix():
    h = np.array([[1.0]])
    while len(h) < 32:
        h = np.block([[h, h], [h, -h]])
    h /= np.sqrt(32)
    blocks = X.reshape(48, 3, 32).astype(np.float64)
    np.testing.assert_allclose(ms.hadamard(X), (blocks @ h).reshape(X.shape), atol=1e-5)
    signs = np.array([-1.0 if 0xD7E8 >> i & 1 else 1.0 for i in range(32)])
    np.testing.assert_allclose(ms.hadamard(X, signs=0xD7E8), (blocks * signs @ h).reshape(X.shape), atol=1e-5)
    for axis in (0, 1):
        turned = ms.hadamard(X, 16, axis, seed=9)
        assert np.abs(turned - ms.hadamard(X, 16, axis, seed=8)).max() > 0.1
        np.testing.assert_allclose(ms.hadamard(turned, 16, axis, seed=9, inverse=True), X, atol=1e-5)
    # The product stays as it is.
    a, b = ms.hadamard(X, seed=1), ms.hadamard(X[:8], seed=1)
    np.testing.assert_allclose(a @ b.T, X @ X[:8].T, atol=1e-4)


def test_packed_parts_and_difference():
    packed = ms.pack(X, "nvfp4(tensor_scale=true)")
    parts = (packed.format, packed.shape, packed.scales, packed.elements)
    again = ms.Packed(*parts, tensor_scale=packed.tensor_scale)
    assert again == packed and again.nbytes == packed.nbytes == X.size // 2 + X.size // 16 + 4
    # Types of one byte are bytes.
    scales = packed.scales.view(packed.format.scale_dtype)
    assert ms.Packed(packed.format, packed.shape, scales, packed.elements, 1, packed.tensor_scale) == packed
    elements = packed.elements.copy()
    elements[0, 0] ^= 0x08
    other = ms.Packed(packed.format, packed.shape, packed.scales, elements, tensor_scale=packed.tensor_scale)
    difference = packed.difference(other)
    assert other != packed and difference["elements_differ"] == difference["values_differ"] == 1
    assert difference["scales_differ"] == 0 and difference["elements"] == X.size
    assert difference["largest"] == np.abs(packed.unpack() - other.unpack()).max()
    assert packed.difference(ms.pack(X, "mxfp8_e4m3")) is None
    assert packed.difference(packed)["values_differ"] == 0


def test_dialects_differ_where_they_should():
    one, other = (ms.pack(X, "mxfp4", dialect=dialect) for dialect in ("ocp", "quark"))
    mantissas = np.frexp(np.abs(X.reshape(48, 3, 32)).max(-1))[0]
    # Rounding to FP4's mantissa carries from 1.75 on.
    np.testing.assert_array_equal(other.scales - one.scales, (mantissas >= 0.875).astype(np.uint8))
    assert one.difference(other)["scales_differ"] == (mantissas >= 0.875).sum() > 0


def test_unpack_to_other_types():
    import ml_dtypes

    for format in ["mxfp8_e4m3", "mx9", "nvfp4(tensor_scale=true)"]:
        packed = ms.pack(X, format)
        values = ms.unpack(packed)
        for dtype in (np.float16, ml_dtypes.bfloat16):
            got = ms.unpack(packed, np.dtype(dtype).name)
            assert got.dtype == dtype and got.shape == X.shape
            np.testing.assert_array_equal(got, values.astype(dtype))
