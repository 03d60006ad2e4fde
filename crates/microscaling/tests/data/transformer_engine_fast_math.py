"""TransformerEngine's NVFP4 of bfloat16 under `NVTE_USE_FAST_MATH=1`, transcribed to NumPy.

The kernel needs a Blackwell GPU. The lines are those of TransformerEngine at commit d0067d0d (2.20.0.dev0), in
`transformer_engine/common/`. NumPy rounds each float32 operation to nearest, as CUDA does: `CMakeLists.txt` 616 to 655 compiles
these files without `--use_fast_math`. ml_dtypes 0.6.0 rounds to bfloat16, E4M3 and E2M1.
"""

import ml_dtypes
import numpy as np

BLOCK = 16
FP4_MAX, FP8_MAX = np.float32(6), np.float32(448)
FLOAT32_MAX = np.finfo(np.float32).max
BFLOAT16_MAX = ml_dtypes.finfo(ml_dtypes.bfloat16).max


def satfinite(x, dtype, largest):
    """`cvt.rn.satfinite`: to nearest, ties to even, larger numbers to the largest."""
    return np.clip(x, -largest, largest).astype(dtype)


def quantize(weight):
    """Elements, two a byte with the even one in the low nibble, the scales, and the factor of the tensor, of float32 [rows, columns]."""
    with np.errstate(over="ignore", divide="ignore"):
        # cast/nvfp4/specialized/quantize_transpose_nvfp4_tuned_1D.cuh 137: the kernel's input is bfloat16.
        blocks = weight.astype(ml_dtypes.bfloat16).reshape(len(weight), -1, BLOCK)
        amax = np.abs(blocks).max(-1, keepdims=True).astype(np.float32)
        global_amax = amax.max()

        # cast/nvfp4/core_nvfp4.cuh 82 to 95, compute_global_encode_scaling_factor_FP4. No tensor here is zeros.
        encode = np.minimum(FP8_MAX * FP4_MAX / global_amax, FLOAT32_MAX)

        # cast/nvfp4/core_nvfp4.cuh 40 to 53, compute_decoding_scaling_factor.
        decode = np.minimum(amax * (encode * (np.float32(1) / FP4_MAX)), FLOAT32_MAX)
        scales = satfinite(decode, ml_dtypes.float8_e4m3fn, FP8_MAX)

        # quantize_transpose_nvfp4_tuned_1D.cuh 179 to 185, compute_nvfp4_scaling_coefficient<bf16>.
        coefficient = np.minimum(encode / scales.astype(np.float32), np.float32(BFLOAT16_MAX)).astype(ml_dtypes.bfloat16)

        # util/ptx_arch_spec.cuh 324 to 351: `fma.rn.f32.bf16 v, v_h, scaling_coeff, zero`, then `cvt.rn.satfinite.e2m1x2.f32`. The sum
        # with +0 makes +0 of −0.
        scaled = blocks.astype(np.float32) * coefficient.astype(np.float32) + np.where(blocks == 0, np.float32(0), np.float32(-0.0))
    codes = satfinite(scaled, ml_dtypes.float4_e2m1fn, FP4_MAX).view(np.uint8).reshape(len(weight), -1, 2)
    # cast/nvfp4/dequantize_nvfp4.cuh: the factor of the scales, amax · (1 / (6 · 448)).
    factor = global_amax * (np.float32(1) / (FP4_MAX * FP8_MAX))
    return codes[..., 0] | codes[..., 1] << 4, scales.view(np.uint8)[..., 0], factor


def ties():
    """A tensor whose factors are powers of two: elements and scales halfway between two, and blocks from the largest down to zero."""
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 0.24, 0.26, 4.98, 5.03, 1e-30, -0.0, 0, 5.5, 6], np.float32)
    # 17 steps between a scale and twice the scale: E4M3's numbers, and the middles.
    steps = np.concatenate([np.arange(16, 32) / 16, [1 + 2.0**-7, 1 + 3 * 2.0**-7]])
    rows = [middles * np.float32(step * 2.0**exponent) for exponent in (-30, -10, -9, -7, -6, -1, 0, 7) for step in steps]
    blocks = np.stack([*rows, np.full(16, 2688, np.float32), np.zeros(16, np.float32)])
    blocks[1::2] *= -1
    pad = -len(blocks) % 4
    blocks = np.concatenate([blocks, np.zeros((pad, BLOCK), np.float32)])
    return blocks.astype(ml_dtypes.bfloat16).astype(np.float32).reshape(-1, 4 * BLOCK)
