"""The operator that first made NaN or Inf of finite inputs, in any tool's dump, by values and by statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from json_documents import checked

from sgsdump import Dump, save_dump
from sgsdump.cli import main
from sgsdump.dumps.dump import Operator, Record
from sgsdump.replay.finiteness import finiteness
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor

NAN, INF = np.nan, np.inf


def dump_of(*operators: tuple[Any, Any], network: dict[int, Operator] | None = None) -> Dump:
    """Operators 0, 1 …, each with an input and an output: values, or the statistics of one."""
    records = []
    for index, sides in enumerate(operators):
        for io, side in zip(("in", "out"), sides):
            name = f"{index}.{io}"
            if isinstance(side, Statistics):
                tensor = Tensor.of_statistics(Tensor.of(name, np.ones(3, np.float32)).info, side)
            else:
                tensor = Tensor.of(name, np.asarray(side))
            records.append(Record(io, 0, index, "op", tensor))  # type: ignore[arg-type]
    return Dump(records, network=lambda: network or {})


def found(dump: Dump) -> list[tuple[str, str]]:
    return [(made.output, made.what) for made in finiteness(dump).made]


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
def test_of_values(dtype: str) -> None:
    ones, odd, nan = (np.array([1, last], dtype) for last in (1, -INF, NAN))
    result = finiteness(dump_of((ones, ones), (ones, odd), (odd, nan), (ones, nan)))
    assert [(made.place.op_index, made.what) for made in result.made] == [(1, "Inf"), (3, "NaN")]
    assert (result.looked_at, result.unknown, result.came_in) == (4, 0, None)


@pytest.mark.parametrize(
    ("figures", "what"),
    [
        (Statistics(0.0, INF), "Inf"),
        (Statistics(-INF, 0.0), "Inf"),
        (Statistics(NAN, NAN), "NaN"),
        (Statistics(0.0, 1.0, l2norm=INF), ""),
        (Statistics(0.0, 1.0, nan=2), "NaN"),
        (Statistics(0.0, 1.0, positive_inf=1), "Inf"),
    ],
)
def test_of_statistics(figures: Statistics, what: str) -> None:
    """A norm overflows in a narrow type while the values do not."""
    assert found(dump_of((Statistics(0.0, 1.0), figures))) == ([("0.out", what)] if what else [])


def test_too_little_is_known_of_an_operator() -> None:
    result = finiteness(dump_of((Statistics(), Statistics(0.0, INF)), (np.int32([1]), Statistics(0.0, INF))))
    assert ([made.output for made in result.made], result.unknown) == (["1.out"], 1)


def test_what_no_operator_made_comes_in() -> None:
    result = finiteness(dump_of(([1.0], [2.0]), ([INF], [1.0]), ([NAN], [1.0])))
    assert not result.made and result.came_in is not None and result.came_in.output == "1.in"


def test_a_mask_is_filled_by_an_argument() -> None:
    filled = Operator("", "masked_fill", arguments={"input.1": "-Infinity"})
    assert found(dump_of(([1.0], [-INF]), network={0: filled})) == []


def test_backward_reads_what_forward_made_and_modules_hold_their_operators() -> None:
    network = {
        0: Operator("net.exp", "exp", source="net.py:3"),
        1: Operator("net.exp", "Exp", is_module=True),
        2: Operator("net.exp", "exp_backward", source="net.py:3"),
        3: Operator("net", "log_backward"),
    }
    dump = dump_of(([1.0], [INF]), ([1.0], [INF]), ([1.0], [NAN]), ([1.0], [NAN]), network=network)
    result = finiteness(dump)
    assert [made.output for made in result.made] == ["0.out", "3.out"]
    assert (result.made[0].source, result.made[0].place.kind) == ("net.py:3", "exp")


def test_check_answers_of_another_tools_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "net.npz")
    save_dump(dump_of(([1.0], [2.0]), ([2.0], [INF])), path)
    assert main(["check", path, "--json", f"{tmp_path}/x.json", "--junit", f"{tmp_path}/x.xml"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("The first operator that produced Inf from finite inputs is 1.out (op).\n")
    assert "Operators checked for NaN and Inf: 2; operators that produced NaN or Inf from finite inputs: 1." in said
    [run] = checked(tmp_path / "x.json")["runs"]
    assert run["findings"][0]["layer"] == "1.out" and run["finiteness"]["looked_at"] == 2
    assert 'failures="1"' in (tmp_path / "x.xml").read_text()
    save_dump(dump_of(([INF], [2.0])), path)
    assert main(["check", path]) == 0
    assert capsys.readouterr().out.startswith(
        "Inf first appears in an input of 0.in (op); no dumped operator produced this input."
    )
    save_dump({"y": np.ones(2)}, path)
    assert main(["check", path]) == 2
    assert "no operator has values or statistics" in capsys.readouterr().err
