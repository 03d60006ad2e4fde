"""Compares the logits of ONNX Runtime with those of a network that burn-mx trained in a format, and with a bound for sums in float32.

    pip install torch onnx onnxruntime numpy safetensors
    python benches/engines/cnn.py MODEL.onnx LOGITS.safetensors --data examples/onnx/digits_cnn.safetensors --format MXFP4E2M1

MODEL.onnx is the file of `quantize_onnx`, LOGITS.safetensors the file of `burn-mx-onnx-example train`. `cnn.sh` runs all steps. Prints a row of the
table in docs/src/qat.md. The exit code is 1 if a difference is above its bound, a digit with a margin above the bound has another class, or the losses
differ by more than 1e-4.

The bound is the one of language_model.py: the network is computed once more in float64, by formulas of this file, from the values to which ONNX
Runtime decodes the packed weights, and a logit moves by at most the sum over all operations v of |d logit / d v| r_v. A batch norm may be
multiplied into its convolution.

Not only the rounding of inputs is a step. The derivative of a ReLU and the choice of a pool change at a point, too. So the bound holds for digits
without a number near such a point: a change by 4 times the difference (root mean square) between float32 and float64 crosses none.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors.numpy import load_file
from torch.nn import functional

from language_model import U, Rounded, losses

# Of a format's elements: the largest exponent, mantissa bits, the least exponent and the largest number. INT8 has one step.
ELEMENTS = {
    "MXFP8E5M2": (15, 2, -14, 57344.0),
    "MXFP8E4M3": (8, 3, -6, 448.0),
    "MXFP6E3M2": (4, 2, -2, 28.0),
    "MXFP6E2M3": (2, 3, 0, 7.5),
    "MXFP4E2M1": (2, 1, 0, 6.0),
    "MXINT8": (0, 6, 0, 127 / 64),
}
BLOCK = 32


def exponents(x):
    """floor(log2) of numbers above 0."""
    return torch.frexp(x).exponent - 1


def two_to(exponent):
    return torch.ldexp(torch.ones((), dtype=torch.float64), exponent)


def quantizer(name):
    """OCP MX along the second axis, section 6.3: x of any axes, in float64."""
    emax, mantissa_bits, emin, largest = ELEMENTS[name]

    def quantized(x):
        values = x.double()
        length = values.shape[1]
        padded = functional.pad(values.movedim(1, -1), (0, -length % BLOCK)).unflatten(-1, (-1, BLOCK))
        amax = padded.abs().amax(-1, keepdim=True)
        scale = two_to(torch.where(amax > 0, exponents(amax) - emax, -127).clamp(min=-127))
        scaled = padded / scale
        step = two_to(exponents(scaled.abs()).clamp(min=emin) - mantissa_bits)
        # `round` takes ties to even.
        rounded = ((scaled / step).round() * step).clamp(-largest, largest) * scale
        return rounded.flatten(-2)[..., :length].movedim(-1, 1).to(x.dtype)

    return quantized


class Network:
    """The nodes of a quantized file, computed in the type of their inputs."""

    def __init__(self, file, quantized):
        self.quantized = quantized
        model = onnx.load(file)
        self.graph = model.graph
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.layers = [node for node in self.graph.node if node.op_type in ("Conv", "Gemm")]
        wanted = [node.input[1] for node in self.layers if node.input[1] not in self.constants]
        decoder = onnx.ModelProto()
        decoder.CopyFrom(model)
        decoder.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in wanted)
        session = onnxruntime.InferenceSession(decoder.SerializeToString())
        self.input = session.get_inputs()[0].name
        nothing = np.zeros((1, 1, 8, 8), np.float32)
        self.weights = dict(zip(wanted, session.run(wanted, {self.input: nothing})))

    def constant(self, name, dtype):
        value = self.weights.get(name)
        if value is None:
            value = onnx.numpy_helper.to_array(self.constants[name])
        return torch.from_numpy(value.copy()).to(dtype)

    def logits(self, x, rounded, steps):
        """Appends the numbers before a step to `steps`, each with its step."""
        makers = {name: node for node in self.graph.node for name in node.output}
        values = {self.input: x}

        def value(name):
            if name not in values:
                constant = name in self.constants or name in self.weights
                values[name] = self.constant(name, x.dtype) if constant else self.node(makers[name], value, rounded, steps)
            return values[name]

        return value(self.graph.output[0].name)

    def node(self, node, value, rounded, steps):
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        x = value(node.input[0])
        if node.domain == "burn_mx":
            # Its other inputs are shapes and constants.
            steps.append(("quantize", x.detach()))
            return self.quantized(x.detach())
        others = [value(name) for name in node.input[1:] if name != ""]
        match node.op_type:
            case "Conv":
                return convolution(x, *others, attributes=attributes, rounded=rounded)
            case "Gemm":
                assert attributes.get("transB", 0) == 1 and attributes.get("transA", 0) == 0, attributes
                w, bias = others
                y = rounded.product(x, w.T)
                return rounded.relative(y + bias, 1)
            case "BatchNormalization":
                return batch_norm(x, *others, epsilon=attributes["epsilon"], rounded=rounded)
            case "Add":
                return rounded.relative(x + others[0], 1)
            case "Relu":
                steps.append(("relu", x.detach()))
                return x.relu()
            case "MaxPool":
                assert attributes["kernel_shape"] == attributes["strides"], attributes
                steps.append(("pool", x.detach()))
                return functional.max_pool2d(x, attributes["kernel_shape"])
            case "GlobalAveragePool":
                count = x.shape[2] * x.shape[3]
                return rounded.of(x.mean((2, 3), keepdim=True), (count + 2) * U * x.abs().mean((2, 3), keepdim=True))
            case "Flatten":
                return x.flatten(1)
            case "Identity":
                return x
            case other:
                raise NotImplementedError(f"the operator {other} of {node.name}")


def convolution(x, w, bias=None, *, attributes, rounded):
    pads = attributes.get("pads", [0] * 4)
    assert pads[:2] == pads[2:] and attributes.get("group", 1) == 1, attributes
    how = {"stride": attributes.get("strides", [1, 1]), "padding": pads[:2]}
    y = functional.conv2d(x, w, bias, **how)
    if not rounded.traces:
        return y
    # A batch norm's factor in the weight rounds once more.
    size = functional.conv2d(x.abs(), w.abs(), None if bias is None else bias.abs(), **how)
    return rounded.of(y, (w[0].numel() + 8) * U * size.detach())


def batch_norm(x, gamma, beta, mean, variance, *, epsilon, rounded):
    factor, mean, beta = (y[:, None, None] for y in (gamma / (variance + epsilon).sqrt(), mean, beta))
    y = (x - mean) * factor + beta
    return rounded.of(y, 8 * U * ((x.abs() + mean.abs()) * factor.abs() + beta.abs()))


def near_steps(exact, single, quantized):
    """For each digit whether a number is near a point where an operation changes."""
    near = torch.zeros(exact[0][1].shape[0], dtype=torch.bool)
    for (kind, x), (_, y) in zip(exact, single):
        difference = x - y.double()
        axes = tuple(range(1, x.dim()))
        error = difference.square().mean(axes, keepdim=True).sqrt()
        # Zeros of a ReLU are zeros in any computation, as are sums of few bits.
        is_certain = (error == 0) | ((x == 0) & (y == 0))
        margin = torch.where(is_certain, 0.0, 4 * error + 4 * U * x.abs())
        match kind:
            case "quantize":
                here = quantized(x)
                # Larger and smaller blocks, and both sides of each element.
                for move in (margin, -margin, margin * x.sign(), -margin * x.sign()):
                    near |= (quantized(x + move) != here).flatten(1).any(1)
            case "relu":
                near |= (x.abs() < margin).flatten(1).any(1)
            case "pool":
                windows = [y.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2) for y in (x, margin)]
                first, place = windows[0].max(-1, keepdim=True)
                here = windows[1].gather(-1, place)
                close = (first - windows[0] < here + windows[1]).scatter(-1, place, False)
                near |= close.flatten(1).any(1)
    return near


def bounds(logits, rounded):
    """The bound of each logit against another computation in float32."""
    result = torch.zeros_like(logits)
    for label in range(logits.shape[1]):
        # A digit's logit follows from its own numbers alone.
        gradients = torch.autograd.grad(logits[:, label].sum(), rounded.errors, retain_graph=True, allow_unused=True)
        for gradient, bound in zip(gradients, rounded.bounds):
            if gradient is not None:
                result[:, label] += (gradient.abs() * bound).flatten(1).sum(1)
    return (2 * result).detach().numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("logits", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="a safetensors file with images `test` and their `labels`")
    parser.add_argument("--format", required=True, help="the format's name, as in --config")
    parser.add_argument("--weights-only", action="store_true", help="the inputs of layers are float32")
    args = parser.parse_args()
    if not args.weights_only and args.format not in ELEMENTS:
        parser.error(f"--format {args.format}: allowed without --weights-only: {', '.join(ELEMENTS)}")
    data = load_file(args.data)
    images, labels = data["test"], data["labels"]
    ours = load_file(args.logits)["logits"].astype(np.float64)

    session = onnxruntime.InferenceSession(args.model)
    (theirs,) = session.run(None, {session.get_inputs()[0].name: images})
    theirs = theirs.astype(np.float64)

    quantized = quantizer(args.format) if not args.weights_only else None
    network = Network(args.model, quantized)
    x = torch.from_numpy(images)
    exact, single = [], []
    network.logits(x.double(), Rounded(False), exact)
    network.logits(x, Rounded(False), single)
    sure = (~near_steps(exact, single, quantized)).numpy()
    rounded = Rounded()
    logits = network.logits(x.double(), rounded, [])
    bound = bounds(logits, rounded)

    difference = np.abs(ours - theirs)
    share = (difference / bound)[sure]
    worst = np.unravel_index(share.argmax(), share.shape)
    agree = ours.argmax(1) == theirs.argmax(1)
    order = theirs.argsort(1)
    rows = np.arange(len(theirs))
    margin = theirs[rows, order[:, -1]] - theirs[rows, order[:, -2]]
    certain = sure & (margin > bound[rows, order[:, -1]] + bound[rows, order[:, -2]])
    both = [losses(result, labels) for result in (ours, theirs)]
    right = (theirs.argmax(1) == labels).mean()
    print(
        f"| ONNX Runtime {onnxruntime.__version__} | {args.format}{', weights' if args.weights_only else ''} | {difference.max():.1e} "
        f"| {difference[sure][worst]:.1e} of {bound[sure][worst]:.1e}, at {sure.sum()} | {agree.mean():.2%} of {len(agree)}; "
        f"{agree[certain].sum()} of {certain.sum()} | {both[0]:.5f} | {both[1]:.5f} | {right:.2%} |"
    )
    is_equal = share.max() <= 1 and agree[certain].all() and abs(both[0] - both[1]) <= 1e-4
    sys.exit(0 if is_equal and sure.any() else 1)


main()
