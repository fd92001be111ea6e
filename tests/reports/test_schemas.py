"""The JSON of comparisons is what its schema says, and no field is undocumented."""

import json

import numpy as np
import pytest
from json_documents import checked, schema

from sgsdump.comparison.compare import compare
from sgsdump.comparison.golden import compare_golden
from sgsdump.comparison.merge import merge
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.comparison import REPORTS
from sgsdump.reports.golden import golden_json
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Quant, Tensor

from .hostile import comparison

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema (the extra test) is not installed")


def dump(*tensors):
    return Dump([Record("out", 0, index, "Conv", tensor) for index, tensor in enumerate(tensors)])


def quantised():
    values = [np.arange(8, dtype=np.int8) * step for step in (1, 2)]
    quant = Quant(np.dtype(np.int8), 0.5, exact=True)
    return [dump(Tensor.of("x", each, quant=quant)) for each in values]


def statistics():
    info = Tensor.of("x", np.ones(4)).info
    return [dump(Tensor.of_statistics(info, Statistics(0.0, top))) for top in (2.5, 2.0)]


def misnamed():
    a, b = np.random.default_rng(0).normal(size=(2, 1, 50)).astype(np.float32)
    return [dump(Tensor.of("x", a), Tensor.of("y", b)), dump(Tensor.of("x", b), Tensor.of("y", a))]


def test_every_kind_of_comparison():
    limits = Thresholds(0.99, None, 1e300, (("mae", 0.5),), (("x", "rmse", 0.1),), ())
    hostile = comparison(metrics=["mae", "mape"], compatible="msprobe", exclude=["plain"])
    kinds = {
        "hostile": hostile,
        "runs": merge({"a": comparison(), "b": comparison()}),
        "integers": compare(*quantised()),
        "statistics": compare(*statistics()),
        "misnamed": compare(*misnamed()),
        "nothing": compare(dump(), dump()),
    }
    documents = {kind: checked(REPORTS["json"](each, limits)) for kind, each in kinds.items()}
    assert all((d["format"], d["version"]) == ("sgsdump comparison", 3) for d in documents.values())
    assert documents["hostile"]["excluded"] == ["plain"] and documents["hostile"]["rows"][0]["left_out"] is not None
    assert "runs" in documents["runs"]["rows"][0] and "integers" in documents["integers"]["rows"][0]
    assert documents["statistics"]["rows"][0]["figures"] and documents["misnamed"]["rows"][0]["misnamed"]
    assert {"nan", "inf"} <= {row["rmse"] for row in documents["hostile"]["rows"] if isinstance(row["rmse"], str)}


def test_golden_comparisons():
    x = [Tensor.of("x", np.float32([value, 1])) for value in (1, 2, np.nan)]
    three = [dump(each, Tensor.of(f"y{index}", np.ones(2))) for index, each in enumerate(x)]
    two = compare_golden(three[0], three[2])
    for found in (compare_golden(*three), two):
        document = checked(golden_json(found))
        assert (document["format"], document["version"]) == ("sgsdump golden comparison", 1)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (lambda d: d["rows"][0].update(rmse="Infinity"), True),
        (lambda d: d["rows"][0].pop("cos"), True),
        (lambda d: d.update(version=1), True),
        (lambda d: d["rows"][0].update(verdict="good"), True),
        (lambda d: d["rows"][0].update(new=1), False),
    ],
)
def test_the_schema_refuses_what_is_none(change, refused):
    """Further fields may come at any time; everything else is another version."""
    document = json.loads(REPORTS["json"](comparison(), DOCUMENTED))
    change(document)
    assert jsonschema.Draft202012Validator(schema("comparison")).is_valid(document) is not refused
