"""Polygraphy's RunResults: its own file, what it holds in other forms, and damage."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from dumps.formats.read_only import ReadOnly

from sgsdump import compare, open_dump, save_dump
from sgsdump.dumps.formats.polygraphy import run_results
from sgsdump.errors import FileChanged, FormatError


def encoded(array: np.ndarray) -> str:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return base64.b64encode(file.getvalue()).decode()


def lazy(array: np.ndarray) -> dict[str, Any]:
    return {"values": {"array": encoded(array), "polygraphy_class": "ndarray"}, "polygraphy_class": "LazyArray"}


def results(*runners: list[dict[str, Any]]) -> str:
    """Each runner's iterations, each of these its outputs."""
    iterations = [[{"outputs": outputs, "runtime": 0.1, "runner_name": "r"} for outputs in each] for each in runners]
    lists = [[f"runner-{number}", each] for number, each in enumerate(iterations)]
    return json.dumps({"lst": lists, "polygraphy_class": "RunResults"})


def short(shape: str, values: bytes) -> dict[str, str]:
    """An array of one byte an element, whose header is not padded."""
    text = f"{{'descr':'|i1','fortran_order':False,'shape':{shape}}}".encode()
    file = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + values
    return {"array": base64.b64encode(file).decode()}


class TestReadOnly(ReadOnly):
    format = "polygraphy"
    file_name = "x.json"
    outputs = json.dumps({"a": short("(2,)", b"ab"), "b": short("()", b"c")})
    data = f'{{"lst":[["r",[{{"outputs":{outputs}}}]]]}}'.encode()


def test_its_own_file_holds_what_onnxruntime_gives(shared: Any) -> None:
    folder = shared / "polygraphy"
    session = onnxruntime.InferenceSession(folder / "net.onnx", providers=["CPUExecutionProvider"])
    dump = open_dump(folder / "results.json")
    assert list(dump) == ["r", "c", "i", "iteration1/r", "iteration1/c", "iteration1/i"] and not dump.notes
    for number, feed in enumerate(json.loads((folder / "inputs.json").read_text())):
        x = np.load(io.BytesIO(base64.b64decode(feed["x"]["array"])))
        for name, wanted in zip("rci", session.run(None, {"x": x})):
            tensor = dump[f"iteration{number}/{name}" if number else name]
            np.testing.assert_array_equal(tensor.stored(), wanted)
            assert tensor.dtype == wanted.dtype


def test_it_is_compared_with_other_dumps(shared: Any, tmp_path: Path) -> None:
    dump = open_dump(shared / "polygraphy" / "results.json")
    save_dump({"r": dump["r"].stored() + 1, "i": dump["i"].stored()}, tmp_path / "other.npz")
    found = compare(tmp_path / "other.npz", dump)
    assert {row.name: row.mse for row in found} == {"r": pytest.approx(1), "i": 0}


def test_runners_and_iterations_are_in_the_names(tmp_path: Path) -> None:
    arrays = [{"a": lazy(np.float32([number]))} for number in range(4)]
    (tmp_path / "x.json").write_text(results(arrays[:2], arrays[2:]))
    dump = open_dump(tmp_path / "x.json")
    assert {name: tensor.stored().tolist() for name, tensor in dump.items()} == {
        "a": [0],
        "iteration1/a": [1],
        "runner1/a": [2],
        "runner1/iteration1/a": [3],
    }


def test_names_that_look_like_arrays_and_large_arrays(tmp_path: Path) -> None:
    name, large = '"array": "k05V', np.arange(300_000, dtype=">f8").reshape(3, -1)
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    (tmp_path / "x.json").write_text(results([{name: lazy(large), "f": {"array": encoded(fortran)}}]))
    dump = open_dump(tmp_path / "x.json")
    np.testing.assert_array_equal(dump[name].stored(), large)
    np.testing.assert_array_equal(dump["f"].stored(), fortran)


def test_what_is_no_array_is_left_out(tmp_path: Path) -> None:
    tensor = {"values": {"tensor": "gAI=", "polygraphy_class": "Tensor"}}
    forged = {"values": {"array": 7, "polygraphy_class": "ndarray"}}
    (tmp_path / "x.json").write_text(results([{"t": tensor, "n": 3, "f": forged, "a": lazy(np.ones(2))}]))
    dump = open_dump(tmp_path / "x.json")
    assert list(dump) == ["a"] and len(dump.notes) == 3 and all("left out" in note for note in dump.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"lst": [', "not valid JSON"),
        ('{"lst": []}', "holds no array"),
        ('{"lst": [["r", 3]]}', "not a Polygraphy RunResults file"),
        ('{"lst": [["r", [{}]]]}', "an iteration has no outputs"),
        (results([{"a": {"array": "%%%%"}}]), "not base64"),
        (results([{"a": {"array": "AAAA"}}]), "not a complete .npy file"),
        (results([{"a": {"array": encoded(np.array([{}], object))}}]), "holds Python objects"),
        (
            results([{"a": {"array": encoded(np.ones(9))[:-8]}}]),
            "declares 72 bytes of values, but only 67 bytes follow",
        ),
        ('{"lst": [["r", [{"outputs": {"a": {"array": "k05V', "cut off inside an array"),
    ],
)
def test_damage_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FormatError, match=said) as caught:
        open_dump(tmp_path / "x.json")
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_only_arrays_may_be_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_results, "MOST_BYTES", 1000)
    path = tmp_path / "x.json"
    path.write_text(results([{"a": lazy(np.ones(1000))}]))
    assert open_dump(path)["a"].shape == (1000,)
    path.write_text(results([{"a" * 1000: lazy(np.ones(1))}]))
    with pytest.raises(FormatError, match="outside its arrays"):
        open_dump(path)


def test_a_file_that_was_written_again_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(results([{"a": lazy(np.ones(3))}]))
    tensor = open_dump(path)["a"]
    path.write_text(results([{"a": lazy(np.ones(30))}]))
    with pytest.raises(FileChanged):
        tensor.stored()


@pytest.mark.skipif(find_spec("polygraphy") is None, reason="polygraphy is not installed")
def test_what_polygraphy_itself_saves(shared: Any, tmp_path: Path) -> None:
    net, script = shared / "polygraphy" / "net.onnx", "from polygraphy.tools import main; main()"
    options = ["--onnxrt", "--onnx-outputs", "mark", "all", "--save-outputs", str(tmp_path / "x.json")]
    subprocess.run([sys.executable, "-c", script, "run", str(net), *options], check=True, capture_output=True)
    assert set(open_dump(tmp_path / "x.json")) == {"r", "c", "i"}
