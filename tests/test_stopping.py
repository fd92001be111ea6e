"""Ctrl-C and SIGTERM end a command with a word, a status of their own, and nothing half-written."""

import os
import signal
import warnings

import pytest

from sgsdump.cli import exit_status
from sgsdump.files.atomic_write import replacing

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of another system")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_status_and_leaves_no_partial(tmp_path, capsys, number, status):
    def run():
        with replacing(tmp_path / "result") as file:
            file.write(b"half")
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 1)
        return 0

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
    before = signal.getsignal(number)
    assert exit_status("sgsdump", run) == status
    assert signal.getsignal(number) == before and not list(tmp_path.iterdir())
    error = capsys.readouterr().err
    assert error.startswith("sgsdump: stopped") and error.count("\n") == 1


@pytest.mark.filterwarnings("always")
def test_warnings_are_one_line_and_those_for_developers_are_none(capsys):
    def run():
        warnings.warn("overflow encountered in cast", RuntimeWarning, stacklevel=1)
        warnings.warn("this is\nlost", UserWarning, stacklevel=1)
        return 0

    with warnings.catch_warnings():
        warnings.showwarning = warnings._showwarning_orig
        assert exit_status("sgsdump", run) == 0
    assert capsys.readouterr().err in ("sgsdump: warning: this is lost\n", "")
