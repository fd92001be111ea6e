"""Programs that use onnxruntime, the nets they load, and their capture and replay."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnx
from hooked_programs import environment
from onnx import helper
from small_nets import conv, model, weights

from sgsdump.capture.programs.control import DumpControl, dump_control
from sgsdump.capture.programs.program import Captured, run_program
from sgsdump.capture.programs.replay import Replayed, replay

SMALL = dump_control(min_free=0)
# Optimisation off, so that the program's own outputs are those of the replay, bit for bit.
HEAD = """
import sys
import numpy as np
import onnxruntime as ort

plain = ort.SessionOptions()
plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
plain.intra_op_num_threads = 1
picture = np.random.default_rng(7).standard_normal((1, 3, 8, 8), np.float32)


def load(model, options=plain):
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

"""
PICTURE = np.random.default_rng(7).standard_normal((1, 3, 8, 8), np.float32)


def net(path: Path, seed: int = 0, external: bool = False) -> Path:
    """conv1, relu1, conv2 of a picture of 3 channels, any height and width."""
    nodes = [conv("conv1", "x", pads=[1] * 4), helper.make_node("Relu", ["conv1"], ["relu1"], name="relu1")]
    constants = weights("conv1", (4, 3, 3, 3), seed) | weights("conv2", (2, 4, 1, 1), seed + 1)
    proto = model([*nodes, conv("conv2", "relu1")], constants, {"x": (1, 3, None, None)}, ["conv2"]).proto
    if external:
        onnx.save(proto, path, save_as_external_data=True, location=f"{path.stem}.weights", size_threshold=0)
    else:
        onnx.save(proto, path)
    return path


def matrix_net(path: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["mm"], name="mm"),
        helper.make_node("Tanh", ["mm"], ["t"], name="tanh"),
    ]
    onnx.save(model(nodes, {"w": rng.standard_normal((5, 3), np.float32)}, {"a": (2, 5)}, ["t"]).proto, path)
    return path


def all_tensors(path: Path, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The oracle: one onnxruntime session in which every node output is an output, without optimisation."""
    import onnxruntime as ort

    proto = onnx.load(path)
    names = [name for node in proto.graph.node for name in node.output]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, feed)))


def written(folder: Path, text: str, head: str = HEAD) -> Path:
    path = folder / "infer.py"
    path.write_text(head + text)
    return path


def capture(folder: Path, text: str, *words: object, control: DumpControl = SMALL, head: str = HEAD) -> Captured:
    """Run a program in a folder other than the dump's, which is ``folder/out``."""
    own, here = dict(os.environ), Path.cwd()
    out = folder / "out"
    out.mkdir()
    program = written(folder, text, head)
    try:
        os.environ.clear()
        os.environ.update(environment())
        os.chdir(folder)
        return run_program([sys.executable, str(program), *map(str, words)], control, out)
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(own)


def dumped(
    folder: Path, text: str, *words: object, control: DumpControl = SMALL, format: str = "sigmastar_bin"
) -> tuple[Path, Replayed]:
    """Run a program and replay what it ran: the tree, and what the replay tells."""
    captured = capture(folder, text, *words, control=control)
    assert captured.status == 0 and not captured.notes, captured
    return folder / "out", replay(folder / "out", captured.processes, control, format)
