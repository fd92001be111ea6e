"""The layered layout: properties of every graph, and small graphs whose best drawing is known."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from sgsdump.reports.graph.layered import BEND, HALF, layered, separated


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 14))
    ends = st.integers(0, count - 1)
    links = draw(st.lists(st.tuples(ends, ends).filter(lambda link: link[0] != link[1]), max_size=30, unique=True))
    return count, sorted(links)


@given(graphs())
def test_nodes_do_not_overlap_and_links_go_down(graph):
    count, links = graph
    layout = layered(count, links)
    for row in set(layout.rows):
        x = sorted(layout.x[node] for node in range(count) if layout.rows[node] == row)
        assert all(b - a >= 2 * HALF - 1e-9 for a, b in itertools.pairwise(x))
    for link, bends in zip(links, layout.bends):
        upper, lower = min(link), max(link)
        assert layout.rows[upper] < layout.rows[lower]
        assert len(bends) == layout.rows[lower] - layout.rows[upper] - 1
        for row, x in enumerate(bends, layout.rows[upper] + 1):
            others = (layout.x[node] for node in range(count) if layout.rows[node] == row)
            assert all(abs(x - other) >= HALF + BEND - 1e-9 for other in others)
    assert min(layout.x) == pytest.approx(HALF) and max(layout.x) <= layout.width - HALF + 1e-9


@given(graphs())
def test_the_same_graph_has_the_same_layout(graph):
    assert layered(*graph) == layered(*graph)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_separated_is_the_least_squares_solution(targets):
    offsets = [float(place) for place in range(len(targets))]
    weights = [1.0 + place % 3 for place in range(len(targets))]
    found = np.array(separated(targets, weights, offsets))
    gaps = [{"type": "ineq", "fun": lambda x, i=i: x[i + 1] - x[i] - 1.0} for i in range(len(targets) - 1)]

    def squares(x):
        return float(np.dot(weights, (x - targets) ** 2))

    best = minimize(squares, np.array(offsets) + min(targets), constraints=gaps, method="SLSQP")
    assert all(found[1:] - found[:-1] >= 1.0 - 1e-9)
    assert squares(found) <= squares(best.x) + 1e-4


def test_a_chain_is_straight():
    assert layered(4, [(0, 1), (1, 2), (2, 3)]).x == (0.5,) * 4


def test_a_skipped_block_has_its_link_beside_it():
    layout = layered(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert layout.rows == (0, 1, 2, 3) and abs(layout.x[1] - layout.x[2]) < 0.02
    [_, skip] = [bends for bends in layout.bends if bends] * 2
    assert all(abs(x - layout.x[1]) > HALF for x in skip)


def test_crossed_siblings_are_sorted():
    layout = layered(6, [(0, 4), (1, 3), (2, 5)])  # 3, 4 and 5 stand below 1, 0 and 2
    order = sorted((3, 4, 5), key=lambda node: layout.x[node])
    assert order == sorted((3, 4, 5), key=lambda node: layout.x[{3: 1, 4: 0, 5: 2}[node]])


def test_a_constant_stands_just_above_its_consumer():
    assert layered(5, [(0, 1), (1, 2), (2, 4), (3, 4)]).rows[3] == 2


def test_nodes_without_links_stand_in_short_rows():
    layout = layered(20, [])
    assert max(map(layout.rows.count, set(layout.rows))) == 6
