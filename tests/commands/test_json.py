"""What every command writes as JSON: alone on standard output with ``--json -``, and as its format's schema says. Of
commands that take seconds their own tests check the same (``json_documents.checked``)."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from json_documents import SCHEMAS, checked, schema
from small_nets import residual_net

from sgsdump.cli import main
from sgsdump.commands import COMMANDS
from sgsdump.commands.parser import build_parser

FEEDS = """
import numpy as np

def load_data():
    for seed in range(2):
        yield {"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)}
"""
NET = "-m net.onnx --data-loader-script feeds.py"
WRITTEN = {
    f"tune --explain --ranges log/tensor_min_max.txt {NET}": "advice",
    "compare sim.npz float.npz": "comparison",
    "compare net.onnx net.onnx": "comparison",
    "compare log/tensor_min_max.txt log/tensor_min_max.txt": "ranges",
    "judge sim.npz float.npz float.npz": "golden comparison",
    "histogram float.npz log/tensor_min_max.txt": "histograms",
    "show float.npz": "dump",
    "show float.npz c1": "values",
    "show sim.npz r1 --against float.npz": "worst values",
    "show --operators net.onnx": "operators",
    "show fixed.onnx": "plan",
}
NO_RESULT = set("demo cfg completion dump simulate pipeline exec report convert split merge".split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network, its fixed model and ranges, and the dumps of both."""
    folder = tmp_path_factory.mktemp("json")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        onnx.save(residual_net().proto, "net.onnx")
        (folder / "feeds.py").write_text(FEEDS)
        (folder / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
        assert main(f"calibrate {NET} -o fixed.onnx --quant-level L2 --json calibration.json".split()) == 0
        assert main(f"dump {NET} -o float.bin".split()) == 0
        assert main("simulate -t Fixed -m fixed.onnx --data-loader-script feeds.py".split()) == 0
        assert main("convert float_0.bin float.npz".split()) == 0
        assert main("convert sigma_outtensor_dump_0.bin sim.npz".split()) == 0
    return folder


def test_what_calibrate_writes(folder):
    document = checked(folder / "calibration.json")
    assert document["runs"] == 2 and set(document["convolutions"]) == {"c1", "c2", "c3", "fc"}


@pytest.mark.parametrize("line", WRITTEN)
def test_the_json_alone_is_printed_and_as_its_schema_says(line, folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    assert main([*line.split(), "--json", "-"]) in (0, 1)
    document = checked(capfd.readouterr().out)
    assert document["format"] == f"sgsdump {WRITTEN[line]}"


def test_every_command_that_gives_a_result_takes_json():
    parsers = next(action for action in build_parser(COMMANDS)._actions if action.dest == "command").choices
    takes = {name for name, parser in parsers.items() if "--json" in parser._option_string_actions}
    assert takes == set(COMMANDS) - NO_RESULT


def test_every_schema_is_one_and_the_page_names_it():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema (the extra test) is not installed")
    page = (Path(__file__).parents[2] / "docs" / "formats" / "json.md").read_text(encoding="utf-8")
    names = [path.name.removesuffix(".json") for path in SCHEMAS.iterdir() if path.name.endswith(".json")]
    assert len(names) >= 16
    for name in names:
        own = schema(name)
        jsonschema.Draft202012Validator.check_schema(own)
        head = own["properties"]["format"]["const"], own["properties"]["version"]["const"]
        assert head[0] == f"sgsdump {name.replace('_', ' ')}"
        assert f"`{head[0]}`, {head[1]}" in page
        assert own["$id"] == f"urn:{head[0].replace(' ', ':', 1).replace(' ', '-')}:{head[1]}"


def test_the_schema_knows_every_kind_of_finding():
    from sgsdump.comparison.finding import KINDS

    assert schema("comparison")["$defs"]["finding"]["properties"]["kind"]["enum"] == list(KINDS)
    assert schema("golden comparison")["$defs"]["finding"] == schema("comparison")["$defs"]["finding"]


def test_no_field_is_called_twin():
    assert all('"twin"' not in json.dumps(schema(name)) for name in ("comparison", "golden comparison"))
