"""Every integer of the SDK's fixed models of small networks, chained from the picture: ``tools/sdk_probe/score.py``."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/sdk_probe/score.py"
GOLDEN = Path(__file__).resolve().parents[1] / "golden/sigmastar/types"

# What is not equal, and why.
ANOTHER_FUNCTION = "the SDK's converter makes another function of it; ours keeps to the model"
EXCEPTIONS = {
    **dict.fromkeys(("cf_eltcoeff2", "ox_rmax_hw", "ox_rsum_hw", "ox_d2s", "ox_d2s_crd"), ANOTHER_FUNCTION),
    **dict.fromkeys(("ox_softmax_conv", "ox_lsoftmax"), ANOTHER_FUNCTION),
    "w_yolov5": "the SDK dumps a tensor in the model's order under a wrong shape",
}


def tool():
    spec = importlib.util.spec_from_file_location("sdk_probe_score", TOOL)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["sdk_probe_score"] = module
    spec.loader.exec_module(module)
    return module


SCORE = tool()


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


@pytest.mark.parametrize("name", names(GOLDEN))
def test_networks_made_for_the_rules_of_types_and_after_them(name):
    outcome = SCORE.score(GOLDEN / name)
    if name in EXCEPTIONS:
        assert not outcome.equal, "better than its exception says"
        return
    assert outcome.equal, str(outcome)


def test_a_product_that_the_sdk_leaves_out_has_the_range_of_its_factor(shared):
    outcome = SCORE.score(shared / "sigmastar/probes3/cf_eltcoeff2")
    assert not outcome.refused
    assert [tensor.name for tensor in outcome.tensors if not tensor.equal] == ["s", "d1"]


def test_a_softmax_that_is_read_as_something_else_is_told():
    notes = SCORE.score(GOLDEN / "sc2").notes
    assert [note.partition(",")[0] for note in notes] == ["operators that read Softmax s scale its values by 0.28"]
    assert not SCORE.score(GOLDEN / "w_caffe").notes  # an output, which nothing reads


def test_the_probes_of_types(shared):
    folder = shared / "sigmastar/probes3"
    outcomes = [outcome for each in sorted(folder.iterdir()) if each.is_dir() and (outcome := SCORE.score(each))]
    assert len(outcomes) == 165
    wrong = {outcome.name: str(outcome) for outcome in outcomes if outcome.equal == (outcome.name in EXCEPTIONS)}
    assert not wrong, "\n".join(wrong.values())


def test_a_difference_is_told(tmp_path, capsys, monkeypatch):
    import shutil

    folder = tmp_path / "max_b"
    shutil.copytree(GOLDEN / "max_b", folder)
    file = folder / "tensor_min_max.txt"
    file.write_text(file.read_text().replace("Name:mx, min: -0.778903", "Name:mx, min: -9.0"))
    monkeypatch.setattr("sys.argv", ["score.py", str(tmp_path)])
    assert SCORE.main() == 0
    out = capsys.readouterr().out
    assert "mx[MAXIMUM]" in out and "0 of 1 networks equal" in out
