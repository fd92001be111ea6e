"""Label-free accuracies against plain loops, and their choice by the outputs' shapes."""

import numpy as np
import pytest

from sgsdump.comparison.agreement import DETECTIONS, PIXELS, TOP1, Agreement, agreement_of, template_of

RNG = np.random.default_rng(3)


def softmax(values, axis=-1):
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    return (powers / powers.sum(axis=axis, keepdims=True)).astype(np.float32)


def boxes_of(count):
    low = RNG.uniform(0, 80, (1, count, 2))
    return np.concatenate([low, low + RNG.uniform(8, 20, (1, count, 2))], axis=2).astype(np.float32)


PROBABILITIES = softmax(RNG.normal(size=(8, 10)))
MAPS = softmax(RNG.normal(size=(2, 5, 40, 48)), 1)
SCORES = np.zeros((1, 30, 3), np.float32)
SCORES[..., 0] = 0.9
SCORES[0, :6, 0], SCORES[0, :6, 2] = 0.1, 0.8


@pytest.mark.parametrize(
    ("outputs", "template"),
    [
        ({"prob": PROBABILITIES}, TOP1),
        ({"logits": RNG.normal(size=(8, 10)).astype(np.float32)}, TOP1),
        ({"prob": PROBABILITIES.reshape(8, 10, 1, 1)}, TOP1),
        ({"prob": PROBABILITIES, "landmarks": RNG.normal(size=(8, 10)).astype(np.float32)}, TOP1),
        ({"boxes": boxes_of(30), "scores": SCORES}, DETECTIONS),
        ({"map": MAPS}, PIXELS),
        ({"map": MAPS.transpose(0, 2, 3, 1)}, PIXELS),
        # look-alikes
        ({"box": RNG.normal(size=(1, 4)), "landmarks": RNG.normal(size=(1, 10))}, None),
        ({"embedding": (lambda e: e / np.linalg.norm(e, axis=1, keepdims=True))(RNG.normal(size=(4, 128)))}, None),
        ({"image": RNG.uniform(0, 1, (1, 3, 64, 64)).astype(np.float32)}, None),
        ({"depth": RNG.uniform(0, 1, (1, 1, 64, 64)).astype(np.float32)}, None),
        ({"head": RNG.normal(size=(1, 255, 13, 13)).astype(np.float32)}, None),
        ({f"head{n}": RNG.normal(size=(1, 18, n, n)).astype(np.float32) for n in (52, 26)}, None),
        ({"offsets": RNG.normal(size=(1, 30, 4)).astype(np.float32), "scores": SCORES}, None),
        ({"prob": np.full((8, 10), np.nan, np.float32)}, None),
        ({}, None),
    ],
)
def test_the_template_is_chosen_by_the_shapes(outputs, template):
    assert template_of(outputs) == template


def test_top1_counts_images():
    other = PROBABILITIES.copy()
    for image in (1, 4, 5):
        other[image] = np.roll(other[image], 1)
    assert agreement_of({"prob": other}, {"prob": PROBABILITIES}) == Agreement(TOP1, 5, 8)
    assert agreement_of({"prob": other}, {"prob": PROBABILITIES}).share == 5 / 8


def test_pixels_count_places():
    other = MAPS.copy()
    other[0, :, :10] = np.roll(other[0, :, :10], 1, axis=0)
    expected = int((other.argmax(1) == MAPS.argmax(1)).sum())
    assert agreement_of({"map": other}, {"map": MAPS}) == Agreement(PIXELS, expected, 2 * 40 * 48)


def grid(count):
    """Boxes that do not overlap."""
    place = np.arange(count, dtype=np.float32) * 30
    return np.stack([place, place, place + 20, place + 20], axis=1)[None]


def test_detections_count_boxes_of_the_benchmark_and_further_ones():
    boxes, scores = grid(30), SCORES.copy()
    benchmark = {"boxes": boxes, "scores": scores}
    assert agreement_of(benchmark, benchmark) == Agreement(DETECTIONS, 6, 6)
    moved = boxes.copy()
    moved[0, 0] += 5  # IoU 0.39
    moved[0, 1] += 0.3  # IoU 0.94
    fewer = scores.copy()
    fewer[0, 2, 2] = 0.3  # not found
    fewer[0, 9, 0], fewer[0, 9, 2] = 0.1, 0.7  # a further one
    # of six, one is moved and one not found; the moved one and the further one are detections of the sample alone
    assert agreement_of({"boxes": moved, "scores": fewer}, benchmark) == Agreement(DETECTIONS, 4, 8)


def test_boxes_by_centre_and_size_are_boxes_too():
    corners = grid(30)
    centres = np.concatenate([(corners[..., :2] + corners[..., 2:]) / 2, np.full((1, 30, 2), 20, np.float32)], axis=2)
    centres[0, :, 2:] = 1.5  # smaller than the centre: no corners
    outputs = {"boxes": centres.astype(np.float32), "scores": SCORES}
    assert agreement_of(outputs, outputs) == Agreement(DETECTIONS, 6, 6)


def test_suppression_leaves_one_box_of_several_for_one_thing():
    boxes = np.repeat(grid(1), 30, axis=1)
    outputs = {"boxes": boxes, "scores": SCORES}
    assert agreement_of(outputs, outputs) == Agreement(DETECTIONS, 1, 1)


def test_other_shapes_have_no_agreement():
    assert agreement_of({"prob": PROBABILITIES[:4]}, {"prob": PROBABILITIES}) is None
    assert agreement_of({}, {"prob": PROBABILITIES}) is None
