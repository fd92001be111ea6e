"""Tensors that are needed at the same time do not share a byte, and memory is used again; drawn lives of tensors."""

from hypothesis import given
from hypothesis import strategies as st

from sgsdump.executors.onnx_runtime.memory_places import ALIGNMENT, places


@st.composite
def lives(draw):
    made = draw(st.lists(st.lists(st.integers(1, 500), max_size=4), min_size=1, max_size=7))
    named = [{f"{step}.{i}": size for i, size in enumerate(sizes)} for step, sizes in enumerate(made)]
    read = []
    for step in range(len(named)):
        before = [name for sizes in named[:step] for name in sizes]
        read.append(draw(st.lists(st.sampled_from(before), unique=True)) if before else [])
    return named, read


@given(lives())
def test_no_two_tensors_that_are_needed_at_once_overlap(drawn):
    made, read = drawn
    found, size = places(made, read)
    sizes = {name: each for step in made for name, each in step.items()}
    assert found.keys() == sizes.keys() and all(place % ALIGNMENT == 0 for place in found.values())
    assert all(found[name] + sizes[name] <= size for name in found)
    first = {name: step for step, names in enumerate(made) for name in names}
    last = {name: max([first[name], *(s for s, names in enumerate(read) if name in names)]) for name in first}
    for one in found:
        for other in found:
            together = first[one] <= last[other] and first[other] <= last[one]
            if one < other and together:
                assert found[one] + sizes[one] <= found[other] or found[other] + sizes[other] <= found[one]


def test_memory_is_used_again():
    chain = [{str(step): 100} for step in range(50)]
    found, size = places(chain, [(), *((str(step),) for step in range(49))])
    assert size == 2 * 128 and found["0"] == found["2"] == found["48"]
    assert places([{"a": 64, "b": 64}, {"c": 64}, {"d": 64}], [(), ("a", "b"), ("b",)])[1] == 3 * 64


def test_nothing_takes_nothing():
    assert places([{}], [()]) == ({}, 0)
