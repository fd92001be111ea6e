"""Tasks in threads: the results, the failures and the items in order, whoever is faster."""

import threading
import time

import pytest

from sgsdump.errors import InputError
from sgsdump.executors.workers.task_pool import in_threads


def late_first(item):
    """Earlier items take longer."""
    time.sleep(0.002 * (10 - item % 10))
    return item * item


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_are_in_the_order_of_the_items(threads):
    assert list(in_threads(late_first, iter(range(25)), threads)) == [n * n for n in range(25)]
    assert list(in_threads(late_first, [], threads)) == []


def test_two_items_are_worked_on_at_once():
    together = threading.Barrier(2, timeout=30)
    assert len(list(in_threads(lambda _: together.wait(), range(4), 2))) == 4


@pytest.mark.parametrize("threads", [1, 3])
def test_items_are_made_one_at_a_time_and_few_ahead(threads):
    made, making = [], threading.Lock()

    def items():
        for number in range(40):
            assert making.acquire(blocking=False)
            time.sleep(0.001)
            made.append(number)
            making.release()
            yield number

    results = in_threads(lambda item: item, items(), threads)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert made == sorted(made) and len(made) <= 3 + 2 * threads
    assert list(results) == list(range(3, 40))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_failure_in_order_ends_it(threads):
    def work(item):
        late_first(item)
        if item in (4, 5):
            raise InputError(f"{item} is no picture")
        return item

    seen = []
    with pytest.raises(InputError, match="4 is no picture"):
        seen.extend(in_threads(work, range(20), threads))
    results = in_threads(work, range(20), threads)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_item_that_cannot_be_made_fails_in_its_turn(threads):
    def items():
        yield from (1, 2)
        raise InputError("the third is damaged")

    results = in_threads(lambda item: item, items(), threads)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(InputError, match="the third is damaged"):
        next(results)


def test_no_more_is_begun_when_nobody_wants_results():
    begun = []
    results = in_threads(begun.append, range(1000), 2)
    next(results)
    results.close()
    count = len(begun)
    time.sleep(0.02)
    assert len(begun) == count <= 6
