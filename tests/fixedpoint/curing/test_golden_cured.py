"""What the SDK made of cured networks of this project, integer for integer; with the quant file of a cure too."""

from __future__ import annotations

import importlib.util
import lzma
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from sgsdump.sidecars import quant_param

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/sigmastar/cured"
# Tensors that both put out, at least.
TENSORS = {"loud_cured_L2": 3, "dwbn_cured_L2": 4, "unet_cured_L2": 11, "ranged_L2": 4}


def scored(folder: Path):
    spec = importlib.util.spec_from_file_location("sdk_probe_score", ROOT / "tools/sdk_probe/score.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.score(folder)


def unpacked(name: str, folder: Path) -> Path:
    place = folder / name
    shutil.copytree(GOLDEN / name, place)
    packed = place / "tensor_weight_calibration.txt.xz"
    if packed.exists():
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
    return place


@pytest.mark.parametrize("name", ["loud_cured_L2", "dwbn_cured_L2", "unet_cured_L2"])
def test_the_sdk_makes_the_same_integers_of_a_cured_network(name: str, tmp_path: Path) -> None:
    outcome = scored(unpacked(name, tmp_path))
    assert len(outcome.tensors) >= TENSORS[name]
    assert all(tensor.equal for tensor in outcome.tensors), str(outcome)


def test_the_sdk_takes_the_quant_file_beside_a_cured_network(tmp_path: Path) -> None:
    """sim_calibrator.py --quant_file: the names within a BatchNormalization, and a scale for each channel of weights,
    which it would make one for the tensor otherwise."""
    folder = unpacked("ranged_L2", tmp_path)
    entries = {param.name: param for param in quant_param.read(folder / "ranged.quant.pkl")}
    assert np.asarray(entries["d.w"].range.min).size == 16 and "n3_MUL_output" in entries
    lines = (folder / "tensor_min_max.txt").read_text().splitlines()
    ranges = []
    for line in lines:
        name = line.removeprefix("Name:").split(", min:")[0]
        if name in entries and not name.endswith(".w"):
            line = f"Name:{name}, min: {entries[name].range.low:.9f}, max: {entries[name].range.high:.9f};"
        ranges.append(line)
    (folder / "tensor_min_max.txt").write_text("\n".join(ranges) + "\n")
    outcome = scored(folder)
    assert len(outcome.tensors) >= TENSORS["ranged_L2"] and all(tensor.equal for tensor in outcome.tensors), str(
        outcome
    )
