"""Noise is told from images by the correlation of neighbours, and only where there are images."""

from __future__ import annotations

import numpy as np
import pytest

from sgsdump.models.feeds.by_content import coverage_warnings, is_noise

SIDE = 32


def runs(*arrays: np.ndarray) -> list[tuple[str, dict[str, np.ndarray]]]:
    return [(str(index), {"x": array}) for index, array in enumerate(arrays)]


def neighbours(correlation: float, count: int = 4, side: int = SIDE) -> list[np.ndarray]:
    """Images [1, 3, side, side] whose neighbours along height and along width correlate so: a first-order
    autoregression along each axis, of a mean far from 0."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(count):
        values = rng.normal(size=(3, 2 * side, 2 * side))
        for axis in (1, 2):
            moved = np.moveaxis(values, axis, 0)
            for index in range(1, 2 * side):
                moved[index] = correlation * moved[index - 1] + (1 - correlation**2) ** 0.5 * moved[index]
        found.append(values[None, :, side:, side:] + 100)
    return found


@pytest.mark.parametrize("correlation, noise", [(-0.3, True), (0.0, True), (0.05, True), (0.2, False), (0.9, False)])
def test_neighbours_that_correlate_make_an_image(correlation: float, noise: bool) -> None:
    images = neighbours(correlation)
    assert is_noise(runs(*images)) is noise  # type: ignore[arg-type]
    assert is_noise(runs(*(image.transpose(0, 2, 3, 1) for image in images))) is noise  # type: ignore[arg-type]


def test_a_correlation_that_chance_explains_is_noise() -> None:
    """Between 0.1 and two standard errors above: of one image of 8 x 8 with 3 channels they are 2 / sqrt(336)."""
    values = neighbours(0.25, 1, 8)[0]
    centred = values - values.mean(axis=(2, 3), keepdims=True)
    pairs = [(centred[:, :, 1:], centred[:, :, :-1]), (centred[..., 1:], centred[..., :-1])]
    product = sum((a * b).sum() for a, b in pairs)
    correlation = product / sum((a**2 + b**2).sum() / 2 for a, b in pairs)
    assert 0.1 < correlation < 0.1 + 2 / 336**0.5
    assert is_noise(runs(values))  # type: ignore[arg-type]


def test_all_images_and_every_input_are_looked_at() -> None:
    (image,), (noise,) = neighbours(0.9, 1), neighbours(0.0, 1)
    assert is_noise(runs(image, noise * 10, noise * 20))  # type: ignore[arg-type]
    assert not is_noise(runs(noise, image * 10, image * 20))  # type: ignore[arg-type]
    assert is_noise([("0", {"x": image, "y": noise})])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).normal(size=(1, 5, SIDE, SIDE)),  # five channels
        np.random.default_rng(0).normal(size=(1, 3, 7, SIDE)),  # seven rows
        np.random.default_rng(0).normal(size=(3, SIDE, SIDE)),
        np.random.default_rng(0).random((1, 3, SIDE, SIDE)) < 0.5,  # a mask
        np.full((1, 3, SIDE, SIDE), np.nan),
        np.ones((1, 3, SIDE, SIDE)),
    ],
)
def test_what_is_no_image_is_no_noise(array: np.ndarray) -> None:
    assert not is_noise(runs(array))  # type: ignore[arg-type]


def test_copies_and_the_order_of_images_change_nothing() -> None:
    three = neighbours(0.9, 3)
    (said,) = coverage_warnings(runs(*three, *three))  # type: ignore[arg-type]
    assert said.startswith("only 3 different images given: ")
    assert coverage_warnings(runs(*neighbours(0.9, 4))) == ()  # type: ignore[arg-type]
    (said,) = coverage_warnings(runs(*neighbours(0.0, 4)))  # type: ignore[arg-type]
    assert said.startswith("the images look like noise (neighbouring values are uncorrelated): ")
