"""Errors by the definitions in float64: products whose channels have means (Averis) or are hot (CHON), attention in INT8 (SageBwd).

The program `published` compares these figures with the library's. Both make the same input from counters, so no draw differs.

    pip install numpy
    python crates/burn-mx-lab/python/published.py
"""

import numpy as np

ROWS, CHANNELS, OUTPUTS = 1024, 512, 512


def normal(seed: int, count: int) -> np.ndarray:
    """Normal numbers as float32 holds them: SplitMix64 of a counter, then Box and Muller."""
    z = np.uint64(seed) + np.arange(1, 2 * count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    uniform = ((z >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    radius = np.sqrt(-2.0 * np.log(uniform[0::2]))
    return (radius * np.cos(2.0 * np.pi * uniform[1::2])).astype(np.float32).astype(np.float64)


def to_float(x: np.ndarray, mantissa_bits: int, least_exponent: int) -> np.ndarray:
    """To nearest, ties to even, with subnormal numbers below 2^least_exponent."""
    _, exponents = np.frexp(x)
    steps = np.exp2(np.maximum(exponents - 1, least_exponent) - float(mantissa_bits))
    return np.rint(x / steps) * steps


def nvfp4(x: np.ndarray, square: bool = False) -> np.ndarray:
    """E2M1 in blocks of 1 x 16 or 16 x 16 with E4M3 scales and one scale of the matrix, amax / 2688."""
    tensor_scale = np.abs(x).max() / 2688.0
    rows, columns = x.shape
    height = 16 if square else 1
    blocks = x.reshape(rows // height, height, columns // 16, 16)
    scales = np.abs(blocks).max(axis=(1, 3), keepdims=True) / 6.0 / tensor_scale
    scales = to_float(np.clip(scales, 2.0**-6, 448.0), 3, -6) * tensor_scale
    elements = np.clip(to_float(blocks / scales, 1, 0), -6.0, 6.0)
    return (elements * scales).reshape(x.shape)


def error(exact: np.ndarray, got: np.ndarray) -> float:
    return float(((exact - got) ** 2).sum() / (exact**2).sum())


def averis() -> None:
    means = normal(1, CHANNELS)
    # As float32 adds.
    x = (normal(2, ROWS * CHANNELS).reshape(ROWS, CHANNELS) + 4.0 * means).astype(np.float32).astype(np.float64)
    w = normal(3, CHANNELS * OUTPUTS).reshape(CHANNELS, OUTPUTS)
    exact = x @ w
    q_w = nvfp4(w.T).T
    mean = x.mean(axis=0, keepdims=True)
    plain, apart = nvfp4(x) @ q_w, (nvfp4(mean) + nvfp4(x - mean)) @ q_w

    def centred(y: np.ndarray) -> np.ndarray:
        return y - y.mean(axis=0)

    for name, y in [("NVFP4", plain), ("averis", apart)]:
        print(f"{name}: less the mean {error(centred(exact), centred(y)):.4e}, in total {error(exact, y):.4e}")


def chon() -> None:
    x = normal(4, ROWS * CHANNELS).reshape(ROWS, CHANNELS)
    hot = [(29 * i + 7) % CHANNELS for i in range(16)]
    x[:, hot] *= 30.0
    w = normal(5, CHANNELS * OUTPUTS).reshape(CHANNELS, OUTPUTS)
    exact = x @ w
    q_x, q_w = nvfp4(x), nvfp4(w, square=True)
    d_x, d_w = q_x - x, q_w - w
    scores = np.abs(d_x).mean(axis=0) + np.abs(d_w).mean(axis=1)
    ranking = np.argsort(-scores, kind="stable")
    for count in [0, 16, 32, 64]:
        top = ranking[:count]
        patch = d_x[:, top] @ q_w[top] + q_x[:, top] @ d_w[top]
        found = len(set(hot) & set(top.tolist()))
        print(f"chon, {count} residuals, {found} of the hot channels: {error(exact, q_x @ q_w - patch):.4e}")


def int8(x: np.ndarray, height: int, width: int) -> np.ndarray:
    """INT8 with one scale, amax / 127, for each height x width."""
    rows, columns = x.shape
    blocks = x.reshape(rows // height, height, columns // width, width)
    scales = np.abs(blocks).max(axis=(1, 3), keepdims=True) / 127.0
    return (np.rint(blocks / np.where(scales == 0.0, 1.0, scales)) * scales).reshape(x.shape)


def sagebwd() -> None:
    """Both passes of one head with 256 queries and 256 keys of 64 features; keys have means."""
    rows, features, tile = 256, 64, 64
    scale = features**-0.5
    q, k, v, g = (normal(seed, rows * features).reshape(rows, features) for seed in (6, 7, 8, 9))
    k = (k + 2.0 * normal(10, features)).astype(np.float32).astype(np.float64)

    p = np.exp(q @ k.T * scale)
    p /= p.sum(axis=1, keepdims=True)
    d_p = g @ v.T
    d_s = p * (d_p - (p * d_p).sum(axis=1, keepdims=True)) * scale
    exact = {"out": p @ v, "dq": d_s @ k, "dk": d_s.T @ q, "dv": p.T @ g}

    q_hat, k_hat, v_hat = (int8(x, tile, features) for x in (q, k - k.mean(axis=0), v))
    scores = q_hat @ k_hat.T * scale
    maximum, total, out = np.full((rows, 1), -np.inf), np.zeros((rows, 1)), np.zeros((rows, features))
    for first in range(0, rows, tile):
        keys = slice(first, first + tile)
        larger = np.maximum(maximum, scores[:, keys].max(axis=1, keepdims=True))
        shrink, exponentials = np.exp(maximum - larger), np.exp(scores[:, keys] - larger)
        total = total * shrink + exponentials.sum(axis=1, keepdims=True)
        out = out * shrink + int8(exponentials, 1, tile) @ v_hat[keys]
        maximum = larger
    out /= total
    p = np.exp(scores - maximum - np.log(total))
    d_v = int8(p, tile, tile).T @ int8(g, tile, features)
    d_p = g.astype(np.float16).astype(np.float64) @ v.astype(np.float16).astype(np.float64).T
    d_s = int8(p * (d_p - (out * g).sum(axis=1, keepdims=True)) * scale, tile, tile)
    got = {"out": out, "dq": d_s @ k_hat, "dk": d_s.T @ q_hat, "dv": d_v}
    for name, values in got.items():
        print(f"sagebwd, {name}: {error(exact[name], values):.4e}")


averis()
chon()
sagebwd()
