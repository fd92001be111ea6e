"""What every test may use: the genuine files, in the tree and beside the checkout, and a small Dask cluster."""

import gc
import os
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings

from sgsdump.capture.programs import control

GOLDEN = Path(__file__).resolve().parent / "golden"
BESIDE = GOLDEN.parents[2] / "shared" / "data"

# No test asserts on time, so no deadlines; CI tries the same examples each time, so that it can be believed.
settings.register_profile("people", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("ci" if os.environ.get("CI") else "people")


# Dumps of programs stop where less than 2 GiB are free; no test depends on the disk that it runs on.
control.MIN_FREE = 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """On a small machine a worker for each thread of a core: where psutil is installed, ``-n auto`` counts cores, and
    one core with two threads would run one test at a time."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return threads if threads <= 4 and "PYTEST_XDIST_AUTO_NUM_WORKERS" not in os.environ else None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What ten thousand tests are made of stays to the end: the collector of garbage would walk over it again and
    again, for half of the time that finding the tests takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # old from now on
        gc.unfreeze()
        gc.enable()


@pytest.fixture
def quick_to_collect():
    """``gc.collect`` walks over what the test itself makes, not over ten thousand tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_picture(monkeypatch):
    """pareto.png is half of a small search's time: drawn only where a test looks at it, or runs a whole search."""
    monkeypatch.setattr("sgsdump.fixedpoint.reports.pareto_chart.pareto_png", lambda result: b"png")


@pytest.fixture
def two_gib_are_left(monkeypatch):
    """As outside the tests."""
    monkeypatch.setattr(control, "MIN_FREE", 2 << 30)


class GenuineFiles:
    """``shared / "sigmastar/newstyle"`` is that file or folder of ``tests/golden``, or of ``../shared/data``.

    What is in neither place skips the test: files of other people's repositories are not part of this one.
    """

    def __truediv__(self, name: str) -> Path:
        for folder in (GOLDEN, BESIDE):
            if (folder / name).exists():
                return folder / name
        pytest.skip(f"{name} is neither in tests/golden nor in ../shared/data")


@pytest.fixture(scope="session")
def shared() -> GenuineFiles:
    """The genuine files; see ``GenuineFiles``."""
    return GenuineFiles()


@pytest.fixture(scope="module")
def dask_cluster():
    """Two worker processes on this machine, each with one thread; they can import the tests' modules.

    For one file of tests: idle, a cluster takes a tenth of a core. No test kills these workers.
    """
    with _local_cluster() as cluster:
        yield cluster


@pytest.fixture
def mortal_cluster(monkeypatch):
    """The same for one test that kills workers, whose return takes as long as the machine's load makes it."""
    monkeypatch.setattr("sgsdump.executors.workers.cluster.WORKER_SECONDS", 300.0)
    # closing meets a worker that is just being started again: "can only join a started process"
    with suppress(AssertionError), _local_cluster() as cluster:
        yield cluster


@contextmanager
def _local_cluster():
    distributed = pytest.importorskip("distributed", reason="dask.distributed (the extra cluster) is not installed")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    kind = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    try:
        with distributed.LocalCluster(**kind, dashboard_address=":0", host="127.0.0.1", silence_logs=60) as found:
            yield found
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
