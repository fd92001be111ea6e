"""What of an operator's output is not finite: asked for by an argument, as a mask's fill is, or made."""

import json

import pytest

torch = pytest.importorskip("torch")

from recorded_operators import recorded  # noqa: E402

from sgsdump import Dump, Record, Tensor  # noqa: E402
from sgsdump.capture.check_report import _lines_of  # noqa: E402
from sgsdump.comparison.replayed import check_findings  # noqa: E402
from sgsdump.dumps.dump import Call, Operator  # noqa: E402
from sgsdump.replay.check import check  # noqa: E402

X = torch.tensor([[0.0, 1.0], [2.0, 4.0]])
MASK = torch.tensor([[False, True], [False, False]])
INF = float("inf")


def checked(*programs):
    """The findings of operators that run one after another."""
    records, network = [], {}
    for index, call in enumerate(call for program in programs for call in recorded(program)):
        for slot, array in enumerate(call.tensors.values()):
            records.append(Record("in", slot, index, call.kind, Tensor.of(f"{index}/input.{slot}", array)))
        for slot, array in enumerate(call.outputs):
            records.append(Record("out", slot, index, call.kind, Tensor.of(f"{index}/output.{slot}", array)))
        arguments = {name: json.dumps(value) for name, value in call.arguments.items()}
        told = Call(call.overload, tuple(call.tensors))
        network[index] = Operator("", call.kind, arguments=arguments, source="net.py:8", call=told)
    dump = Dump(records, "rounds", network=lambda: network)
    return [finding for finding in check_findings(check(dump)) if finding.kind == "not finite"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_mask_is_asked_for(dtype):
    made = checked(lambda: torch.full((2, 2), -INF, dtype=dtype), lambda: X.to(dtype).masked_fill(MASK, -INF))
    assert made == []


def test_what_is_divided_by_zero_is_made_and_its_line_told_once():
    (found,) = checked(lambda: torch.full((2, 2), -INF), lambda: 1 / X)
    assert (found.layer, found.facts["what"], found.op_type) == ("1/output.0", "Inf", "aten.reciprocal")
    assert " ".join(_lines_of(found)).count("called at net.py:8") == 1
