"""GPTQ in NumPy, after the paper's algorithm and its authors' code: inverts the Hessian and takes Cholesky's factor of that.

    pip install numpy
    python reference.py > reference.json

Blocks have fixed scales ("static groups"). Written with NumPy 2.4.6.
"""

import json

import numpy as np

OUTPUTS, INPUTS, SAMPLES = 8, 70, 200
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.array([m / 8 * 2.0**-6 for m in range(8)] + [(1 + m / 8) * 2.0**e for e in range(-6, 9) for m in range(8)][:-1])


def noise(seed):
    """The same numbers as in tests.rs."""
    state = seed
    while True:
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        yield (state >> 8) / (1 << 24) - 0.5


def weight():
    numbers = noise(1)
    rows = [[8 * next(numbers) * abs(next(numbers)) for _ in range(INPUTS)] for _ in range(OUTPUTS)]
    return np.array(rows, dtype=np.float32).astype(float)


def hessian():
    numbers = noise(2)
    x = np.zeros((SAMPLES, INPUTS))
    for sample in range(SAMPLES):
        before = 0.0
        for i in range(INPUTS):
            # Neighbours are alike, and some inputs are larger than others.
            before = 0.75 * before + next(numbers)
            x[sample, i] = before * (1 + i % 5)
    return x.T @ x


def nearest(values, grid):
    """To the nearest number of an ascending grid of magnitudes; ties to the even index."""
    magnitudes = np.abs(values)
    after = np.clip(np.searchsorted(grid, magnitudes), 1, len(grid) - 1)
    low, high = grid[after - 1], grid[after]
    up = (magnitudes - low > high - magnitudes) | ((magnitudes - low == high - magnitudes) & (after % 2 == 0))
    return np.sign(values) * np.where(up, high, low)


def scales(weight, name):
    """One for each element."""
    size = 32 if name == "mxfp4" else 16
    result = np.zeros_like(weight)
    tensor_scale = np.float32(np.abs(weight).max() / (6 * 448))
    for start in range(0, weight.shape[1], size):
        largest = np.abs(weight[:, start : start + size]).max(axis=1, keepdims=True)
        if name == "mxfp4":
            scale = 2.0 ** (np.floor(np.log2(largest)) - 2)
        else:
            scale = nearest(largest / 6 / tensor_scale, E4M3) * tensor_scale
        result[:, start : start + size] = scale
    return result


def gptq(weight, hessian, name, act_order):
    scale = scales(weight, name)
    inputs = weight.shape[1]
    order = np.argsort(-np.diag(hessian), kind="stable") if act_order else np.arange(inputs)
    weight, scale, hessian = weight[:, order].copy(), scale[:, order], hessian[np.ix_(order, order)]
    damped = hessian + 0.01 * np.mean(np.diag(hessian)) * np.eye(inputs)
    factor = np.linalg.cholesky(np.linalg.inv(damped)).T
    quantized = np.zeros_like(weight)
    for i in range(inputs):
        quantized[:, i] = nearest(weight[:, i] / scale[:, i], E2M1) * scale[:, i]
        error = (weight[:, i] - quantized[:, i]) / factor[i, i]
        weight[:, i:] -= np.outer(error, factor[i, i:])
    result = np.zeros_like(quantized)
    result[:, order] = quantized
    return result


def error(weight, quantized, hessian):
    difference = quantized - weight
    return np.trace(difference @ hessian @ difference.T) / np.trace(weight @ hessian @ weight.T)


cases = []
for name in ["mxfp4", "nvfp4(tensor_scale=true)"]:
    for act_order in [False, True]:
        w, h = weight(), hessian()
        q = gptq(w, h, name, act_order)
        rounded = nearest(w / scales(w, name), E2M1) * scales(w, name)
        cases.append(dict(format=name, act_order=act_order, quantized=q.flatten().tolist(), error=error(w, q, h),
                          error_nearest=error(w, rounded, h)))
print(json.dumps(cases))
