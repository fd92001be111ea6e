"""One run of a small net, for tests that hold the same tensors in several formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from small_nets import conv, helper, model, weights

from sgsdump.pipeline.pipeline import Pipeline


def run_pipeline(folder: Path) -> None:
    """A dump_info folder of four 4-D outputs of 5 by 5 by 5, whose layout no shape tells."""
    names = ["block/conv:0", "block/relu:0", "block/conv2:0", "block/add:0"]
    nodes = [
        conv(names[0], "image:0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", [names[0]], [names[1]], name="block/relu"),
        conv(names[2], names[1], pads=[1, 1, 1, 1]),
        helper.make_node("Add", [names[2], names[1]], [names[3]], name="block/add"),
    ]
    constants = weights(names[0], (5, 5, 3, 3)) | weights(names[2], (5, 5, 3, 3), 1)
    pipeline = Pipeline(model(nodes, constants, {"image:0": (1, 5, 5, 5)}, [names[3]]), dump_info=folder)
    image = np.random.default_rng(5).normal(size=(1, 5, 5, 5)).astype(np.float32)
    pipeline.set_input_data(external_input_data={"image:0": image})
    pipeline.dump_full()
