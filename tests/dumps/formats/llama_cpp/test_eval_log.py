"""Logs that llama-eval-callback of llama.cpp printed of a model of this project: float32, Q8_0, a changed weight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly

from sgsdump import Dump, compare, open_dump
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.errors import FormatError
from sgsdump.reports.comparison import REPORTS
from sgsdump.tensors.statistics import Statistics

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "vendors" / "llama_cpp"
SMALL = """\
common_debug_cb_eval:  x-0 = (f32)   GET_ROWS(token_embd.weight{2, 9, 1, 1}, inp_tokens{3, 1, 1, 1}}) = {2, 3, 1, 1}
    [
        [
            [     -0.1730,      -0.1430  ],
            [      0.2704,         -nan  ],
            [      inf,          2.0000  ],
        ],
    ]
    sum = -nan
common_debug_cb_eval:                   y = (f32)        ADD(x-0{8, 1, 1, 1}, x-0{8, 1, 1, 1}}) = {8, 1, 1, 1}
    [
        [
            [     -0.1730,      -0.1430,       0.1875,    ...,      -0.0819,       0.0225,      -0.2099  ],
        ],
    ]
    sum = -4.353276
"""
OLDER = """\
llm_load_tensors: offloaded 33/33 layers to GPU
ggml_debug:                 inp_embd =   GET_ROWS(token_embd.weight{2560, 51200, 1, 1}, inp_tokens{1, 1, 1, 1}}) = {3, 1, 1, 1}
                                     [
                                      [
                                       [ -0.0181,  -0.0181,   0.0453],
                                      ],
                                     ]
ggml_debug:                   norm-0 = (q8_0)       NORM(CUDA0#inp_embd#0{2560, 1, 1, 1}, }) = {2560, 1, 1, 1}
"""  # noqa: E501


class TestReadOnly(ReadOnly):
    format = "llama_eval_log"
    file_name = "run.log"
    data = SMALL.encode()

    def test_truncation_at_every_byte_is_told(self, tmp_path: Path) -> None:
        whole = open_dump(self.write(tmp_path))
        for length in range(len(self.data)):
            path = self.write(tmp_path, self.data[:length])
            try:
                dump = open_dump(path)
            except FormatError as error:
                assert str(path) in str(error) and "\n" not in str(error)
                continue
            assert dump.damage or len(dump.records) < len(whole.records), length


def opened(tmp_path: Path, text: str) -> Dump:
    (tmp_path / "run.log").write_text(text)
    return open_dump(tmp_path / "run.log")


def test_complete_and_partial_values(tmp_path: Path) -> None:
    dump = opened(tmp_path, SMALL)
    assert list(dump) == ["x-0", "y", "y/shown"]
    assert dump["x-0"].shape == (3, 2) and np.isnan(dump["x-0"].real()[1, 1])
    assert dump["y"].shape == (8,) and dump["y/shown"].real()[-1] == np.float32(-0.2099)
    assert dump["y"].statistics == Statistics(mean=-4.353276 / 8, count=8, digits=6)
    network = dump.network()
    assert network[0].module == "blk.0" and network[0].weights == {("in", 0): "token_embd.weight"}
    assert network[1].values["in", 0] == network[0].values["out", 0]


def test_an_older_log_and_a_quantised_tensor(tmp_path: Path) -> None:
    dump = opened(tmp_path, OLDER)
    assert dump["inp_embd"].real().tolist() == pytest.approx([-0.0181, -0.0181, 0.0453])
    assert dump["norm-0"].statistics == Statistics() and not dump.damage
    assert dump.network()[1].values["in", 0] == dump.network()[0].values["out", 0]


def test_equal_names_get_the_operator(tmp_path: Path) -> None:
    log = "ggml_debug: q = (f32) {}(a{{1, 1, 1, 1}}, }}) = {{1, 1, 1, 1}}\n [[[ 1.0 ]]]\n"
    dump = opened(tmp_path, "".join(log.format(op) for op in ("MUL_MAT", "ROPE", "ROPE", "MUL_MAT")))
    assert list(dump) == ["q", "q/ROPE", "q/ROPE.1", "q/MUL_MAT"]


def test_a_planted_weight_is_named_first() -> None:
    found = compare(GOLDEN / "weight.log", GOLDEN / "f32.log")
    lines = REPORTS["verdict"](found, Thresholds()).splitlines()
    assert lines[0].startswith("DIFFERS") and "ffn_up-0 (MUL_MAT)" in lines[1]
    sums = [
        float((GOLDEN / name).read_text().partition(" ffn_up-0 = ")[2].partition("sum = ")[2].partition("\n")[0])
        for name in ("weight.log", "f32.log")
    ]
    row = next(row for row in found.rows if row.name == "ffn_up-0")
    assert row.statistics["mean"] == pytest.approx(abs(sums[0] - sums[1]) / abs(sums[1]), rel=1e-3)


def test_a_quantised_model_against_the_float_model() -> None:
    found = compare(GOLDEN / "q8_0.log", GOLDEN / "f32.log")
    assert "Qcur-0" in REPORTS["verdict"](found, Thresholds()).splitlines()[1]
    shown = [
        np.array([[float(cell) for cell in line.strip("[ ],\n").split(",") if "..." not in cell] for line in rows])
        for rows in (_rows("q8_0.log", "Qcur-0"), _rows("f32.log", "Qcur-0"))
    ]
    row = next(row for row in found.rows if row.name == "Qcur-0/shown")
    assert row.mse == pytest.approx(((shown[0] - shown[1]) ** 2).mean(), rel=1e-4)
    same = compare(GOLDEN / "f32.log", GOLDEN / "f32.log")
    assert REPORTS["verdict"](same, Thresholds()).startswith("EQUAL")


def _rows(file: str, name: str) -> list[str]:
    text = (GOLDEN / file).read_text().partition(f" {name} = ")[2].partition("sum")[0]
    return [line for line in text.splitlines()[1:] if "," in line and any(c.isdecimal() for c in line)]


def test_a_log_that_is_cut_off_is_told(tmp_path: Path) -> None:
    text = (GOLDEN / "f32.log").read_text()
    assert any("cut off" in note for note in opened(tmp_path, text[: text.rindex("    sum")]).damage)
    assert not opened(tmp_path, text).damage
