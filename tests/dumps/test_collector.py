"""Opening a dump, and comparing two, leaves Python's collector as it was, and no pass of it falls into that."""

import gc
from typing import ClassVar

import numpy as np
import pytest

from sgsdump import Dump, Record, SgsdumpError, Tensor, compare, open_dump, save_dump
from sgsdump.dumps.collector import collector_paused


@pytest.fixture
def passes():
    """The collector's passes since the test began."""
    gc.collect()
    begun = []

    def note(phase, facts):
        begun.append(facts["generation"])

    gc.callbacks.append(note)
    yield begun
    gc.callbacks.remove(note)


def test_no_pass_while_a_dump_is_opened_nor_over_its_records_behind_it(tmp_path, passes):
    values = np.zeros(1, np.float32)
    save_dump((Tensor.of(f"layer{i}", values) for i in range(3000)), tmp_path / "x.bin")
    open_dump(tmp_path / "x.bin")  # what is imported at the first one is no part of it
    del passes[:]
    dump = open_dump(tmp_path / "x.bin")
    assert passes == []
    old = {id(each) for each in gc.get_objects(generation=2)}
    assert all(id(record.tensor) in old for record in dump.records)
    assert gc.isenabled()


def test_an_error_leaves_it_on_and_who_switched_it_off_keeps_it_off(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"isFloat: 1\nnothing")
    with pytest.raises(SgsdumpError):
        open_dump(tmp_path / "x.bin")
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_a_program_froze_stays_frozen():
    gc.freeze()
    try:
        with collector_paused():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


class Watched(np.ndarray):
    """Notes whether the collector is on when its values are looked at."""

    seen: ClassVar[list] = []

    def __array_finalize__(self, other):
        self.seen.append(gc.isenabled())


def test_compare_pauses_it_but_for_metrics_of_the_users(monkeypatch):
    def dump(value):
        return Dump([Record("out", 0, 0, "Conv", Tensor.of("conv", np.full(3, value, np.float32).view(Watched)))])

    def own(sample, benchmark):
        Watched.seen.append(gc.isenabled())
        return 0.0

    dumps = dump(1), dump(2)
    monkeypatch.setattr(Watched, "seen", [])
    compare(*dumps)
    assert Watched.seen and not any(Watched.seen) and gc.isenabled()
    monkeypatch.setattr(Watched, "seen", [])
    compare(*dumps, metrics={"own": own})
    assert Watched.seen and all(Watched.seen)
