"""Every integer of the SDK's fixed models of small networks, chained from the picture: ``tools/sdk_probe/score.py``."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/sdk_probe/score.py"
GOLDEN = Path(__file__).resolve().parents[1] / "golden/sigmastar/types"

# What is not equal, and why.
ANOTHER_FUNCTION = "the SDK's converter makes another function of it; ours keeps to the model"
NO_LAYER = "a Caffe layer that this project does not read"
UNKNOWN = "no rule found"
EXCEPTIONS = {
    **dict.fromkeys(("cf_axpy", "cf_crelu", "cf_reorg", "cf_threshold"), NO_LAYER),
    **dict.fromkeys(("cf_eltcoeff2", "ox_rmax_hw", "ox_rsum_hw", "ox_d2s", "ox_d2s_crd"), ANOTHER_FUNCTION),
    **dict.fromkeys(("ox_slice", "ox_slice_step", "ox_softmax_w", "ox_softmax_conv", "ox_lsoftmax"), ANOTHER_FUNCTION),
    **dict.fromkeys(("ox_exp_out", "zp_resize"), UNKNOWN),
    "ox_yuv": "YUV input",
    "w_seg_ac": UNKNOWN,  # bilinear, corners aligned: one step
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
    assert outcome.equal and len(outcome.tensors) >= 2, str(outcome)


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
