"""The vendor's probe networks: small Caffe nets, the ranges its calibrator found, the integers its simulator dumped."""

from __future__ import annotations

import lzma
import re
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import integer_reference as rule
import numpy as np
from integer_reference import Scale

from sgsdump.dumps.dump import Dump
from sgsdump.dumps.io import open_dump
from sgsdump.fixedpoint.quantisation.calibration_log import read_log
from sgsdump.fixedpoint.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.quant_file import import_params, read_quant_file
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.models.graph import Graph
from sgsdump.models.model import Model
from sgsdump.sidecars import input_config
from sgsdump.sidecars.input_config import InputConfig

PROBES = (
    *("a_first", "b_k1", "b_k3", "c_dw", "c_dw_L5", "e_add", "e_add_A16", "f_cat", "g_pool", "h_fc", "i_sig", "j_mul"),
    *("l_prelu", "m_dil", "n_soft", "o_bn", "p_deconv", "p_up", "q_slice", "t_leaky", "t_mul", "t_sig", "t_soft2"),
)
NUMBERED = re.compile(r"#\d+$")

_UNPACKED = tempfile.TemporaryDirectory()  # gone when the tests end


@dataclass(frozen=True, eq=False)
class Probe:
    folder: Path

    @cached_property
    def config(self) -> InputConfig:
        return input_config.read(self.folder / "input_config.ini")

    @cached_property
    def model(self) -> Model:
        return open_float_model(self.folder / "net.prototxt", self.folder / "net.caffemodel", self.config)

    @cached_property
    def graph(self) -> Graph:
        return Graph(deployed(self.model))

    @cached_property
    def fixed(self) -> FixedModel:
        """Ours, of the vendor's ranges."""
        path, above_l1 = self.folder / "tensor_min_max.txt", self.folder.name.endswith("_L5")
        return fixed_of_log(self.model, path, self.config, above_l1)

    @cached_property
    def dump(self) -> Dump:
        """The vendor's stored integers."""
        path = self.folder / "fixed.bin"
        if path.exists():
            return open_dump(path)
        file = Path(_UNPACKED.name, f"{self.folder.name}.bin")
        file.write_bytes(lzma.decompress(Path(f"{path}.xz").read_bytes()))
        return open_dump(file)

    @cached_property
    def picture(self) -> dict[str, np.ndarray]:
        raw = np.round(np.load(self.folder / "input.npy"))
        return {"data": np.ascontiguousarray(raw.transpose(2, 0, 1)[None], np.float32)}

    @cached_property
    def vendor(self) -> dict[str, np.ndarray]:
        """Every variable tensor, and every group's rows of bias and multiplier, flat as they are dumped."""
        return {r.name: r.tensor.stored() for r in self.dump.records}

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """tensor_min_max.txt; a name that the converter numbered (f1#22) stands there without the number as well."""
        found = _ends(self.folder / "tensor_min_max.txt")
        for name, (low, high) in _ends(self.folder / "softmax_lut_range.txt").items():
            # A softmax's input is wide enough for the differences from the maximum, and for -10.
            numbered = [each for each in found if NUMBERED.sub("", each) == name]
            found |= {each: (min(found[each][0], low, -10.0), max(found[each][1], high)) for each in numbered}
        return {**{NUMBERED.sub("", name): ends for name, ends in found.items()}, **found}

    @cached_property
    def channels(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """tensor_chn.txt."""
        lines = (self.folder / "tensor_chn.txt").read_text().splitlines()
        found = {}
        for head, ends in zip(lines[::2], lines[1::2], strict=True):
            name = head.removeprefix("Name:").rpartition(",")[0]
            low, high = ends.removeprefix("min_chn:").rstrip("; ").split("max_chn:")
            found[name] = found[NUMBERED.sub("", name)] = _numbers(low), _numbers(high)
        return found

    @cached_property
    def weight_ends(self) -> dict[str, np.ndarray]:
        """tensor_weight_calibration.txt: the largest magnitude of every output channel's weights."""
        path = self.folder / "tensor_weight_calibration.txt"
        text = path.read_text() if path.exists() else ""
        found = re.findall(r"Name:\[[^,\n]*,([^\n]*)\],.*?min:\[(.*?)\],\s*max:\[(.*?)\],", text, re.DOTALL)
        return {name: np.maximum(np.abs(_numbers(low)), np.abs(_numbers(high))) for name, low, high in found}

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """The vendor's scales: type and zero point as it dumped them, the step that of the range that gives it (it is
        known from a dequantised dump, but for its last bit)."""
        lines = [line.split("\t") for line in (self.folder / "scales.tsv").read_text().splitlines()[1:]]
        return {name: self._scale(name, float(step), int(zero), kind) for name, step, zero, kind in lines}

    def _scale(self, name: str, step: float, zero: int, kind: str) -> Scale:
        dtype = {"SGS_U8": "uint8", "SGS_S16": "int16"}[kind]
        own = [self.ranges[n] for n in (name, *self.ranges) if n in self.ranges]
        steps = [rule.scale_of(*ends, dtype).step for ends in own if ends[0] < ends[1]] + [1 / 32767, 1 / 32768]
        near = [other for other in steps if abs(other / step - 1) < 4e-7]
        assert near, f"no range gives the scale of {name}: {step}"
        return Scale(
            dtype, near[0] if abs(steps[0] / step - 1) < 4e-7 else min(near, key=lambda x: abs(x - step)), zero
        )


def fixed_of_log(model: Model, path: Path, config: InputConfig, above_l1: bool) -> FixedModel:
    """The fixed model of the ranges in a log folder of the SDK's calibrator."""
    params = read_quant_file(path)
    beside, side = read_log(path, model, weights=above_l1)
    given = import_params(model, [*params, *beside], config, True, str(path), not above_l1)
    return make_fixed(given.model, given.ranges, given.config, per_channel=above_l1, side=side)


def _ends(path: Path) -> dict[str, tuple[float, float]]:
    found = re.findall(r"Name:(.*), min: (.*), max: (.*);", path.read_text())
    return {name: (float(low), float(high)) for name, low, high in found}


def _numbers(text: str) -> np.ndarray:
    return np.array([float(word) for word in text.split(",") if word.strip()])
