"""A file that TVM 0.27 wrote of small tensors, and folders in the form of TVM's published debug executor."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly
from dumps.formats.read_only_folder import ReadOnlyFolder

from sgsdump import compare, open_dump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import FormatError
from sgsdump.reports.comparison import REPORTS

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "vendors" / "tvm" / "output_tensors.params"
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
NODES = [
    {"op": "param", "name": "data", "inputs": [], "attrs": {"T": "type: float32"}, "shape": [1, 4]},
    {"op": "param", "name": "p0", "inputs": [], "attrs": {"T": "type: float32"}, "shape": [4, 4]},
    {"op": "tvmgen_default_fused_nn_dense", "name": "dense", "inputs": ["data", "p0"], "attrs": {}, "shape": [1, 4]},
    {"op": "tvmgen_default_fused_nn_relu", "name": "relu", "inputs": ["dense"], "attrs": {}, "shape": [1, 4]},
    {"op": "tvmgen_default_fused_nn_relu", "name": "relu", "inputs": ["relu"], "attrs": {}, "shape": [1, 4]},
]


def params(tensors: Mapping[str, np.ndarray]) -> bytes:
    parts = [struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, len(tensors))]
    parts += [struct.pack("<Q", len(name.encode())) + name.encode() for name in tensors]
    parts.append(struct.pack("<Q", len(tensors)))
    for array in tensors.values():
        bits = 8 * array.dtype.itemsize
        head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, CODES[array.dtype.kind], bits, 1)
        sizes = struct.pack(f"<{array.ndim}q", *array.shape)
        parts.append(head + sizes + struct.pack("<q", array.nbytes) + array.tobytes())
    return b"".join(parts)


def results(weight: float = 0.0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    data, p0 = (generator.normal(size=shape).astype(np.float32) for shape in ((1, 4), (4, 4)))
    p0[2, 1] += weight
    dense = data @ p0.T
    values = [data, p0, dense, np.maximum(dense, 0), np.maximum(dense, 0)]
    names = [f"{node['name']}____topo-index:{i}____output-num:0" for i, node in enumerate(NODES)]
    return dict(zip(names, values))


def folder(path: Path, weight: float = 0.0) -> Path:
    inner = path / "_tvmdbg_device_CPU_0"
    inner.mkdir(parents=True)
    (inner / "output_tensors.params").write_bytes(params(results(weight)))
    (inner / "_tvmdbg_graph_dump.json").write_text(json.dumps({"nodes": NODES}, indent=4))
    return path


class TestReadOnlyFolder(ReadOnlyFolder):
    format = "tvm_debug"
    files: ClassVar = {
        "output_tensors.params": params(results()),
        "_tvmdbg_graph_dump.json": json.dumps({"nodes": NODES}).encode(),
    }


class TestReadOnly(ReadOnly):
    format = "tvm_params"
    file_name = "net.params"
    data = GOLDEN.read_bytes()


def test_the_file_of_tvm() -> None:
    dump = open_dump(GOLDEN)
    assert {name: (tensor.dtype.name, tensor.shape) for name, tensor in dump.items()} == {
        "data": ("float32", (1, 3, 2, 2)),
        "p0": ("float32", (4, 3)),
        "tvmgen_default_fused_nn_dense": ("int8", (2, 4)),
        "x": ("int64", (3,)),
        "b": ("bool", (2,)),
    }
    generator = np.random.default_rng(0)
    np.testing.assert_array_equal(dump["data"].stored(), generator.normal(size=(1, 3, 2, 2)).astype(np.float32))
    np.testing.assert_array_equal(dump["p0"].stored(), generator.normal(size=(4, 3)).astype(np.float32))
    assert dump["x"].stored().tolist() == [0, 1, 2] and dump["b"].stored().tolist() == [True, False]


def test_our_own_writer_writes_what_tvm_wrote() -> None:
    tensors = {
        f"{n}____topo-index:{i}____output-num:0": t.stored() for i, (n, t) in enumerate(open_dump(GOLDEN).items())
    }
    assert params(tensors) == GOLDEN.read_bytes()


def test_a_folder_has_operators_and_a_flow_of_data(tmp_path: Path) -> None:
    for path in (folder(tmp_path / "dump"), tmp_path / "dump/_tvmdbg_device_CPU_0"):
        dump = open_dump(path)
        assert [r.name for r in dump.records] == ["data", "p0", "dense", "relu#3", "relu#4"] and not dump.notes
        network = dump.network()
        assert network[2].kind == "tvmgen_default_fused_nn_dense"
        assert network[2].values["in", 1] == network[1].values["out", 0]
        assert network[4].values["in", 0] == network[3].values["out", 0]


def test_a_planted_weight_is_named_first_with_the_figures_of_numpy(tmp_path: Path) -> None:
    found = compare(folder(tmp_path / "bad", 2.0), folder(tmp_path / "good"))
    verdict = REPORTS["verdict"](found, Thresholds())
    assert verdict.startswith("DIFFERS") and "p0" in verdict.splitlines()[1]
    a, b = (results(weight)["dense____topo-index:2____output-num:0"].astype(float) for weight in (2.0, 0.0))
    row = next(row for row in found.rows if row.name == "dense")
    assert row.mse == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)
    assert REPORTS["verdict"](compare(tmp_path / "good", tmp_path / "good"), Thresholds()).startswith("EQUAL")


def test_a_graph_of_another_dump_is_noted(tmp_path: Path) -> None:
    path = folder(tmp_path / "dump") / "_tvmdbg_device_CPU_0"
    (path / "_tvmdbg_graph_dump.json").write_text('{"nodes": [{"op": "x", "name": "y"}]}')
    dump = open_dump(path)
    assert len(dump.records) == 5 and "other nodes" in dump.damage[0] and not dump.network()


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (struct.pack("<QQ", 0, 5), struct.pack("<QQ", 0, 2**40), "tensor count is"),
        (struct.pack("<Q", 36), struct.pack("<Q", 2**40), "length of a tensor name"),
        (struct.pack("<BBH", 2, 32, 1), struct.pack("<BBH", 2, 32, 4), "unknown element type"),
        (struct.pack("<qq", 4, 3), struct.pack("<qq", 4, -3), "impossible shape"),
        (struct.pack("<qq", 4, 3), struct.pack("<qq", 4, 2), "do not fit"),
        (struct.pack("<Q", 0xDD5E40F096B4A13F), struct.pack("<Q", 1), "does not begin"),
    ],
)
def test_damage_is_refused(old: bytes, new: bytes, match: str, tmp_path: Path) -> None:
    assert old in GOLDEN.read_bytes()
    (tmp_path / "x.params").write_bytes(GOLDEN.read_bytes().replace(old, new, 1))
    with pytest.raises(FormatError, match=match):
        open_dump(tmp_path / "x.params")
