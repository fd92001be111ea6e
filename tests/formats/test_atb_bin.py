"""Single ATB tensor files."""

from __future__ import annotations

from dataclasses import replace

from formats.conformance import Conformance, plain_records

from sgsdump import Record, Tensor


class TestConformance(Conformance):
    format = "atb_bin"

    def records(self) -> list[Record]:
        """One tensor that is called as its file."""
        record = plain_records()[0]
        info = replace(record.tensor.info, name="dump", op_type="")
        return [Record("out", 0, 0, "", Tensor(info, record.tensor.raw))]
