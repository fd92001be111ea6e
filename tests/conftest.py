"""What every test may use: the genuine files beside the checkout, where they are present."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

# No test asserts on time, so no deadlines; CI tries the same examples each time, so that it can be believed.
settings.register_profile("people", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "people")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of genuine files; tests that need it are skipped where it is absent (a user's fresh checkout)."""
    if not SHARED.is_dir():
        pytest.skip(f"no genuine files: {SHARED.name} is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def dask_cluster():
    """Two worker processes on this machine, each with one thread; they can import the tests' modules."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed (the extra cluster) is not installed")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    kind = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    try:
        with distributed.LocalCluster(**kind, dashboard_address=":0", host="127.0.0.1", silence_logs=60) as found:
            yield found
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
