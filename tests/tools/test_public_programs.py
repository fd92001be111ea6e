"""A short draw of tools/public_programs.py, of the libraries that are installed (the extra ``programs``)."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

TOOLS = Path(__file__).parents[2] / "tools"
# Small ones: of each library what is odd about it.
DRAWN = {
    "transformers": ["mixtral", "bert_trained", "t5_generates"],
    "diffusers": ["autoencoder"],
    "timm": ["timm_mobilenetv3"],
    "torch": ["torch_lstm_trained", "torch_encoder"],
}


@pytest.mark.parametrize("library", DRAWN)
def test_programs_are_captured_as_they_run(library):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed (pip install 'sgsdump[programs]')")
    words = [sys.executable, str(TOOLS / "public_programs.py"), "--jobs", "1", *DRAWN[library]]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(DRAWN[library])} programs: {len(DRAWN[library])} correct" in done.stdout


def test_what_is_not_installed_is_skipped_with_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(TOOLS))
    import public_programs
    from programs.table import Program

    monkeypatch.setitem(public_programs.PROGRAMS, "odd", Program("no_such_library", lambda: None))
    assert public_programs.main(["odd"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "skipped: the programs of no_such_library, which is not installed"
