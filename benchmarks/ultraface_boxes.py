"""Faces that a quantised UltraFace finds as the float one does: a metric for ``sgsdump tune --metric``.

    sgsdump tune … --metric benchmarks/ultraface_boxes.py:matches

The boxes output is SSD regression against priors (Linzaixu, Ultra-Light-Fast-Generic-Face-Detector-1MB, MIT, 320x240):
centre = prior centre + 0.1 * offset * prior size, size = prior size * exp(0.2 * offset).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

MAPS = ((40, 30), (20, 15), (10, 8), (5, 4))  # width, height
SIZES = ((10, 16, 24), (32, 48), (64, 96), (128, 192, 256))
PICTURE = (320, 240)
CENTRE_VARIANCE, SIZE_VARIANCE = 0.1, 0.2
THRESHOLD, SUPPRESS, SAME = 0.7, 0.3, 0.9


def priors() -> np.ndarray:
    """[4420, 4]: centre x, centre y, width, height, in parts of the picture."""
    found = []
    for (width, height), sizes in zip(MAPS, SIZES):
        # The map's cells are strides of 8, 16, 32 and 64 pixels, also where they overhang the picture.
        stride = 2 ** (3 + MAPS.index((width, height)))
        for y in range(height):
            for x in range(width):
                centre = ((x + 0.5) * stride / PICTURE[0], (y + 0.5) * stride / PICTURE[1])
                found += [(*centre, size / PICTURE[0], size / PICTURE[1]) for size in sizes]
    return np.clip(np.array(found), 0, 1)


PRIORS = priors()


def faces(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """[n, 4] corners of the faces, the surest first: scores above THRESHOLD, overlaps suppressed."""
    scores, offsets = outputs["scores"][0, :, 1], outputs["boxes"][0].astype(np.float64)
    centres = PRIORS[:, :2] + CENTRE_VARIANCE * offsets[:, :2] * PRIORS[:, 2:]
    sizes = PRIORS[:, 2:] * np.exp(SIZE_VARIANCE * offsets[:, 2:])
    corners = np.hstack([centres - sizes / 2, centres + sizes / 2])
    return apart(corners, scores)


def apart(corners: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """[n, 4] of corners [m, 4] with scores above THRESHOLD, overlaps suppressed, the surest first."""
    kept: list[np.ndarray] = []
    sure = np.flatnonzero(scores > THRESHOLD)
    rest = corners[sure[np.argsort(-scores[sure], kind="stable")]]
    while len(rest):
        kept.append(rest[0])
        rest = rest[1:][overlaps(rest[0], rest[1:]) <= SUPPRESS]
    return np.array(kept).reshape(-1, 4)


def overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union [n] of a box [4] with others [n, 4]."""
    inner = np.prod(np.maximum(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0), axis=1)
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    return inner / (np.prod(box[2:] - box[:2]) + areas - inner)


def matches(outputs: Mapping[str, np.ndarray], floats: Mapping[str, np.ndarray]) -> float:
    """How many of the float model's faces the quantised model finds, each once and with IoU >= SAME."""
    return float(same(faces(outputs), faces(floats)))


def same(found: np.ndarray, wanted: np.ndarray) -> int:
    """How many of the faces wanted [n, 4] are among those found [m, 4]."""
    count = 0
    for face in wanted:
        shares = overlaps(face, found)
        if len(shares) and shares.max() >= SAME:
            count += 1
            found = np.delete(found, shares.argmax(), axis=0)
    return count
