"""What a C library prints inside the block is lost; what anybody prints before or after it is not."""

import os
import signal
import subprocess
import sys

import pytest

from sgsdump.cli import exit_status

PROGRAM = """
import ctypes, os, sys
from sgsdump.files.process import STANDARD_ERROR, STANDARD_OUTPUT, no_native_messages

printf = ctypes.CDLL(None).printf
print("python before")
printf(b"C before\\n")
with no_native_messages(STANDARD_OUTPUT):
    printf(b"C inside\\n")
with no_native_messages():
    os.write(STANDARD_ERROR, b"error inside\\n")
printf(b"C after\\n")
print("python after")
os.write(STANDARD_ERROR, b"error after\\n")
"""


@pytest.mark.skipif(os.name != "posix", reason="names the C library as POSIX has it")
def test_only_what_is_printed_inside_is_lost() -> None:
    # into a pipe, where printf holds its text back until the end of the process, unless Python tells it not to
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=buffered, capture_output=True, text=True, check=True)
    assert sorted(run.stdout.splitlines()) == ["C after", "C before", "python after", "python before"]
    assert run.stderr.splitlines() == ["error after"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_an_import_turned_into_another_error_stops_all_the_same(
    number: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> int:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise ImportError("numpy's C extensions failed") from None
        return 0

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        assert exit_status("sgsdump", run) == status
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.count("\n") == 1
