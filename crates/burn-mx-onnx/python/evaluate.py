"""Runs ONNX models in ONNX Runtime and prints a table: configuration, model size, top-1, top-5, seconds.

    pip install onnx onnxruntime numpy safetensors pillow
    python evaluate.py digits_cnn.onnx digits_cnn_*.onnx --data digits_cnn.safetensors
    python evaluate.py resnet50.onnx resnet50_MXFP8E4M3.onnx --images val_data --labels labels.txt

Data are arrays, an `.npz` or safetensors file with the inputs (`--inputs`) and the labels (`--targets`), or a folder of images.
In the folder, each class has a folder of its own; classes count in the order of the folders' names, or as `--labels` says: a file
with a folder's name a line. Images are resized to 256 at the shorter side, cut to `--size` at the center, and normalized as
ImageNet's are. Rows have the order of AMD Quark's table, then come BFP16 and NVFP4, then all others in the order given.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import onnxruntime


ORDER = ["MX4", "MX6", "MX9", "MXFP8E5M2", "MXFP8E4M3", "MXFP6E3M2", "MXFP6E2M3", "MXFP4E2M1", "MXINT8", "BFP16", "NVFP4"]


def row(config):
    """The place of a configuration in the table."""
    name = config.removesuffix("_ADAQUANT")
    return (ORDER.index(name), name != config) if name in ORDER else (len(ORDER), False)


def arrays(path, names):
    if path.suffix == ".npz":
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
    else:
        from safetensors.numpy import load_file

        found = load_file(path)
    missing = [name for name in names if name not in found]
    if missing:
        raise SystemExit(f"error: {path} has no array `{missing[0]}`; it has {', '.join(found)}")
    return [found[name] for name in names]


class Images:
    """Images of a folder, read when they are needed."""

    MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])

    def __init__(self, folder, labels, size):
        self.size = size
        classes = labels.read_text().split() if labels else sorted(path.name for path in folder.iterdir() if path.is_dir())
        self.files = [(path, label) for label, name in enumerate(classes) for path in sorted((folder / name).glob("*")) if path.is_file()]
        if not self.files:
            raise SystemExit(f"error: {folder} has no images in folders of their classes")
        self.labels = np.array([label for _, label in self.files])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, range):
        return np.stack([self.image(path) for path, _ in self.files[range]])

    def image(self, path):
        from PIL import Image

        image = Image.open(path).convert("RGB")
        factor = 256 / min(image.size)
        image = image.resize((round(image.width * factor), round(image.height * factor)), Image.BILINEAR)
        left, top = (image.width - self.size) // 2, (image.height - self.size) // 2
        image = image.crop((left, top, left + self.size, top + self.size))
        return ((np.asarray(image, np.float32) / 255 - self.MEAN) / self.DEVIATION).transpose(2, 0, 1)


def size(path):
    """Bytes of a model and of its external data."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    places = {
        entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"
    }
    return path.stat().st_size + sum((path.parent / place).stat().st_size for place in places)


def scores(path, inputs, labels, batch, provider, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=[provider])
    name = session.get_inputs()[0].name
    first = five = 0
    seconds = 0.0
    for start in range(0, len(inputs), batch):
        x, y = inputs[start : start + batch], labels[start : start + batch]
        began = time.perf_counter()
        logits = session.run(None, {name: x})[0]
        seconds += time.perf_counter() - began
        # Of equal logits the first one counts.
        order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
        first += int((order[:, 0] == y).sum())
        five += int((order == y[:, None]).any(axis=1).sum())
    return first / len(labels), five / len(labels), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, help="the float model, then quantized ones")
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--data", type=Path, help="an .npz or .safetensors file")
    data.add_argument("--images", type=Path, help="a folder of images")
    parser.add_argument("--inputs", default="test", help="the array of inputs (default: test)")
    parser.add_argument("--targets", default="labels", help="the array of labels (default: labels)")
    parser.add_argument("--labels", type=Path, help="the classes' folders in order, one a line")
    parser.add_argument("--size", type=int, default=224, help="side of the images (default: 224)")
    parser.add_argument("--batch", type=int, default=32, help="items at a time (default: 32)")
    parser.add_argument("--threads", type=int, default=0, help="threads of ONNX Runtime (default: all)")
    parser.add_argument("--provider", default="CPUExecutionProvider", help="ONNX Runtime's execution provider")
    args = parser.parse_args()
    if args.data:
        inputs, labels = arrays(args.data, [args.inputs, args.targets])
    else:
        inputs = Images(args.images, args.labels, args.size)
        labels = inputs.labels
    first, *others = args.models
    configs = {path: path.stem.removeprefix(f"{first.stem}_") for path in others}
    print("| DataType / Config | Model size (kB) | Top1 | Top5 | Seconds |\n| --- | ---: | ---: | ---: | ---: |")
    for path in [first, *sorted(others, key=lambda path: row(configs[path]))]:
        top1, top5, seconds = scores(path, inputs, labels, args.batch, args.provider, args.threads)
        config = configs.get(path, "Float")
        print(f"| {config} | {size(path) / 1e3:.1f} | {top1:.3%} | {top5:.3%} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
