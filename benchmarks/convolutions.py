"""How diagnose, tune and cure grow with a network's convolutions, and memory and time with its pictures.

    python benchmarks/convolutions.py [--short]
    python benchmarks/convolutions.py --only diagnose      of one command
    python benchmarks/convolutions.py --against FOLDER     the same of another sgsdump too, one run by turns

Residual networks of 50, 100 and 200 convolutions (6, 12 and 24 with --short) of 16 channels on 32 x 32 positions, with
seeded weights, and 24 noisy pictures (4). Blocks add the less the more there are, so that like is compared with like:
the outputs of all three are good, and where a channel of the first convolution is LOUD those of all three are bad, for
which diagnose finds and runs what is to be raised. Of the memory one of 12 convolutions on 384 x 512 pictures (96 x
128), with 3 and 12 of them. Every plan that is tried runs the network from the changed convolution on, so the work of
trying each convolution alone grows with the square of their number: the ratio of a doubling would be 4. Each run is a
process of its own; its processor time counts, without that of a run on the smallest network, which is starting up.
``--against`` names the folder that holds the other package, such as a checkout of an earlier commit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from rows import Row, show

CHANNELS = 16
LOUD = 16
INI = """[INPUT_CONFIG]
inputs = x;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 0;
mean_green = 0;
mean_blue = 0;
std_value = 255;
[OUTPUT_CONFIG]
outputs = y;
dequantizations = TRUE;
"""
GIVEN = ["-m", "net.onnx", "-i", "pictures", "--input-config", "input_config.ini"]
COMMANDS = {
    "diagnose": ["diagnose", *GIVEN, "-o", "diagnosis"],
    "tune": ["tune", *GIVEN, "-o", "tuned", "--budget", "5h"],
    "cure": ["cure", *GIVEN, "-o", "cured.onnx"],
}
KINDS = (("sound", "diagnose"), ("faulty", "diagnose"), ("faulty", "tune"), ("sound", "cure"))
AIMS = {"diagnose": 2.5, "tune": 3.0, "cure": 2.2}


@dataclass(frozen=True)
class Cost:
    """Processor time in s, largest resident memory in MB."""

    processor: float
    memory: float


def residual(count: int, size: tuple[int, int], loud: bool = False) -> bytes:
    """A model of ``count`` convolutions; input ``x`` [1, 3, height, width], output ``y``; ``loud``: with a fault."""
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    nodes, weights = [], []

    def conv(source: str, channels: tuple[int, int], gain: float = 1.0, stride: int = 1, out: str = "") -> str:
        name = out or f"c{len(weights)}"
        spread = gain * np.sqrt(2 / (9 * channels[0]))
        shape = (channels[1], channels[0], 3, 3)
        for part, array in (("w", spread * generator.standard_normal(shape)), ("b", np.full(channels[1], 0.05))):
            weights.append(numpy_helper.from_array(array.astype(np.float32), f"{name}.{part}"))
        reads, sides = [source, f"{name}.w", f"{name}.b"], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node("Conv", reads, [name], name, strides=[stride, stride], **sides))
        return name

    def relu(source: str) -> str:
        nodes.append(helper.make_node("Relu", [source], [f"{source}.r"], f"{source}.r"))
        return f"{source}.r"

    last = relu(conv("x", (3, CHANNELS), stride=2))
    if loud:
        first = numpy_helper.to_array(weights[0]).copy()
        first[0] *= LOUD
        weights[0] = numpy_helper.from_array(first, weights[0].name)
    gain = 0.3 * np.sqrt(50 / count)
    for block in range((count - 2) // 2):
        inner = conv(relu(conv(last, (CHANNELS, CHANNELS))), (CHANNELS, CHANNELS), gain)
        nodes.append(helper.make_node("Add", [last, inner], [f"a{block}"], f"a{block}"))
        last = f"a{block}"
    conv(last, (CHANNELS, 4), out="y")
    ends = [("x", [1, 3, *size]), ("y", [1, 4, *(side // 2 for side in size)])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    graph = helper.make_graph(nodes, "residual", infos[:1], infos[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def lay_out(folder: Path, count: int, size: tuple[int, int], pictures: int, loud: bool = False) -> Path:
    from PIL import Image

    (folder / "pictures").mkdir(parents=True)
    (folder / "net.onnx").write_bytes(residual(count, size, loud))
    (folder / "input_config.ini").write_text(INI)
    generator = np.random.default_rng(1)
    for number in range(pictures):
        coarse = generator.integers(0, 256, (size[0] // 8, size[1] // 8, 3)).astype(np.uint8)
        Image.fromarray(coarse).resize((size[1], size[0])).save(folder / "pictures" / f"{number:02}.png")
    return folder


def cost_of(command: list[str], folder: Path, package: Path | None) -> Cost:
    """``package``: the folder of the sgsdump to run, this one's own where there is none."""
    own = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(package or own)}
    line = [sys.executable, "-m", "sgsdump", *command]
    process = subprocess.Popen(line, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"sgsdump {' '.join(command)} ended with status {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def growth(folder: Path, short: bool, against: Path | None, only: str) -> Iterator[Row]:
    sizes, pictures = ((6, 12, 24), 4) if short else ((50, 100, 200), 24)
    for kind, name in (each for each in KINDS if only in ("", each[1])):
        command = COMMANDS[name]
        costs: dict[Path | None, dict[int, float]] = {None: {}, **({against: {}} if against else {})}
        for count in (4, *sizes):
            net = folder / f"{kind}{count}"
            if not net.exists():
                lay_out(net, count, (64, 64), pictures, kind == "faulty")
            for package, found in costs.items():
                found[count] = cost_of(command, net, package).processor
        own = {count: spent - costs[None][4] for count, spent in costs[None].items()}
        for smaller, larger in pairwise(sizes):
            yield Row(f"{name}, {kind}, {larger} convolutions as of {smaller}", own[larger], own[smaller], AIMS[name])
        if against:
            theirs = {count: spent - costs[against][4] for count, spent in costs[against].items()}
            for count in sizes:
                yield Row(f"{name}, {kind}, {count} convolutions, as of the other", own[count], theirs[count], 1.0)


def memory(folder: Path, short: bool) -> Iterator[Row]:
    size = (96, 128) if short else (384, 512)
    few, many = (lay_out(folder / f"{count} pictures", 12, size, count) for count in (3, 12))
    sizes = [cost_of(COMMANDS["diagnose"], net, None).memory for net in (many, few)]
    yield Row("diagnose, memory of 12 pictures as of 3", *sizes, 1.1, "MB")
    longer, shorter = (cost_of(COMMANDS["cure"], net, None) for net in (many, few))
    yield Row("cure, memory of 12 pictures as of 3", longer.memory, shorter.memory, 1.3, "MB")
    yield Row("cure, 12 pictures as of 3", longer.processor, shorter.processor, 4.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="small networks, few pictures: shows that it works")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another sgsdump to compare with")
    parser.add_argument("--only", choices=COMMANDS, default="", help="the growth of one command")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        against = args.against.resolve() if args.against else None
        found = growth(Path(folder), args.short, against, args.only)
        show(found if args.only else chain(found, memory(Path(folder), args.short)))


if __name__ == "__main__":
    main()
