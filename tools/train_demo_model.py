"""Train the demo model of `sgsdump/samples` and make two of its convolutions sick on purpose.

A small depthwise-separable net learns scikit-learn's 8x8 digits. Then, in two blocks, every output channel
i of the depthwise convolution is multiplied by 2**u[i] and the next pointwise convolution's weights on it are
divided by that. A Relu lies between them, so the float function stays the same, but one scale per tensor no
longer fits: in INT8 the two pointwise convolutions lose their quiet channels, in INT16 they are whole again.

    python tools/train_demo_model.py            train, write digits.onnx and digits.npz, print the figures
    python tools/train_demo_model.py --check    print the figures of the existing files

Needs torch, scikit-learn, onnx, onnxruntime and numpy; the package itself needs only the two files.
"""

import argparse
from collections.abc import Callable, Collection
from itertools import combinations
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from torch.nn import functional as F

SAMPLES = Path(__file__).resolve().parent.parent / "sgsdump" / "samples"
MODEL, DIGITS = SAMPLES / "digits.onnx", SAMPLES / "digits.npz"
SEED, EPOCHS, BATCH = 3, 50, 64
PLANTED = ("block2/pw", "block4/pw")
LOUD_CHANNELS, LOUD, QUIET = (2, 4), 4, -3  # that many input channels of each get u = LOUD, all others QUIET
CONVS = {"conv0": (1, 24, 3, 1)}  # name -> input channels, output channels, kernel, groups
for _block, _in, _out in ((1, 24, 32), (2, 32, 32), (3, 32, 32), (4, 32, 48)):
    CONVS |= {f"block{_block}/dw": (_in, _in, 3, _in), f"block{_block}/pw": (_in, _out, 1, 1)}
LAYERS = (*CONVS, "logits")
Tensors = dict[str, torch.Tensor]


def list_nodes() -> list[tuple[str, str, tuple[str, ...]]]:
    """Operator, output and inputs of every node; weights are `<output>_filter` and `<output>_bias`."""
    nodes, last = [], "image"
    for name in CONVS:
        nodes += [("Conv", name, (last,)), ("Relu", f"{name}/relu", (name,))]
        last = f"{name}/relu"
        if name == "block2/pw":
            nodes += [("Add", "block2/add", (last, "block1/pw/relu")), ("MaxPool", "pool", ("block2/add",))]
            last = "pool"
    return [
        *nodes,
        ("GlobalAveragePool", "gap", (last,)),
        ("Flatten", "flat", ("gap",)),
        ("Gemm", "logits", ("flat",)),
        ("Softmax", "prob", ("logits",)),
    ]


NODES = list_nodes()
FEEDS = {inputs[0]: name for op, name, inputs in NODES if op in ("Conv", "Gemm")}


def shown(name: str) -> str:
    """The tensor a layer leaves once its Relu is fused."""
    return f"{name}/relu" if name in CONVS else name


def run(image: torch.Tensor, weights: Tensors, after: Callable = lambda name, x: x) -> Tensors:
    """All tensors by name for [N,1,8,8]; each passes through `after(name, tensor)` before it is used."""
    plain = {
        "Relu": F.relu,
        "Add": torch.add,
        "MaxPool": lambda x: F.max_pool2d(x, 2),
        "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
        "Flatten": lambda x: x.flatten(1),
        "Softmax": lambda x: x.softmax(1),
    }
    tensors = {"image": after("image", image)}
    for op, name, inputs in NODES:
        x = [tensors[i] for i in inputs]
        w, b = weights.get(f"{name}_filter"), weights.get(f"{name}_bias")
        if op == "Conv":
            y = F.conv2d(*x, w, b, padding=CONVS[name][2] // 2, groups=CONVS[name][3])
        else:
            y = F.linear(*x, w, b) if op == "Gemm" else plain[op](*x)
        tensors[name] = after(name, y)
    return tensors


def as_input(pixels: np.ndarray) -> torch.Tensor:
    """uint8 [N,8,8] -> float32 [N,1,8,8], normalised with mean 127 and std_value 128."""
    return torch.from_numpy((pixels[:, None].astype(np.float32) - 127) / 128)


def load_pixels() -> list[np.ndarray]:
    """Training pixels uint8 [N,8,8], test pixels uint8 [100,8,8], and their labels int64 [N], [100]."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pixels, labels = (digits.images * 15).astype(np.uint8), digits.target.astype(np.int64)
    return train_test_split(pixels, labels, test_size=100, random_state=SEED, stratify=labels)


def train(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """Weights fitted to [N,1,8,8] and labels [N], with the BatchNorm after each convolution folded in."""
    convs = {c: torch.nn.Conv2d(i, o, k, groups=g, bias=False) for c, (i, o, k, g) in CONVS.items()}
    norms = {c: torch.nn.BatchNorm2d(conv.out_channels) for c, conv in convs.items()}
    last = torch.nn.Linear(convs["block4/pw"].out_channels, 10)
    weights = {f"{c}_filter": conv.weight for c, conv in convs.items()}
    weights |= {"logits_filter": last.weight, "logits_bias": last.bias}
    learned = [*weights.values(), *(p for norm in norms.values() for p in norm.parameters())]
    optimizer = torch.optim.AdamW(learned, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=EPOCHS * -(-len(x) // BATCH))
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            down, right = torch.randint(0, 3, (2,)).tolist()
            shifted = F.pad(x[batch], (1, 1, 1, 1), value=-127 / 128)[:, :, down : down + 8, right : right + 8]
            logits = run(shifted, weights, lambda name, t: norms[name](t) if name in norms else t)["logits"]
            optimizer.zero_grad()
            F.cross_entropy(logits, y[batch], label_smoothing=0.05).backward()
            optimizer.step()
            schedule.step()
    for c, norm in norms.items():
        gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        weights[f"{c}_filter"] = weights[f"{c}_filter"] * gain[:, None, None, None]
        weights[f"{c}_bias"] = norm.bias - norm.running_mean * gain
    return {name: w.detach() for name, w in weights.items()}


def make_sick(weights: Tensors, image: torch.Tensor) -> Tensors:
    """The same float function with spread channels in front of the planted convolutions; image [N,1,8,8].

    The loud channels are those with large activations for their weights, which spares the depthwise filters:
    it is the tensor between the two convolutions that no longer fits into 8 bits.
    """
    sick, healthy = dict(weights), run(image, weights)
    for pw, loud_channels in zip(PLANTED, LOUD_CHANNELS):
        dw = pw.replace("pw", "dw")
        gain = healthy[f"{dw}/relu"].amax((0, 2, 3)) / weights[f"{dw}_filter"].abs().amax((1, 2, 3))
        scale = torch.full_like(gain, 2.0**QUIET)
        scale[gain.topk(loud_channels).indices] = 2.0**LOUD
        sick[f"{dw}_filter"] = weights[f"{dw}_filter"] * scale[:, None, None, None]
        sick[f"{dw}_bias"] = weights[f"{dw}_bias"] * scale
        sick[f"{pw}_filter"] = weights[f"{pw}_filter"] / scale[:, None, None]
    return sick


def build_model(weights: Tensors) -> onnx.ModelProto:
    """ONNX model: image [1,1,8,8] -> prob [1,10], logits [1,10]. A node has the name of its output tensor."""
    attributes = {
        "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]},
        "Gemm": {"transB": 1},
        "Flatten": {"axis": 1},
        "Softmax": {"axis": 1},
    }
    nodes = []
    for op, name, inputs in NODES:
        extra = attributes.get(op, {})
        if op == "Conv":
            k, groups = CONVS[name][2:]
            extra = {"kernel_shape": [k, k], "strides": [1, 1], "pads": [k // 2] * 4, "group": groups}
        own = [f"{name}_filter", f"{name}_bias"] if name in LAYERS else []
        nodes.append(helper.make_node(op, [*inputs, *own], [name], name=name, **extra))
    shapes = {"image": (1, 1, 8, 8), "prob": (1, 10), "logits": (1, 10)}
    image, *outputs = (helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, v) for k, v in shapes.items())
    stored = [numpy_helper.from_array(w.numpy(), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "digits", [image], outputs, stored)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="train_demo_model"
    )
    helper.set_model_props(model, {"planted": ",".join(PLANTED)})
    onnx.checker.check_model(model, full_check=True)
    return model


def run_onnx(model: onnx.ModelProto, image: torch.Tensor) -> torch.Tensor:
    """Logits [N,10] of onnxruntime for [N,1,8,8]."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    logits = [session.run(["logits"], {"image": x[None].numpy()})[0] for x in image]
    return torch.from_numpy(np.concatenate(logits))


def fake_quant(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor, bits: int) -> torch.Tensor:
    """`x` as symmetric INT8 or INT16 that covers [low, high], or as UINT8 if `bits` is 0."""
    if bits:
        top = 2 ** (bits - 1) - 1
        scale = torch.maximum(-low, high).clamp_min(1e-12) / top
        return (x / scale).round().clamp(-top, top) * scale
    low = low.clamp(max=0)
    scale = (high.clamp(min=0) - low) / 255
    zero = (-low / scale).round()
    return (((x / scale).round() + zero).clamp(0, 255) - zero) * scale


def run_fixed(
    image: torch.Tensor, weights: Tensors, floats: Tensors, wide: Collection[str], per_channel: bool
) -> Tensors:
    """Fake-quantised tensors for [N,1,8,8], ranges from the calibration run `floats`.

    Layers take UINT8 inputs and INT8 weights, those named in `wide` INT16 for both; other tensors are INT16.
    """

    def after(name: str, x: torch.Tensor) -> torch.Tensor:
        if name in CONVS:
            return x
        narrow = name in FEEDS and FEEDS[name] not in wide
        return fake_quant(x, floats[name].min(), floats[name].max(), 0 if narrow else 16)

    fixed = dict(weights)
    for layer in LAYERS:
        w = weights[f"{layer}_filter"]
        top = w.abs().amax(tuple(range(1, w.ndim)), keepdim=True) if per_channel else w.abs().max()
        fixed[f"{layer}_filter"] = fake_quant(w, -top, top, 16 if layer in wide else 8)
    return run(image, fixed, after)


def list_errors(fixed: Tensors, floats: Tensors) -> dict[str, tuple[float, float]]:
    """Relative L1 error of every tensor that is quantised, and how much of it its own operator added."""
    error = {
        name: ((fixed[name] - x).abs().flatten(1).sum(1) / x.abs().flatten(1).sum(1)).mean().item()
        for name, x in floats.items()
        if name not in CONVS
    }
    inputs = {shown(name): ins for op, name, ins in NODES if op != "Relu"}
    return {name: (error[name], error[name] - max(error[i] for i in ins)) for name, ins in inputs.items()}


def print_figures(model: onnx.ModelProto, digits: dict[str, np.ndarray]) -> None:
    """Print accuracies and errors per layer; fail unless the planted convolutions are to blame."""
    weights = {w.name: torch.tensor(numpy_helper.to_array(w)) for w in model.graph.initializer}
    image, labels = as_input(digits["images"]), torch.tensor(digits["labels"])
    ranges, floats = run(as_input(digits["calibration"]), weights), run(image, weights)
    torch.testing.assert_close(run_onnx(model, image), floats["logits"], rtol=1e-4, atol=1e-3)

    def accuracy(wide: Collection[str], per_channel: bool) -> float:
        logits = run_fixed(image, weights, ranges, wide, per_channel)["logits"]
        return (logits.argmax(1) == labels).double().mean().item()

    healthy = (floats["logits"].argmax(1) == labels).double().mean().item()
    print(f"float accuracy {healthy:.2f}\n\n{'accuracy, weight scale per':40} tensor channel")
    cases = {
        "INT8": (),
        "INT16": LAYERS,
        **{f"INT8, {name} INT16": (name,) for name in PLANTED},
        f"INT8, {' and '.join(PLANTED)} INT16": PLANTED,
    }
    for title, wide in cases.items():
        print(f"{title:40} {accuracy(wide, False):6.2f} {accuracy(wide, True):7.2f}")
    others = [c for n in (1, 2) for c in combinations(LAYERS, n) if c != PLANTED]
    best = [max((accuracy(c, per_channel), c) for c in others) for per_channel in (False, True)]
    print(f"{'INT8, best other one or two INT16':40} {best[0][0]:6.2f} {best[1][0]:7.2f}")
    print(f"    namely {best[0][1]} and {best[1][1]}")
    assert accuracy(LAYERS, False) == healthy <= accuracy(PLANTED, True) + 0.01
    assert max(accuracy((), False), accuracy((), True)) <= 0.85 and max(best)[0] < healthy - 0.01

    cases = [((), False), ((), True), (PLANTED, False), (PLANTED, True)]
    tables = [list_errors(run_fixed(image, weights, ranges, *case), floats) for case in cases]
    print("\nrelative L1 error % (the operator's own share) all INT8, then with the planted ones at INT16")
    print(f"{'':16}" + "".join(f"{title:>16}" for title in ("per tensor", "per channel") * 2))
    for name in tables[0]:
        print(f"{name:16}" + "".join(f"{100 * t[name][0]:8.2f} ({100 * t[name][1]:5.2f})" for t in tables))
    for table in tables[:2]:
        own = {name: added for name, (_, added) in table.items()}
        planted = [own.pop(shown(name)) for name in PLANTED]
        print(f"own error: planted {min(planted):.3f} at least, all others {max(own.values()):.3f} at most")
        assert min(planted) > 2 * max(own.values())


def write_samples() -> None:
    """Train, make sick, check that the float function stayed the same, and write both files."""
    torch.manual_seed(SEED)
    pixels, test_pixels, labels, test_labels = load_pixels()
    weights = train(as_input(pixels), torch.from_numpy(labels))
    healthy, sick = build_model(weights), build_model(make_sick(weights, as_input(pixels[:32])))
    before, after = run_onnx(healthy, as_input(test_pixels)), run_onnx(sick, as_input(test_pixels))
    change = ((after - before).abs().max() / before.abs().max()).item()
    print(f"float logits changed by {change:.1e}")
    assert change <= 1e-4
    onnx.save(sick, MODEL)
    np.savez_compressed(DIGITS, images=test_pixels, labels=test_labels, calibration=pixels[:32])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="print the figures of the existing files")
    torch.set_num_threads(1)
    if not parser.parse_args().check:
        write_samples()
    with np.load(DIGITS, allow_pickle=False) as stored, torch.no_grad():
        print_figures(onnx.load(MODEL), dict(stored))
