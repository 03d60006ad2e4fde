"""Makes `digits_cnn.onnx`, a small network that PyTorch trained, and `digits_cnn.safetensors`, what ONNX Runtime computes of it.

With Python 3.11, from this folder:

    pip install torch==2.15.0 onnx==1.23.2 onnxruntime==1.32.0 safetensors==0.8.0 numpy==2.4.6
    python export.py

Batch norms stay in the file as nodes of their own. The digits of `data/digits.csv.gz` come in a fixed shuffled order: the first
1,437 are trained on, of which the first 64 are `calibration`; the last 360 are `test`, with their `labels` and `logits`.
"""

import gzip
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors.numpy import save_file
from torch import nn

TRAIN, CALIBRATION, EPOCHS, BATCH = 1437, 64, 30, 32


def stage(channels_in, channels_out):
    conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out))


class DigitsCnn(nn.Module):
    """A stem, a residual block, a stage at half the side, and a classifier on the means of its channels."""

    def __init__(self):
        super().__init__()
        self.stem = stage(1, 16)
        self.first, self.second = stage(16, 16), stage(16, 16)
        self.pool = nn.MaxPool2d(2)
        self.wide = stage(16, 32)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(x + self.second(torch.relu(self.first(x))))
        x = torch.relu(self.wide(self.pool(x)))
        return self.head(self.mean(x).flatten(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with gzip.open("../../data/digits.csv.gz") as file:
        rows = np.loadtxt(file, delimiter=",")
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    images = (rows[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = rows[:, -1].astype(np.int64)

    model = DigitsCnn()
    x, y = torch.from_numpy(images[:TRAIN]), torch.from_numpy(labels[:TRAIN])
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = torch.optim.lr_scheduler.CosineAnnealingLR(adam, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(TRAIN).split(BATCH):
            adam.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            adam.step()
        steps.step()

    torch.onnx.export(
        model.eval(),
        torch.zeros(1, 1, 8, 8),
        "digits_cnn.onnx",
        opset_version=17,
        dynamo=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        input_names=["digits"],
        output_names=["logits"],
        dynamic_axes={"digits": {0: "count"}, "logits": {0: "count"}},
    )
    onnx.checker.check_model(onnx.load("digits_cnn.onnx"), full_check=True)

    test, labels = images[TRAIN:], labels[TRAIN:]
    (logits,) = onnxruntime.InferenceSession("digits_cnn.onnx").run(None, {"digits": test})
    save_file(
        {"calibration": images[:CALIBRATION], "test": test, "labels": labels, "logits": logits},
        "digits_cnn.safetensors",
    )
    right = (logits.argmax(1) == labels).mean()
    size = Path("digits_cnn.onnx").stat().st_size
    print(f"{size} bytes, {right:.2%} of the test digits")


main()
