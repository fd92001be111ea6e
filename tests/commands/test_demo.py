"""The demo finds what was planted."""

import re

import pytest

from sgsdump.cli import main


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("demo") / "sgsdump_demo"
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main(["demo", "-o", str(folder)]) == 0
    return folder, text.getvalue()


def test_it_names_the_planted_convolutions_as_where_the_error_jumps(printed):
    _, text = printed
    planted = re.search(r"Made sick on purpose: (.*)", text)[1].split(", ")
    section = text[text.index("RMSE rises most at") : text.index("Not compared")]
    named = re.findall(r"^  \d+\.(block\d/\w+)", section, re.M)
    assert set(named[:2]) == set(planted)


def test_it_prints_the_accuracy_of_float_and_fixed(printed):
    _, text = printed
    accuracy = {kind.strip(): float(value) for kind, value in re.findall(r"^  (.*?)  +([01]\.\d\d)$", text, re.M)}
    assert accuracy["float"] >= 0.98
    assert accuracy["fixed, INT8"] <= 0.6
    assert accuracy["fixed, INT16 (ALL_INT16)"] == accuracy["fixed, tuned by repair"] == accuracy["float"]


def test_repair_raises_the_planted_convolutions_and_no_other(printed):
    folder, _ = printed
    ini = (folder / "repaired" / "input_config.ini").read_text()
    assert re.search(r"tensor_arrays *= *'?block2/dw/relu,block4/dw/relu'?;?\s", ini)


def test_it_leaves_everything_to_type_the_commands_again(printed):
    folder, text = printed
    assert (folder / "Histograms" / "overview.png").is_file()
    for name in ("digits.onnx", "fixed.onnx", "float.bin", "fixed.bin", "input_config.ini", "digit.png"):
        assert (folder / name).is_file(), name
    assert text.count("$ sgsdump ") == 6


def test_an_older_demo_is_moved_aside(printed, capsys):
    folder, _ = printed
    assert main(["demo", "-o", str(folder)]) == 0
    assert "moved the older" in capsys.readouterr().out
