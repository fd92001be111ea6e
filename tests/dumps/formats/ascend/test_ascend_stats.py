"""Statistics of operators: what the writers do, from the specification's traps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly

from sgsdump import Dump, open_dump
from sgsdump.errors import FormatError, ValuesError
from sgsdump.tensors.statistics import Statistics

NAME = "Conv2D.conv1.3.2.1700000000123456.csv"
HEAD = "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
HEAD += "Negative Inf Count,Positive Inf Count\n"
ROW = "Output,0,640000,DT_FLOAT,NHWC,4x50x50x16,1.99999,1,1.50004,160000,3,2,1\n"


class TestReadOnly(ReadOnly):
    format = "ascend_stats"
    file_name = NAME
    data = (HEAD + "Input,0,6,DT_FLOAT16,ND,1x3,2,1,1.5,3,0,0,0\n" + ROW).encode()


def opened(tmp_path: Path, text: str) -> Dump:
    (tmp_path / NAME).write_text(text)
    return open_dump(tmp_path / NAME)


def statistics_of(dump: Dump) -> dict[str, Statistics | None]:
    return {record.name: record.tensor.statistics for record in dump.records}


def test_a_row_becomes_statistics_without_values(tmp_path: Path) -> None:
    dump = opened(tmp_path, HEAD + ROW)
    tensor = dump["conv1:output:0"]
    info = tensor.info
    assert (info.shape, info.dtype, info.layout, info.op_type) == ((4, 50, 50, 16), np.float32, "NHWC", "Conv2D")
    assert tensor.statistics == Statistics(1.0, 1.99999, 1.50004, None, 160000, 3, 2, 1)
    with pytest.raises(ValuesError, match="only statistics were dumped"):
        tensor.stored()
    assert not dump.notes


def test_a_header_may_come_again_with_other_columns(tmp_path: Path) -> None:
    other = "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,l2norm\nInput,1,2,DT_INT8,ND,2,2,5.5\n"
    dump = opened(tmp_path, HEAD + ROW + HEAD + ROW.replace("Output,0", "Output,1") + other)
    assert statistics_of(dump) == {
        "conv1:input:1": Statistics(l2norm=5.5, count=2),
        "conv1:output:0": Statistics(1.0, 1.99999, 1.50004, None, 160000, 3, 2, 1),
        "conv1:output:1": Statistics(1.0, 1.99999, 1.50004, None, 160000, 3, 2, 1),
    }


def test_a_row_without_count_is_not_shifted(tmp_path: Path) -> None:
    head = "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value,Min Value,l2norm\n"
    dump = opened(tmp_path, head + "Output,0,8,DT_FLOAT,ND,2,3.5,1.5,4.25\n")
    assert statistics_of(dump) == {"conv1:output:0": Statistics(1.5, 3.5, None, 4.25)}


def test_rows_of_unknown_columns_keep_their_facts(tmp_path: Path) -> None:
    dump = opened(tmp_path, HEAD + "Output,0,8,DT_FLOAT,ND,2,3.5\nOutput,1,8,DT_FLOAT,ND,2," + "1," * 9 + "1\n")
    assert statistics_of(dump) == {"conv1:output:0": Statistics(), "conv1:output:1": Statistics()}
    assert dump["conv1:output:0"].info.shape == (2,) and "the statistics of 2 rows" in dump.notes[0]


def test_what_is_not_known_is_none(tmp_path: Path) -> None:
    rows = "Input,0,0,UNKNOW,UNKNOW,-,,,,,,,\nOutput,0,4,DT_FLOAT,ND,2,NA,NA,NA,NA,NA,NA,NA\n"
    dump = opened(tmp_path, HEAD + rows + "Output,1,4,DT_BF16,NCHW,2,nan,-inf,inf,2,1,1,0\n")
    assert [record.tensor.statistics for record in dump.records][:2] == [Statistics(), Statistics()]
    assert (dump.records[0].tensor.info.shape, dump.records[0].tensor.info.layout) == (None, None)
    assert dump["conv1:output:1"].info.dtype.name == "bfloat16"
    statistics = dump["conv1:output:1"].statistics
    assert statistics and statistics.min == -np.inf and np.isnan(statistics.max or 0) and statistics.mean == np.inf


def test_extremes_that_devices_print_wrong_are_left_out(tmp_path: Path) -> None:
    rows = [f"Output,{i},8,{kind},ND,1,-5,-7,1.5,1,0,0,0\n" for i, kind in enumerate(["DT_DOUBLE", "DT_UINT32"])]
    dump = opened(tmp_path, HEAD + "".join(rows) + "Output,2,8,DT_DOUBLE,ND,1,-5.5,-7.5,1.5,1,0,0,0\n")
    assert [(t.statistics.min, t.statistics.max) for t in dump.values() if t.statistics] == [
        (None, None),
        (2.0**32 - 7, 2.0**32 - 5),
        (-7.5, -5.5),
    ]
    assert "max and min of float64 are left out" in dump.notes[0] and len(dump.notes) == 1


def test_the_last_of_several_rows_is_taken(tmp_path: Path) -> None:
    dump = opened(tmp_path, HEAD + ROW + ROW.replace("1.99999", "7"))
    assert dump["conv1:output:0"].statistics == Statistics(1.0, 7.0, 1.50004, None, 160000, 3, 2, 1)
    assert "several rows" in dump.notes[0]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (HEAD, "no row"),
        (HEAD + "Outside,0,1\n", "damaged"),
        (HEAD + "Output,x,1\n", "damaged"),
        (HEAD + ROW.replace("4x50", "4x-50"), "not a shape"),
        (HEAD + ROW.replace("4x50", "9" * 30 + "x50"), "is invalid: numpy cannot make"),
        (HEAD + ROW * 10_001, "more than 10000 rows"),
    ],
)
def test_damage_is_told(text: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=match) as caught:
        opened(tmp_path, text)
    assert str(tmp_path / NAME) in str(caught.value)
