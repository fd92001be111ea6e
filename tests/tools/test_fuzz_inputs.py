"""A short run of tools/fuzz_inputs.py: readers of inputs, commands given damaged files, commands given odd words."""

import json
import sys
import warnings
from pathlib import Path
from random import Random

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.append(str(TOOLS))
pytest.importorskip("resource")  # what fuzzing measures memory by

import fuzz_inputs  # noqa: E402
from fuzzing import arguments, commands, damage  # noqa: E402
from fuzzing.trial import Contradiction  # noqa: E402

from sgsdump.commands import COMMANDS  # noqa: E402

READERS = "picture array onnx onnx_external fixed_facts picture_list topology caffe".split()


@pytest.fixture(scope="module")
def seeds():
    return fuzz_inputs.all_seeds()


@pytest.mark.parametrize("name", READERS)
def test_damaged_inputs_are_read_or_refused(name, seeds, tmp_path):
    damage.try_numbers(seeds[name], 0, [0], tmp_path / "warm")
    result = damage.try_numbers(seeds[name], 0, range(1, 40), tmp_path / "files")
    assert result.findings == [] and 0 < result.opened < result.tried


def test_commands_given_damaged_files_and_odd_words_end_in_one_line(seeds, tmp_path):
    kinds = sorted(set(seeds) - set(READERS))
    for number, name in enumerate(kinds):
        count = 24 if name == "arguments" else 4
        result = damage.try_numbers(seeds[name], 0, range(count), tmp_path / str(number))
        assert (name, result.findings) == (name, [])


def test_every_command_has_a_line_to_make_odd():
    # Odd words behind exec would be programs to start.
    assert {line.split()[0] for line in arguments.LINES} == set(COMMANDS) - {"exec"}


SLOW = ("tune -", "tune --first ", "demo ")
REFUSED = ("report pictures ",)  # no diagnosis is there


@pytest.mark.parametrize("line", [line for line in arguments.LINES if not line.startswith(SLOW + REFUSED)])
def test_the_lines_work_as_they_are(line, tmp_path):
    assert commands.run(line.split(), commands.place(tmp_path / "0" / "x")).status in (0, 1)


def write(text):
    return lambda words: print(text, file=sys.stderr) or 0


def warn(words):
    warnings.warn("of Python's own", RuntimeWarning, stacklevel=1)
    return 0


def leave(words):
    Path(".out.bin.7.partial").touch()
    return 0


@pytest.mark.parametrize(
    "command",
    [
        warn,
        leave,
        write("tempfile.tif: Using code not yet in table."),
        write("sgsdump: error: of a status 0"),
        lambda w: 2,
    ],
)
def test_what_a_command_must_not_do_is_found(command, tmp_path, monkeypatch):
    monkeypatch.setattr("sgsdump.cli.main", command)
    with pytest.raises(Contradiction):
        commands.run([], commands.place(tmp_path / "0" / "x"))


def test_the_folder_is_whole_again_whatever_a_command_did(tmp_path, monkeypatch):
    place = commands.place(tmp_path / "0" / "x")
    monkeypatch.setattr("sgsdump.cli.main", lambda words: (Path("digits.onnx").write_bytes(b"") and 0) or 0)
    commands.run([], place)
    assert {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()} == commands.project()


def test_an_error_of_the_options_is_one_line(capsys):
    from sgsdump.cli import main

    with pytest.raises(SystemExit):
        main(["merge", "a", "b", "c", "--odd\nword\x1b[31m"])
    line = "sgsdump merge: error: unrecognized arguments: --odd\\nword\\x1b[31m; see sgsdump merge --help\n"
    assert capsys.readouterr().err == line


def test_an_odd_line_is_json_of_the_commands_words():
    words = json.dumps("show fixed.bin".split()).encode()
    made = {arguments.drawn(words, b"", Random(seed)) for seed in range(50)}
    assert len(made) > 30 and all(isinstance(json.loads(line), list) for line in made)
