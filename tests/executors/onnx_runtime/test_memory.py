"""What onnxruntime takes for integers: what is alive at once in the order of the model, and nothing after it."""

import subprocess
import sys
from pathlib import Path

import pytest

# Two convolutions at 16 bits whose tensors are 8 MB in float64.
PROGRAM = """
import numpy as np
from small_nets import conv, model, node, weights
from sgsdump.executors.onnx_runtime import session
from sgsdump.executors.onnx_runtime.repeated_graph import StagedGraph, WholeGraph
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput

def memory(word):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(word))

constants = {**weights("a", (16, 3, 1, 1), 1), **weights("b", (16, 16, 3, 3), 2), **weights("c", (16, 16, 3, 3), 3)}
nodes = [
    conv("a", "data"), node("Relu", ["a"], "r"), conv("b", "r", pads=[1] * 4),
    node("Relu", ["b"], "rb"), conv("c", "rb", pads=[1] * 4),
]
net = simplify(model(nodes, constants, {"data": (1, 3, 256, 256)}, ["c"]))
picture = ModelInput("data", "RGB", "RGB", (0.0,) * 3, (255.0,) * 3)
config = InputConfig((picture,), (ModelOutput("c", True),), tensor_arrays=("r", "rb"))
raw = np.random.default_rng(0).integers(0, 256, (1, 3, 256, 256)).astype(np.float32)
ranges = measure_ranges(net, [("0", {"data": raw / 255})])
session.release_unused()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
"""


def printed(program: str) -> list[int]:
    tests = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", PROGRAM + program], capture_output=True, text=True, cwd=tests)
    assert run.returncode == 0, run.stderr
    return [int(number) for number in run.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_whole_graph_holds_what_is_alive_at_once_and_little_once_it_is_released() -> None:
    peak, after = printed("""
graph = WholeGraph(make_fixed(net, ranges, config).proto, 1)
before = memory("VmRSS")
for _ in range(2):
    graph.run({"data": raw}, ["c"])
peak = memory("VmHWM") - before
session.release_unused()
print(peak, memory("VmRSS") - before)
""")
    assert peak < 85, "by its default order it would be 116"
    assert after < 45


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_pool_of_the_process_gives_back_what_nobody_uses() -> None:
    held, left = printed("""
proto = make_fixed(net, ranges, config).proto
before = memory("VmRSS")
graph = StagedGraph(proto, [len(proto.graph.node) // 2], ["data"], ["c"])
live = {"data": graph.hold(raw)}
for stage, entry in enumerate(graph.entries()):
    live |= graph.run(stage, live, entry)
del live, entry, graph
held = memory("VmRSS") - before
session.release_unused()
print(held, memory("VmRSS") - before)
""")
    assert held > left + 30
