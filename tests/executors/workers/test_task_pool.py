"""The same tasks alone, in processes and on a cluster on this machine: same results, whatever dies meanwhile.

The functions stand at module level of a module the workers can import: this file, from the tests' folder.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from executors.workers.task_functions import adder, dies_once, freezes, poison, unlucky, unmakeable, where
from small_nets import residual_net
from watched import Watched

from sgsdump.errors import ConfigError, InputError, MissingExtra, WorkerError
from sgsdump.executors.workers import cluster
from sgsdump.executors.workers.task_pool import Workers, run_tasks, task_pool
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import gather, plain_ranges

needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")


@pytest.fixture(params=["alone", "processes", "cluster"])
def workers(request):
    if request.param == "cluster":
        return Workers(scheduler=request.getfixturevalue("dask_cluster").scheduler_address)
    return Workers(2 if request.param == "processes" else 1)


@pytest.fixture(params=["processes", "cluster"])
def mortal_workers(request):
    """Those that a test may kill."""
    if request.param == "cluster":
        return Workers(scheduler=request.getfixturevalue("mortal_cluster").scheduler_address)
    return Workers(2)


def test_results_come_in_the_order_of_the_items(workers):
    assert list(run_tasks(adder, (10,), range(20), workers)) == list(range(10, 30))


def test_the_work_is_made_once_in_each_process(workers):
    made = set(run_tasks(where, (), range(12), workers))
    pids = {pid for pid, _ in made}
    assert len(made) == len(pids) <= 2
    assert (os.getpid() in pids) == (workers == Workers())


def test_a_pool_serves_several_calls(workers):
    with task_pool(adder, (1,), workers) as run:
        assert list(run([1, 2])) == [2, 3]
        assert list(run([])) == []
        assert list(run([{"a": (adder, 1)}["a"][1]])) == [2]


def test_items_reach_the_work_as_they_are(workers):
    item = ("label", {"x": np.arange(3), "call": (len, "abc")})
    ((label, arrays),) = run_tasks(unlucky, (None,), [item], workers)
    assert label == "label" and arrays["call"] == (len, "abc") and arrays["x"].tolist() == [0, 1, 2]


def test_an_error_arrives_as_itself_after_the_results_before_it(workers):
    taken = run_tasks(unlucky, (3,), range(9), workers)
    assert [next(taken) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError, match=r"^3 is no picture$"):
        next(taken)


def test_what_fails_at_the_start_arrives_as_itself(workers):
    with pytest.raises(InputError, match="cannot begin"):
        list(run_tasks(unmakeable, (), range(3), workers))


def test_a_reader_that_stops_stops_the_work(workers):
    taken = run_tasks(adder, (0,), iter(range(10**9)), workers)
    assert next(taken) == 0
    taken.close()


@needs_kill
def test_a_killed_worker_loses_no_result_and_is_said_once(mortal_workers, tmp_path):
    progress = Watched()
    assert list(run_tasks(dies_once, (tmp_path, {2, 5}), range(12), mortal_workers, progress)) == list(range(12))
    assert len(list(tmp_path.iterdir())) == 2
    assert len(progress.lines) == 1 and "tasks run again" in progress.lines[0]


@needs_kill
def test_a_task_that_kills_every_worker_is_one_line(mortal_workers):
    with pytest.raises(WorkerError, match="possibly out of memory") as found:
        list(run_tasks(poison, (), range(3), mortal_workers))
    assert "\n" not in str(found.value)


CLUSTER = """
from distributed import LocalCluster
if __name__ == "__main__":
    kind = dict(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1")
    with LocalCluster(**kind, silence_logs=60) as made:
        print(made.scheduler_address, flush=True)
        input()
"""


@pytest.fixture
def own_cluster(tmp_path, monkeypatch):
    """A cluster in a process of its own, which may be frozen; (process, address)."""
    pytest.importorskip("distributed", reason="dask.distributed (the extra cluster) is not installed")
    monkeypatch.setattr(cluster, "NOTICE_SECONDS", 1.0)
    monkeypatch.setattr(cluster, "SILENT_SECONDS", 5.0)
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.3)
    (tmp_path / "host.py").write_text(CLUSTER)
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "host.py")], env=os.environ | {"PYTHONPATH": paths}, **pipes
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGCONT)
        if (tmp_path / "pid").exists():
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)
        process.communicate("\n", timeout=60)


@needs_kill
def test_a_worker_that_freezes_is_waited_for_with_a_line_and_not_for_ever(own_cluster, tmp_path):
    progress = Watched()
    # Which of the two is noticed first is a matter of the machine's load; only the first is preceded by a line.
    frozen = (
        r"the worker at tcp://.* has not answered for \d+ s.*frozen|"
        r"the cluster at tcp://.* did not arrive .*; is a machine frozen"
    )
    with pytest.raises(WorkerError, match=frozen) as error:
        list(run_tasks(freezes, (tmp_path, 2), range(4), Workers(scheduler=own_cluster[1]), progress))
    assert len(progress.lines) == 1 or (not progress.lines and "did not arrive" in str(error.value))
    assert all(line.startswith("waiting for the worker at tcp") for line in progress.lines)


@needs_kill
def test_a_scheduler_that_freezes_is_waited_for_with_a_line_and_not_for_ever(own_cluster):
    process, address = own_cluster
    progress = Watched()

    def items():
        yield from range(3)
        process.send_signal(signal.SIGSTOP)
        yield from range(3, 9)

    with pytest.raises(WorkerError, match=r"not answered|did not arrive"):
        list(run_tasks(adder, (1,), items(), Workers(scheduler=address), progress))
    assert all(line.startswith("waiting for the scheduler at tcp") for line in progress.lines)


@pytest.fixture(scope="module")
def float_model():
    return simplify(residual_net())


def feeds(count):
    return [
        (f"picture {seed}", {"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)})
        for seed in range(count)
    ]


def test_ranges_have_the_bits_of_one_process(float_model, workers):
    one = plain_ranges(float_model, gather(float_model, feeds(6)))
    many = plain_ranges(float_model, gather(float_model, feeds(6), workers=workers))
    assert list(one) == list(many)
    for name, found in one.items():
        assert found.min.tobytes() == many[name].min.tobytes() and found.max.tobytes() == many[name].max.tobytes()


def test_nan_on_a_worker_is_the_same_one_line(float_model, workers):
    bad = [*feeds(2), ("cat.jpg", {"data": np.full((1, 3, 8, 8), np.nan, np.float32)})]
    with pytest.raises(InputError, match=r"'data' holds NaN or infinity on cat\.jpg"):
        gather(float_model, bad, workers=workers)


def test_no_dask_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"pip install 'sgsdump\[cluster\]'"):
        list(run_tasks(adder, (1,), [1], Workers(scheduler="tcp://127.0.0.1:1")))


@pytest.mark.parametrize("address", ["nowhere", "foo://x:1", "", "tcp://127.0.0.1"])
def test_what_is_no_address_is_said(address):
    pytest.importorskip("distributed")
    with pytest.raises(ConfigError, match="is not an address; give one such as tcp://host:8786"):
        list(run_tasks(adder, (1,), [1], Workers(scheduler=address)))


def test_nobody_there_is_said():
    pytest.importorskip("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(WorkerError, match=f"no Dask scheduler answers at {address}"):
            list(run_tasks(adder, (1,), [1], Workers(scheduler=address)))


def test_a_listener_that_is_no_scheduler_is_said(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(WorkerError, match=f"no Dask scheduler answers at {address}"):
            list(run_tasks(adder, (1,), [1], Workers(scheduler=address)))


def test_a_scheduler_that_ends_is_said():
    distributed = pytest.importorskip("distributed")
    found = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1", silence_logs=60
    )
    taken = run_tasks(adder, (1,), range(10**9), Workers(scheduler=found.scheduler_address))
    assert next(taken) == 1
    found.close()
    with pytest.raises(WorkerError, match=r"the connection to the scheduler at .* was lost"):
        list(taken)


def test_a_scheduler_without_workers_is_said(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "WORKER_SECONDS", 0.5)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=True, dashboard_address=":0", host="127.0.0.1", silence_logs=60
        ) as empty,
        pytest.raises(WorkerError, match=r"has no workers\. Start some"),
    ):
        list(run_tasks(adder, (1,), [1], Workers(scheduler=empty.scheduler_address)))


def test_other_versions_are_refused(dask_cluster, monkeypatch):
    monkeypatch.setattr(cluster, "versions", lambda: {"sgsdump": "0.0.1"})
    with pytest.raises(WorkerError, match=r"has sgsdump .*, this machine has 0\.0\.1"):
        list(run_tasks(adder, (1,), [1], Workers(scheduler=dask_cluster.scheduler_address)))
