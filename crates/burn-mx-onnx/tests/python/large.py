"""Time and peak memory of quantizing a large model, which this script makes, beside copying its files.

    python large.py target/release/quantize_onnx /tmp MXFP8E4M3 MX6                     # 503 MB in one file
    python large.py target/release/quantize_onnx /tmp MXFP4E2M1 --external --check      # 2.8 GB, in a file of external data

The second one limits the program's private memory to 512 MB, a fifth of the model, so it fails if the program does not stream.
`--check` runs the quantized model in ONNX Runtime, and compares each layer with the emulation of the module `microscaling`.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

# Matrices, and the side of each.
INSIDE, EXTERNAL = (30, 2048), (42, 4096)
PRIVATE = 512 << 20


def make(path, is_external):
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    count, side = EXTERNAL if is_external else INSIDE
    rng = np.random.default_rng(0)
    weights, data = [], path.with_suffix(".bin")
    with open(data, "wb") as file:
        for at in range(count):
            w = rng.standard_normal((side, side), np.float32) / np.float32(side**0.5)
            if not is_external:
                weights.append(numpy_helper.from_array(w, f"w{at}"))
                continue
            tensor = TensorProto(name=f"w{at}", data_type=TensorProto.FLOAT, dims=w.shape, data_location=TensorProto.EXTERNAL)
            for key, value in {"location": data.name, "offset": file.tell(), "length": w.nbytes}.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(w.data)
            weights.append(tensor)
    names = [f"x{at}" for at in range(count + 1)]
    nodes = [helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]], name=f"layer{at}") for at in range(count)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", side]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def check(path, output, config):
    """Each layer of the quantized model in ONNX Runtime, which decodes weights one after the other."""
    import microscaling as ms
    import numpy as np
    import onnx
    import onnxruntime as ort

    onnx.checker.check_model(output, full_check=True)
    count, side = EXTERNAL if path.with_suffix(".bin").stat().st_size else INSIDE
    model = onnx.load(output, load_external_data=False)
    names = [name for at in range(count) for name in (f"x{at}", f"x{at}_quantized")][1:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    watched = output.with_name("large_watched.onnx")
    onnx.save(model, watched)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = np.random.default_rng(1).standard_normal((4, side), np.float32)
    values = ort.InferenceSession(watched, options).run([f"x{count}", *names], {"x0": x})
    values = dict(zip([f"x{count}", *names], values), x0=x)
    watched.unlink()
    floats = np.memmap(path.with_suffix(".bin"), np.float32, shape=(count, side, side))
    worst = 0
    for at in range(count):
        quantized = ms.quantize(values[f"x{at}"], config)
        assert np.array_equal(values[f"x{at}_quantized"], quantized)
        wanted = quantized @ ms.quantize(np.array(floats[at]), config, axis=0)
        worst = max(worst, np.abs(values[f"x{at + 1}"] - wanted).max() / np.abs(wanted).max())
    print(f"{config}: {count} layers in ONNX Runtime: activations equal, products differ by at most {worst:.1e} of the largest")
    assert worst < 1e-5


def limited():
    resource.setrlimit(resource.RLIMIT_DATA, (PRIVATE, PRIVATE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--external", action="store_true", help="2.8 GB, in a file of external data")
    parser.add_argument("--check", action="store_true", help="run the result in ONNX Runtime; with --external")
    args = parser.parse_args()
    if args.check and not args.external:
        parser.error("--check needs --external")
    path, output = args.folder / "large.onnx", args.folder / "large_out.onnx"
    # In a process of its own: the memory of this one counts as that of a child.
    subprocess.run([sys.executable, __file__, "make", path, str(args.external)], check=True)
    files = [file for file in (path, path.with_suffix(".bin")) if file.stat().st_size]
    size = sum(file.stat().st_size for file in files)
    copies = [output.with_name(f"copy_of_{file.name}") for file in files]
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        for file, copy in zip(files, copies):
            subprocess.run(["cp", file, copy], check=True)
        seconds.append(time.perf_counter() - began)
    copied = seconds[-1]
    for copy in copies:
        copy.unlink()
    print(f"{size / 1e6:.0f} MB; reading and writing takes {copied:.2f} s")
    for config in args.configs:
        command = [args.program, path, "--config", config, "--output", output, "--force"]
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=limited if args.external else None)
        _, status, usage = os.wait4(child.pid, 0)
        taken = time.perf_counter() - began
        assert status == 0, config
        peak = usage.ru_maxrss * 1024
        outputs = [file for file in (output, output.with_name("large_out.onnx.data")) if file.exists()]
        written = sum(file.stat().st_size for file in outputs)
        print(
            f"{config}: {taken:.2f} s ({taken / copied:.1f} copies), peak {peak / 1e6:.0f} MB ({peak / size:.2f} of the model), "
            f"{written / 1e6:.0f} MB written ({written / size:.3f})",
            flush=True,
        )
        assert peak < 3 * size and taken < 10 * copied
        if args.check:
            check(path, output, config)
        for file in outputs:
            file.unlink()
    for file in (path, path.with_suffix(".bin")):
        file.unlink()


if sys.argv[1:2] == ["make"]:
    make(Path(sys.argv[2]), sys.argv[3] == "True")
else:
    main()
