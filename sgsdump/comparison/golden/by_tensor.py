"""The golden comparison of dumps of any format, tensors paired as ``compare`` pairs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from sgsdump.comparison.device_pairs import compared_as_stored, layouts
from sgsdump.comparison.golden.measure import row_of
from sgsdump.comparison.golden.row import GoldenComparison, GoldenRow
from sgsdump.comparison.golden.settings import check_settings, counts
from sgsdump.comparison.layout_match import Layouts
from sgsdump.comparison.naming.pairs_by_stage import align_stages
from sgsdump.comparison.pairing.alignment import Pair
from sgsdump.comparison.real_values import real_values
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import SgsdumpError, ValuesError
from sgsdump.progress import SILENT, Progress, each


def compare_golden(
    sample: Dump,
    benchmark: Dump,
    golden: Dump | None = None,
    *,
    tag: float = 10.0,
    th1: float = 1e-6,
    th2: float = 1e-3,
    inputs: bool = False,
    titles: tuple[str, str, str | None] = ("sample", "benchmark", "golden"),
    progress: Progress = SILENT,
) -> GoldenComparison:
    """Compare dumps of any format, tensors paired as ``compare`` pairs them; the file names are ``NAME.npy``.

    inputs and progress are ``compare``'s. Raises what ``compare_files`` raises.
    """
    check_settings(tag, th1, th2)
    dumps = [dump for dump in (sample, benchmark, golden) if dump is not None]
    paired = align_stages(dumps[0], dumps[1], inputs)
    joined: list[tuple[Record, ...]] = [(pair.sample, pair.benchmark) for pair in paired.pairs]
    pair_notes = {id(pair.benchmark): pair.note for pair in paired.pairs}
    only_in_golden: tuple[str, ...] = ()
    not_in_golden: tuple[str, ...] = ()
    if golden is not None:
        partner = {id(pair.sample): pair.benchmark for pair in align_stages(dumps[1], dumps[2], inputs).pairs}
        not_in_golden = _files(b for _, b in joined if id(b) not in partner)
        joined = [(a, b, partner[id(b)]) for a, b in joined if id(b) in partner]
        only_in_golden = _files(u.record for u in align_stages(dumps[0], dumps[2], inputs).only_in_benchmark)
    if not joined:
        raise ValuesError(f"no tensor in common: {counts(titles, *dumps)}; are they dumps of one model?")

    def row(records: tuple[Record, ...]) -> GoldenRow:
        name = records[1].name
        pairs = [Pair(record, records[-1], "") for record in records]
        as_stored = all(map(compared_as_stored, pairs))
        sides = [partial(_real, record, as_stored) for record in records]
        known = _known_layouts(pairs, as_stored)
        return row_of(f"{name}.npy", name, sides, tag, th1, pair_notes[id(records[1])], known)

    joined.sort(key=lambda records: f"{records[1].name}.npy")
    return GoldenComparison(
        tuple(each(progress, map(row, joined), "compare", "layer", len(joined))),
        (titles[0], titles[1], titles[2] if golden is not None else None),
        tag,
        th1,
        th2,
        _files(u.record for u in paired.only_in_sample),
        _files(u.record for u in paired.only_in_benchmark),
        only_in_golden,
        not_in_golden,
    )


def _real(record: Record, as_stored: bool) -> np.ndarray:
    values = real_values(record, as_stored)
    return values.array if values.to_real is None else values.to_real(values.array)


def _known_layouts(pairs: Sequence[Pair], as_stored: bool) -> list[Layouts]:
    """Each side's layout and the last one's; unknown where a device's cannot be undone (loading reports it)."""
    try:
        return [layouts(pair, as_stored) for pair in pairs]
    except SgsdumpError:
        return [(None, None)] * len(pairs)


def _files(records: Iterator[Record]) -> tuple[str, ...]:
    return tuple(sorted(f"{record.name}.npy" for record in records))
