"""The figures that cures are judged by: outputs without an error, outputs that are missing, the outputs asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sgsdump.fixedpoint.curing.errors import mean_ratio, ratios_by_image, totals


def test_an_error_of_zero_counts_as_a_billionth_of_the_mean_before() -> None:
    before = {"a": np.array([0.0, 0.0, 6.0])}
    found = ratios_by_image({"a": np.array([0.0, 2e-9, 0.0])}, before, ["a"])
    np.testing.assert_allclose(found, [1.0, 1.0, 1e-9 / 3])
    assert mean_ratio({"a": 0.0}, {"a": 2.0}) == pytest.approx(1e-9)


def test_an_output_that_was_exact_and_is_not_any_more_is_infinitely_worse() -> None:
    assert mean_ratio({"a": 1e-9, "b": 0.1}, {"a": 0.0, "b": 1.0}) == math.inf
    assert mean_ratio({"a": 0.0, "b": 0.25}, {"a": 0.0, "b": 1.0}) == 0.25
    assert mean_ratio({"a": math.nan}, {"a": 1.0}) == math.inf


def test_an_output_that_was_not_measured_has_no_ratio() -> None:
    """Outputs whose shape depends on the values are left out by ``outputs_of``."""
    one = {"a": np.array([0.5, 0.1])}
    np.testing.assert_allclose(ratios_by_image(one, {"a": np.ones(2)}, ["a", "b"]), [0.5, 0.1])
    assert ratios_by_image({}, {}, ["b"]) == 1.0


def test_totals_are_means_over_the_images_of_the_outputs_asked_for() -> None:
    errors = {"a": np.array([1.0, 1.0, 4.0]), "inner": np.ones(3)}
    assert totals(errors, ["a"]) == {"a": 2.0} and totals(errors) == {"a": 2.0, "inner": 1.0}
