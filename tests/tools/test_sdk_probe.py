"""tools/sdk_probe: the comparison with said.tsv; docs/which_sdk.md leaves no blank."""

import subprocess
import sys
from pathlib import Path

import onnx
from small_nets import conv, model, node, weights

ROOT = Path(__file__).parents[2]
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
"""


def test_a_refused_network_is_compared_with_what_was_said(tmp_path):
    net = model([conv("c", "data"), node("Elu", ["c"], "y")], weights("c", (4, 3, 3, 3)), {"data": (1, 3, 8, 8)}, ["y"])
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
        onnx.save(net.proto, tmp_path / name / "net.onnx")
        (tmp_path / name / "input_config.ini").write_text(INI)
    (tmp_path / "said.tsv").write_text("right\tconvert\tno Elu\nwrong\tok\t\n")
    script = [sys.executable, str(ROOT / "tools/sdk_probe/refused.py"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 1, done.stderr
    assert "wrong: the SDK says ok" in done.stdout and "1 of 2 as the SDK" in done.stdout


def test_which_sdk_leaves_no_blank():
    rows = [line for line in (ROOT / "docs/which_sdk.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    for row in rows:
        _, answer, source = (cell.strip() for cell in row.strip("|").split("|"))
        assert answer.startswith(("supported", "not supported", "accepted", "needs the vendor's binary")), row
        assert source in "CSDT", row
