"""A drawn part of onnx's backend cases through the dumper; ``tools/backend_cases.py`` runs them all."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from backend_cases import compare, main


def test_a_drawn_part_holds_no_finding(capsys):
    assert main(["--sample", "12", "--seed", "1"]) == 0
    assert "12 cases" in capsys.readouterr().out


def test_resize_with_sizes_runs_in_segments(capsys):
    assert main(["--only", "resize_downsample_sizes"]) == 0
    assert " equal" in capsys.readouterr().out


def test_a_difference_of_one_bit_and_a_missing_tensor_are_findings():
    array = np.ones(3, np.float32)
    other = np.nextafter(array, 2).astype(np.float32)
    assert compare({"x": array}, {"x": array}, {}).kind == "equal"
    assert compare({"x": array}, {"x": other}, {}).kind == "finding"
    assert compare({"x": array}, {}, {}).kind == "finding"
