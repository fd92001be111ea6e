"""The face detector that tuning is measured on: its ranges, and pictures as pairs of feeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ultraface_boxes

from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.tuning.setup import Judging, Setup, set_up
from sgsdump.models.feeds.feeds import PictureFeeds, feeds
from sgsdump.models.feeds.image_list import evenly
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.sidecars.input_config import InputConfig, ModelInput

MODEL = "ultraface/version-RFB-320_without_postprocessing.onnx"
CONFIG = InputConfig((ModelInput("input", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
RATE = 0.55
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class TunedNet:
    """The model, its ranges, and pictures as pairs of feeds."""

    def __init__(self, data: Path, pictures: int, calibrated_on: int | None = None):
        self.path = data / MODEL
        self.model = simplify(open_model(str(self.path)))
        specs = tuple(graph_inputs(self.model.proto))
        self.calibration = list(PictureFeeds(str(data / "images"), None, specs, CONFIG))[:calibrated_on]
        self.ranges = calibrate(self.model, self.calibration, CONFIG, "L3").ranges
        self.tuned_on = evenly(list(_pairs(data / "images", specs)), pictures)
        self.judged_on = list(_pairs(data / "ultraface" / "images", specs))

    def setup(self, judged: bool = False) -> Setup:
        pictures = self.judged_on if judged else self.tuned_on
        return set_up(self.model, self.ranges, CONFIG, pictures, Judging(ultraface_boxes.matches if judged else None))


def _pairs(images: Path, specs: tuple) -> Iterator[tuple[dict, dict]]:
    for (_, feed), (_, raw) in zip(
        PictureFeeds(str(images), None, specs, CONFIG), feeds(str(images), None, specs, CONFIG, normalised=False)
    ):
        yield feed, raw
