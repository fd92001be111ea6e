"""Accuracy without labels: the share of answers on which the sample agrees with the benchmark.

Three templates, chosen by the shapes of the outputs (``template_of``):

top1-agreement       class scores [N, C]: the class with the largest score is the same.
detection-agreement  boxes [N, M, 4] and scores [N, M, K]: a detection of the benchmark agrees if the sample has one of
                     the same class with IoU of at least 0.9. Detections of the sample alone do not agree. Detections
                     are boxes whose score is at least 0.5, after non-maximum suppression at IoU 0.5.
pixel-agreement      class maps [N, C, H, W] or [N, H, W, C]: the class with the largest score is the same.

Outputs of other shapes, or of shapes that have another meaning (an embedding, a depth map), have no template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

TOP1, DETECTIONS, PIXELS = "top1-agreement", "detection-agreement", "pixel-agreement"
NONE = "none"  # switches the templates off
NAMES = (TOP1, DETECTIONS, PIXELS)
SAME_BOX, SUPPRESSED, CONFIDENT = 0.9, 0.5, 0.5
# A smaller map is the head of a detector, a larger number of channels is a feature map.
SMALLEST_MAP, MOST_CLASSES = 32, 256
MOST_VALUES = 1 << 24  # of one output
MOST_BOXES = 512  # of one image that suppression keeps
Outputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Agreement:
    """How many answers agree.

    template  name of the template.
    agree     number of answers that agree.
    of        number of answers: images, detections or pixels.
    """

    template: str
    agree: int
    of: int

    @property
    def share(self) -> float:
        """The share of answers that agree; 1 without any answer."""
        return self.agree / self.of if self.of else 1.0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.template, self.agree + other.agree, self.of + other.of)


def template_of(outputs: Outputs) -> str | None:
    """Return the name of the template for these outputs of the benchmark; None if there is none."""
    finite = {name: array for name, array in outputs.items() if array.size and np.isfinite(array).all()}
    if len(finite) < len(outputs) or any(array.size > MOST_VALUES for array in finite.values()):
        return None
    return next((name for name, template in _TEMPLATES.items() if template.fits(finite)), None)


def agreement_of(sample: Outputs, benchmark: Outputs, template: str | None = None) -> Agreement | None:
    """Return how many answers of two models agree on the same inputs.

    Parameters
    ----------
    sample, benchmark
        Real values of the outputs of both models by the same names, arrays of shape [N, ...].
    template
        Name of the template; None to choose the template by the shapes.

    Returns
    -------
    Agreement or None
        None if the outputs have no template, or if their shapes differ.
    """
    both = {name: array for name, array in benchmark.items() if name in sample and sample[name].shape == array.shape}
    chosen = template_of(both) if template is None else template
    if not both or chosen is None or not _TEMPLATES[chosen].fits(both):
        return None
    return Agreement(chosen, *_TEMPLATES[chosen].count({name: sample[name] for name in both}, both))


@dataclass(frozen=True)
class _Template:
    fits: Callable[[Outputs], bool]
    count: Callable[[Outputs, Outputs], tuple[int, int]]


def _scores(outputs: Outputs) -> list[str]:
    """Return the names of the class scores: a single output, or among several those that are probabilities."""
    if len(outputs) == 1:
        return [name for name, array in outputs.items() if _without_ones(array) and not _is_embedding(array)]
    return [name for name, array in outputs.items() if _without_ones(array) and _are_probabilities(array)]


def _without_ones(array: np.ndarray) -> tuple[int, ...]:
    """Return the shape [N, C] of class scores, whose further axes have length 1; () for other shapes."""
    shape = array.shape
    if array.ndim == 1:
        shape = (1, *shape)
    long = [size for size in shape[1:] if size > 1]
    return (shape[0], long[0]) if len(long) == 1 and shape[0] < 1 << 16 else ()


def _is_embedding(array: np.ndarray) -> bool:
    """Return whether rows have unit length: vectors to compare, not scores of classes."""
    rows = array.reshape(_without_ones(array)).astype(np.float64)
    return bool(np.allclose(np.sqrt((rows**2).sum(axis=1)), 1, atol=1e-3)) and not _are_probabilities(array)


def _are_probabilities(array: np.ndarray) -> bool:
    rows = array.reshape(_without_ones(array)).astype(np.float64)
    return bool(rows.min() >= 0 and np.allclose(rows.sum(axis=1), 1, atol=0.05))


def _count_scores(sample: Outputs, benchmark: Outputs) -> tuple[int, int]:
    agree, of = np.array(True), 1
    for name in _scores(benchmark):
        array = benchmark[name]
        shape = _without_ones(array)
        same = sample[name].reshape(shape).argmax(axis=1) == array.reshape(shape).argmax(axis=1)
        agree, of = np.logical_and(agree, same), len(same)
    return int(np.broadcast_to(agree, of).sum()), of


def _boxes_and_scores(outputs: Outputs) -> tuple[str, str] | None:
    """Return the names of the boxes and of the scores; None if the outputs are others."""
    if len(outputs) != 2:
        return None
    for boxes, scores in ((a, b) for a in outputs for b in outputs if a != b):
        one, other = outputs[boxes], outputs[scores]
        are = one.ndim == other.ndim == 3 and one.shape[2] == 4 and one.shape[:2] == other.shape[:2]
        if are and other.min() >= -1e-3 and other.max() <= 1 + 1e-3 and _corners(one) is not None:
            return boxes, scores
    return None


def _corners(boxes: np.ndarray) -> np.ndarray | None:
    """Return boxes as corners (x1, y1, x2, y2); None if the numbers are no boxes, such as offsets to anchors."""
    flat = boxes.reshape(-1, 4).astype(np.float64)
    are_corners = (flat[:, 2:] >= flat[:, :2]).all(axis=1)
    if are_corners.mean() >= 0.9:
        return flat.reshape(boxes.shape)
    if (flat >= 0).all() and (flat[:, 2:] > 0).all():
        half = flat[:, 2:] / 2
        return np.concatenate([flat[:, :2] - half, flat[:, :2] + half], axis=1).reshape(boxes.shape)
    return None


def _count_detections(sample: Outputs, benchmark: Outputs) -> tuple[int, int]:
    names = _boxes_and_scores(benchmark)
    assert names is not None, "they fit"
    boxes, scores = names
    background = _background(benchmark[scores])
    agree = of = 0
    ours, theirs = _corners(sample[boxes]), _corners(benchmark[boxes])
    assert theirs is not None, "they fit"
    for index in range(len(theirs)):
        there = _candidates(theirs[index], benchmark[scores][index], background)
        here = _candidates((ours if ours is not None else sample[boxes])[index], sample[scores][index], background)
        kept_there, kept_here = _suppressed(there), _suppressed(here)
        found = sum(_is_among(one, here) for one in kept_there)
        agree += found
        of += len(kept_there) + sum(not _is_among(one, there) for one in kept_here)
    return agree, of


def _background(scores: np.ndarray) -> int | None:
    """Return the class of the background: one that nearly all boxes have; None if there is none."""
    means = scores.reshape(-1, scores.shape[2]).mean(axis=0)
    return int(means.argmax()) if len(means) > 1 and means.max() > CONFIDENT else None


def _candidates(boxes: np.ndarray, scores: np.ndarray, background: int | None) -> np.ndarray:
    """Return the confident detections, the best first: [n, 6] of corners, class and score."""
    scores = scores.astype(np.float64).copy()
    if background is not None:
        scores[:, background] = -1
    classes, best = scores.argmax(axis=1), scores.max(axis=1)
    kept = np.flatnonzero(best >= CONFIDENT)
    kept = kept[np.argsort(-best[kept], kind="stable")]
    return np.concatenate([boxes[kept], classes[kept, None], best[kept, None]], axis=1)


def _suppressed(detections: np.ndarray) -> list[np.ndarray]:
    """Return the detections after non-maximum suppression within each class."""
    kept: list[np.ndarray] = []
    while len(detections) and len(kept) < MOST_BOXES:
        first = detections[0]
        kept.append(first)
        other = (_iou(first, detections) <= SUPPRESSED) | (detections[:, 4] != first[4])
        other[0] = False
        detections = detections[other]
    return kept


def _is_among(detection: np.ndarray, others: np.ndarray) -> bool:
    alike = others[others[:, 4] == detection[4]]
    return bool(len(alike)) and bool(_iou(detection, alike).max() >= SAME_BOX)


def _iou(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection over union of a box with others, by corners."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:4], others[:, 2:4])
    common = np.clip(high - low, 0, None).prod(axis=1)
    areas = (others[:, 2:4] - others[:, :2]).prod(axis=1) + (box[2:4] - box[:2]).prod() - common
    return np.divide(common, areas, out=np.zeros_like(common), where=areas > 0)


def _class_axis(array: np.ndarray) -> int | None:
    """Return the axis of the classes of class maps; None for other arrays, such as images and detector heads."""
    if array.ndim != 4:
        return None
    axis = 1 if array.shape[1] <= array.shape[3] else 3
    classes, places = array.shape[axis], [size for i, size in enumerate(array.shape[1:], 1) if i != axis]
    are_probabilities = array.min() >= 0 and np.allclose(array.sum(axis=axis), 1, atol=0.05)
    is_image = classes in (1, 3) and not are_probabilities
    fits = 2 <= classes <= MOST_CLASSES and min(places) >= SMALLEST_MAP and classes < min(places)
    return axis if fits and not is_image else None


def _is_of_maps(outputs: Outputs) -> bool:
    shapes = {array.shape[:1] + array.shape[2:] for array in outputs.values()}
    return len(shapes) == 1 and all(_class_axis(array) is not None for array in outputs.values())


def _count_pixels(sample: Outputs, benchmark: Outputs) -> tuple[int, int]:
    agree = of = 0
    for name, array in benchmark.items():
        axis = _class_axis(array)
        same = sample[name].argmax(axis=axis) == array.argmax(axis=axis)
        agree, of = agree + int(same.sum()), of + same.size
    return agree, of


_TEMPLATES = {
    DETECTIONS: _Template(lambda outputs: _boxes_and_scores(outputs) is not None, _count_detections),
    PIXELS: _Template(_is_of_maps, _count_pixels),
    TOP1: _Template(lambda outputs: bool(_scores(outputs)), _count_scores),
}
