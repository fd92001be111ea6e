"""Rounding and bias correction against plain numpy, and patches against onnxruntime's convolution."""

from __future__ import annotations

import numpy as np
import pytest
from small_nets import model, run_all, weights
from small_nets import node as node_of

from sgsdump.fixedpoint.curing.biases import correction
from sgsdump.fixedpoint.curing.patches import as_weight, matrices, positions, rows
from sgsdump.fixedpoint.curing.rounding import Products, enough_rows, nearest, rounded
from sgsdump.models.graph import Graph


def draw(seed: int = 0, columns: int = 12, outputs: int = 5, count: int = 400):
    """Correlated inputs, those of the fixed model a little off and biased, and weights."""
    rng = np.random.default_rng(seed)
    real = rng.normal(size=(count, 3)) @ rng.normal(size=(3, columns)) + 0.05 * rng.normal(size=(count, columns)) + 1
    fixed = real + rng.normal(0, 0.002, real.shape) + 0.02
    weight = rng.normal(0, 0.3, (columns, outputs))
    products = Products.zeros(1, columns)
    products.add(fixed[None, : count // 2], real[None, : count // 2])
    products.add(fixed[None, count // 2 :], real[None, count // 2 :])
    return products, fixed, real, weight[None], np.abs(weight).max(axis=0)[None, None] / 127


def test_the_error_is_that_of_the_outputs_less_their_mean() -> None:
    """But for what the inputs' own error does, which is none of the weights'."""
    products, fixed, real, weight, steps = draw()
    plain = nearest(weight, steps)
    away = real.astype(np.float64) @ weight[0] - fixed @ plain[0]
    inputs = ((real - fixed) @ weight[0]) ** 2
    expected = (((away - away.mean(axis=0)) ** 2).sum(axis=0) - inputs.sum(axis=0))[None]
    np.testing.assert_allclose(products.error(weight, plain), expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_rounding_keeps_the_outputs_better_than_the_nearest(seed: int) -> None:
    products, fixed, real, weight, steps = draw(seed)
    new = rounded(products, weight, steps)
    least, most = (np.var(real @ weight[0] - fixed @ each[0], axis=0).sum() for each in (new, nearest(weight, steps)))
    assert least < 0.8 * most
    np.testing.assert_allclose(new / steps, np.rint(new / steps), atol=1e-9)
    assert (np.abs(new) <= 127.0001 * steps).all()
    # What fixes each output's scale stays, so that the calibrator finds the same grid.
    np.testing.assert_allclose(np.abs(new).max(axis=1, keepdims=True) / 127, steps)


def test_with_uncorrelated_equal_inputs_it_is_the_nearest() -> None:
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(1, 6, 4))
    squares = np.eye(6)[None] * 100
    products = Products(squares, 0 * squares, np.zeros((1, 6)), np.zeros((1, 6)), 100)
    steps = np.abs(weight).max(axis=1, keepdims=True) / 127
    np.testing.assert_allclose(rounded(products, weight, steps), nearest(weight, steps))


def test_column_by_column_is_the_plain_formula() -> None:
    """Optimal brain surgeon, one column after another, with the inverse of what is left made anew each time; of two
    groups each by itself."""
    first, second = (draw(seed, columns=6) for seed in (1, 2))
    one, two = first[0].local(), second[0].local()
    merged = Products(*(np.concatenate(pair) for pair in zip(_squares(one), _squares(two))), one.fixed, one.real, 400)
    both = rounded(merged, *(np.concatenate(pair) for pair in zip(first[3:], second[3:])))
    for group, (products, _, _, weight, steps) in enumerate((first, second)):
        _is_the_plain_formula(products.local(), weight[0], steps[0, 0], both[group])


def _squares(products: Products) -> tuple[np.ndarray, ...]:
    assert products.g is not None and products.e is not None
    return products.g, products.e


def _is_the_plain_formula(local: Products, weight: np.ndarray, steps: np.ndarray, found: np.ndarray) -> None:
    squares = _squares(local)[0][0]
    ridge = 0.01 * np.mean(np.diag(squares))
    h, order = squares + ridge * np.eye(6), np.argsort(-np.diag(squares), kind="stable")
    ends = np.abs(weight) >= 126.5 * steps
    rest, result = weight[order].copy(), np.empty_like(weight)
    h = h[np.ix_(order, order)]
    for j in range(6):
        inverse = np.linalg.inv(h[j:, j:])
        result[j] = nearest(np.where(ends[order][j], weight[order][j], rest[j]), steps)
        rest[j:] -= np.outer(inverse[:, 0] / inverse[0, 0], rest[j] - result[j])
    expected = np.empty_like(result)
    expected[order] = result
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_weight_within_half_a_step_of_its_grids_end_stays_there() -> None:
    """Inputs twice as large halve every weight but the one that the scale comes from."""
    products, real = Products.zeros(1, 1), np.random.default_rng(0).normal(size=(1, 50, 1))
    products.add(2 * real, real)
    found = rounded(products, np.array([[[126.6, 126.4, -126.6]]]), np.ones((1, 1, 3)))
    np.testing.assert_array_equal(found, [[[127, 64, -127]]])


def test_dead_inputs_are_rounded_to_the_nearest() -> None:
    weight, steps = np.ones((1, 3, 2)) * 0.24, np.full((1, 1, 2), 0.1)
    products = Products.zeros(1, 3)
    products.add(np.zeros((1, 9, 3)), np.zeros((1, 9, 3)))
    np.testing.assert_allclose(rounded(products, weight, steps), 0.2)


def test_too_few_rows_are_told_and_means_are_enough_for_biases() -> None:
    products, means = Products.zeros(1, 4), Products.zeros(1, 4, squares=False)
    products.add(np.ones((1, 7, 4)), np.ones((1, 7, 4)))
    assert not enough_rows(products)
    products.add(np.ones((1, 1, 4)), np.ones((1, 1, 4)))
    assert enough_rows(products)
    means.add(np.ones((1, 8, 4)), 2 * np.ones((1, 8, 4)))
    assert not enough_rows(means)
    assert correction(means, np.ones((1, 4, 1)), np.ones((1, 4, 1))) == 4


def test_the_correction_takes_the_mean_off() -> None:
    products, fixed, real, weight, steps = draw()
    plain = nearest(weight, steps)
    np.testing.assert_allclose(
        correction(products, weight, plain), (real @ weight[0] - fixed @ plain[0]).mean(axis=0), rtol=1e-6
    )


@pytest.mark.parametrize(
    "shape, attributes",
    [
        ((6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((6, 4, 3, 2), {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
        ((6, 2, 3, 3), {"group": 2, "dilations": [2, 2]}),
        ((4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((4, 1, 4, 4), {"group": 4, "auto_pad": "SAME_LOWER"}),
        ((5, 4, 1, 1), {"auto_pad": "VALID"}),
        ((5, 4, 3), {"pads": [2, 0], "strides": [2]}),
        ((4, 3, 3, 3), {"op": "ConvTranspose", "strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0]}),
        ((4, 2, 2, 2), {"op": "ConvTranspose", "strides": [2, 2], "group": 2}),
        ((4, 3, 2, 2), {"op": "ConvTranspose", "dilations": [2, 1], "pads": [3, 0, 3, 0]}),
        ((4, 3, 4), {"op": "ConvTranspose", "strides": [2], "pads": [1, 1]}),
    ],
)
def test_patches_times_weights_are_the_convolution(shape, attributes) -> None:
    size = (2, 4, 9, 7)[: len(shape)]
    op, attributes = attributes.get("op", "Conv"), {key: value for key, value in attributes.items() if key != "op"}
    outputs = shape[0] if op == "Conv" else shape[1] * attributes.get("group", 1)
    constants = {**weights("c", shape), "c.b": np.linspace(-1, 1, outputs).astype(np.float32)}
    net = model([node_of(op, ["data", "c.w", "c.b"], "c", **attributes)], constants, {"data": size}, ["c"])
    graph = Graph(net.proto)
    node, data = graph.nodes[0], np.random.default_rng(0).normal(size=size).astype(np.float32)
    expected = run_all(net.proto, {"data": data})["c"]
    expected = np.moveaxis(expected, 1, -1).reshape(-1, outputs)
    places = positions(graph, node, data.shape, 10**9, np.random.default_rng(0))
    parts = matrices(graph, node, graph.value("c.w"))
    products = rows(graph, node, data, places) @ parts
    found = np.concatenate(list(products), axis=1) + graph.value("c.b")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(as_weight(graph, node, parts), graph.value("c.w"))
    some = positions(graph, node, data.shape, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(rows(graph, node, data, some), rows(graph, node, data, places)[:, some])
