"""Threads: the interpreter's lock is released, and processes that are forked have threads of their own."""

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import microscaling as ms


def test_the_lock_is_released():
    """While one thread is in native code another one counts; with the lock held it would stand still."""
    x = np.random.default_rng(0).standard_normal((2048, 2048)).astype(np.float32)
    calls = [
        lambda: ms.quantize(x, "nf4"),
        lambda: ms.quantize_(x, "if4"),
        lambda: ms.pack(x, "mxfp4", dialect="compressed-tensors"),
        lambda: ms.statistics(x, "nf4"),
        lambda: ms.hadamard(x, 128),
        lambda: ms.bfloat(x, 12, "stochastic", 1),
        lambda: ms.dot(x[:64], x, "hopper", "mxfp8_e4m3"),
    ]
    counted = []

    def work():
        for call in calls:
            # On a busy machine the other thread may not run at all for a while.
            for _ in range(20):
                before = count
                call()
                if count - before > 100:
                    break
            counted.append(count - before)

    count = 0
    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        count += 1
    assert len(counted) == len(calls) and min(counted) > 100, counted


def test_many_threads_at_once():
    x = np.random.default_rng(1).standard_normal((512, 1024)).astype(np.float32)
    expected = ms.quantize(x, "mxfp6_e2m3")
    results = [None] * 8

    def work(i):
        results[i] = ms.quantize(x, "mxfp6_e2m3")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, expected)


def quantized_sum(x):
    return float(ms.quantize(x, "mxfp4").sum(dtype=np.float64))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_processes():
    """As PyTorch's data loaders are. The parent's pool of threads is at work before, and after."""
    x = np.random.default_rng(2).standard_normal((1024, 1024)).astype(np.float32)
    expected = quantized_sum(x)
    with warnings.catch_warnings():
        # From 3.12 on Python warns of forks beside threads, which is what is tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map_async(quantized_sum, [x, x, x]).get(timeout=60) == [expected] * 3
    assert quantized_sum(x) == expected


def test_any_number_of_threads_gives_the_same_bits():
    program = """
import hashlib, numpy as np, microscaling as ms
x = np.random.default_rng(3).standard_normal((600, 1000)).astype(np.float32)
q = ms.quantize(x, "mxfp4", 0, "stochastic", 7)
print(hashlib.sha256(q.tobytes() + ms.pack(x, "mx6").elements.tobytes()).hexdigest())
"""
    outputs = set()
    for threads in "123":
        environment = {**os.environ, "RAYON_NUM_THREADS": threads}
        outputs.add(subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True).stdout)
    assert len(outputs) == 1 and len(outputs.pop()) == 65
