"""Constraints for pip out of pyproject.toml's own bounds: tools/lowest_versions.py."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from lowest_versions import PYPROJECT, constraints

pytest.importorskip("tomllib")


def test_each_dependency_has_its_lowest_version():
    found = constraints(PYPROJECT)
    assert "numpy==1.24" in found and not any(line.startswith("pytest") for line in found)
    assert {"numpy==1.24", "pytest==8", "safetensors==0.6.1"} <= set(constraints(PYPROJECT, ["test"]))


@pytest.mark.parametrize(
    "requirements, message",
    [
        ('"numpy"', "must give its lowest version"),
        ('"numpy<3,>=1"', "must give its lowest version"),
        ('"a>=1", "a>=2"', "a has two lowest versions, 1 and 2"),
    ],
)
def test_a_bound_that_is_none_is_refused(requirements, message, tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text(f'[project]\nname = "x"\ndependencies = [{requirements}]\n')
    with pytest.raises(ValueError, match=message):
        constraints(file)
