"""Order, errors and killed workers. The functions stand at module level: workers import them by name."""

import os
import signal

import pytest

from sgsdump.errors import InputError, SgsdumpError
from sgsdump.task_pool import Workers, run_tasks


def ordered_map(make_work, given, items, processes):
    return run_tasks(make_work, given, items, Workers(processes))


def adder(number):
    return lambda item: item + number


def picky(_):
    def work(item):
        if item == 3:
            raise InputError("three is no picture")
        return item

    return work


def suicidal(_):
    def work(item):
        if item == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    return work


def where(_):
    return lambda item: os.getpid()


def unmakeable(_):
    raise InputError("cannot begin")


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_results_come_in_order(processes):
    assert list(ordered_map(adder, (10,), range(20), processes)) == list(range(10, 30))


def test_one_process_is_this_one_and_two_are_others():
    assert set(ordered_map(where, (0,), range(3), 1)) == {os.getpid()}
    assert os.getpid() not in set(ordered_map(where, (0,), range(3), 2))


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_arrives_as_itself_after_the_results_before_it(processes):
    seen = []
    with pytest.raises(InputError, match="three is no picture"):
        seen.extend(ordered_map(picky, (0,), range(9), processes))
    taken = ordered_map(picky, (0,), range(9), processes)
    assert [next(taken) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError):
        next(taken)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_fails_at_the_start_arrives_as_itself(processes):
    with pytest.raises(InputError, match="cannot begin"):
        list(ordered_map(unmakeable, (0,), range(3), processes))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_worker_is_said():
    with pytest.raises(SgsdumpError, match="worker processes were killed 4 times at the same task"):
        list(ordered_map(suicidal, (0,), range(9), 2))


def test_nothing_waits_for_a_reader_that_stops():
    taken = ordered_map(adder, (0,), iter(range(10**9)), 2)
    assert next(taken) == 0
    taken.close()
