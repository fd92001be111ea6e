"""``sgsdump compare`` as it looks on a terminal: run behind a pseudo terminal of several widths."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sgsdump
from sgsdump.cli import main
from sgsdump.commands import terminal
from sgsdump.commands.compare import output
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.text import cells
from sgsdump.reports.window import Window
from sgsdump.tensors.tensor import Tensor

fcntl = pytest.importorskip("fcntl", reason="there are no pseudo terminals")
pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")
COLOUR = re.compile(r"\x1b\[\d+m")
NAMES = ("conv1", "名前/畳み込み" * 6, "n" * 260, "x\u202eb\x1b[31m\n", *(f"stage{i}/block/conv" for i in range(50)))


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """54 layers, the last 50 of which are of another type; the second one is far off, the third has a NaN."""
    folder = tmp_path_factory.mktemp("dumps")
    sides = {"sample": [], "benchmark": []}
    for index, name in enumerate(NAMES):
        values = np.arange(1, 9, dtype=np.float32)
        for side, records in sides.items():
            array = values * np.float32(1 if side == "benchmark" else 1 + 0.001 * index + (index == 1))
            if side == "sample" and index == 2:
                array[0] = np.nan
            other = np.float16 if side == "sample" and index > 3 else np.float32
            records.append(Record("out", 0, index, "Conv", Tensor.of(name, array.astype(other))))
    sides["benchmark"] += [Record("out", 0, 60 + i, "Add", Tensor.of(f"alone{i}", values)) for i in range(50)]
    for side, records in sides.items():
        sgsdump.save_dump(Dump(records), folder / f"{side}.npz", format="npz", on_loss="ignore")
    return folder


def on_terminal(folder, width, *options, command="compare", **environment):
    """What stands on the terminal afterwards, and the exit status."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(Path(sgsdump.__file__).parents[1])}
    words = [sys.executable, "-m", "sgsdump", command, "sample.npz", "benchmark.npz", *options]
    variables |= {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | environment
    process = subprocess.Popen(words, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    with open(ours, "rb", buffering=0) as screen:
        while True:
            try:
                part = screen.read(1 << 16)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            written += part
    return written.decode().replace("\r\n", "\n"), process.wait(60)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_window(dumps, width):
    text, status = on_terminal(dumps, width, "--max-rmse", "0.5")
    assert status == 1 and not re.search(r"[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f\u202e]", text)
    lines = COLOUR.sub("", text).splitlines()
    assert max(map(cells, lines)) <= width and "\x1b" not in "".join(lines)
    said = lines[: next(i for i, line in enumerate(lines) if line.split()[:1] == ["#"])]
    assert said[0].startswith("FAIL: ") and "NaN or Inf" in " ".join(" ".join(said).split())
    table = lines[len(said) : lines.index("")]
    head, rows = table[0], table[1 : 1 + len(NAMES)]
    assert head.split()[:2] == ["#", "layer"]
    assert [row.split()[0] for row in rows[:5]] == ["pass", "fail", "fail", "pass", "warn"]
    assert [row.split()[1] for row in rows] == [str(index) for index in range(len(NAMES))]
    assert {"RMSE", "COS", "MSE"} & {*head.split()} == {"RMSE", *(["COS", "MSE"] if width > 40 else [])}
    # One name of 260 characters pads nothing: the others' lines are as long as they need.
    assert cells(rows[-1].rstrip()) <= 40 if width == 40 else cells(rows[-1].split("Conv")[0]) < 70
    # What holds for 50 layers is said once.
    said = " ".join(" ".join(lines).split())
    assert said.count("sample float16") == said.count("no output of this name in the sample") == 1
    assert all(f"stage{i}/block/conv," in said and f"alone{i}," in said for i in range(49))


def test_colours_bars_and_no_color(dumps):
    text, status = on_terminal(dumps, 100)
    assert status == 0 and "\x1b[31mfail" in text and "\x1b[32mpass" in text and "█" in text
    plain, _ = on_terminal(dumps, 100, NO_COLOR="1")
    assert plain == COLOUR.sub("", text)


@pytest.mark.parametrize(
    ("environment", "colour"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_where_there_are_colours(environment, colour, monkeypatch):
    for name, value in {"NO_COLOR": "", "TERM": "xterm", "COLUMNS": "77", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    found = terminal.window()
    assert (found.width, found.colour) == (77, colour)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert (terminal.window().width, terminal.window().colour) == (None, False)


def test_an_encoding_without_bars_has_other_ones(dumps):
    text, _ = on_terminal(dumps, 100, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert text.isascii() and "####" in text and "\\u540d" in text
    assert max(map(len, COLOUR.sub("", text).splitlines())) <= 100


def test_what_is_listed(dumps, monkeypatch, capsys):
    monkeypatch.chdir(dumps)
    monkeypatch.setattr(output, "window", lambda: Window(80))

    def listed(words):
        main(["compare", "sample.npz", "benchmark.npz", *words.split()])
        lines = capsys.readouterr().out.splitlines()
        return [line.split()[1] for line in lines[1 : lines.index("")] if line[:4] in ("pass", "warn", "fail")]

    assert listed("--top 3") == ["2", "1", "53"]
    assert listed("--top 3 --sort depth") == ["1", "2", "53"]
    assert listed("--only-bad") == ["1", "2"] and listed("--sort worst")[:2] == ["2", "1"]
    assert listed("--only-bad --max-rmse 0.05 --min-cos -1") == ["1", "2", "51", "52", "53"]


def test_a_golden_comparison_is_such_a_table_too(dumps):
    text, status = on_terminal(dumps, 90, "benchmark.npz", "--top", "2", command="judge", NO_COLOR="1")
    assert status == 1
    first, *_ = said = text.splitlines()
    lines = said[next(number for number, line in enumerate(said) if line.split()[:1] == ["#"]) :]
    assert first.startswith("FAIL: ") and "missing: 50 tensors" in said
    assert lines[0].split() == ["#", "layer", "max_sw", "max_g", "mean_sw", "mean_g", "diff2"] and lines[1].startswith(
        "fail"
    )
    assert "2 of 54 compared layers are listed." in lines and max(map(cells, lines)) <= 90


def test_a_pipe_gets_the_table_with_whole_names_and_the_sdks_lines_on_request(dumps, monkeypatch, capsys):
    monkeypatch.chdir(dumps)
    words = ["compare", "sample.npz", "benchmark.npz"]
    assert main([*words, "--top", "2", "--format", "sdk"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2.nnn") and "OP_TYPE:Conv" in lines[0] and lines[1].startswith("1.名前")
    assert lines[2:4] == ["2 of 54 compared layers are listed.", ""]
    assert main(words) == 0
    said, *lines = capsys.readouterr().out.splitlines()
    assert said.startswith("DIFFERS: ")
    table = lines[next(number for number, line in enumerate(lines) if line.split()[:1] == ["#"]) :][: len(NAMES) + 1]
    assert "\x1b" not in "".join(table) and table[0].split() == ["#", "layer", "type", "RMSE", "COS", "MSE"]
    names = [name for name in NAMES if name.isascii() and name.isprintable()]
    assert len(names) > 50 and all(any(f" {name} " in line for line in table) for name in names)
