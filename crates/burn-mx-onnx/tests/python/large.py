"""Time and peak memory of quantizing a model of 500 MB, which this script makes, beside copying it.

    python crates/burn-mx-onnx/tests/python/large.py target/release/quantize_onnx /tmp MXFP8E4M3 MXFP6E3M2 MX6
"""

import os
import subprocess
import sys
import time
from pathlib import Path


def make(path):
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    names = [f"x{layer}" for layer in range(31)]
    weights = [numpy_helper.from_array(rng.normal(size=(2048, 2048)).astype(np.float32), f"w{layer}") for layer in range(30)]
    nodes = [helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]], name=f"layer{at}") for at in range(30)]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2048]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def main():
    program, folder, *configs = sys.argv[1:]
    path, output = Path(folder) / "large.onnx", Path(folder) / "large_out.onnx"
    # In a process of its own: the memory of this one counts as that of a child.
    subprocess.run([sys.executable, __file__, "make", path], check=True)
    subprocess.run(["cp", path, output], check=True)
    began = time.perf_counter()
    subprocess.run(["cp", path, output], check=True)
    copied = time.perf_counter() - began
    size = path.stat().st_size
    print(f"{size / 1e6:.0f} MB; reading and writing takes {copied:.2f} s")
    for config in configs:
        began = time.perf_counter()
        child = subprocess.Popen([program, path, "--config", config, "--output", output, "--force"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        assert status == 0, config
        peak = usage.ru_maxrss * 1024
        print(f"{config}: {seconds:.2f} s ({seconds / copied:.1f} copies), peak {peak / 1e6:.0f} MB ({peak / size:.2f} of the model)")
        assert peak < 3 * size
    path.unlink()
    output.unlink()


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    main()
