#!/usr/bin/env python3
"""Make the fixed model and the log folder from images, as the SDK's calibrator.py does.

calibrator.py -i images -m float_model -n preprocess.py --input_config input_config.ini [-o fixed_model]

example:
  calibrator.py -i images/ -m net_float.sim -n net.py --input_config input_config.ini

The float model is float.sim of the SDK, ONNX or Caffe. The fixed model is ONNX: -o net_fixed.sim writes
net_fixed.onnx. If there is no net_fixed.sim, simulator.py -m net_fixed.sim uses net_fixed.onnx.
Without -o, the fixed model is ./MODEL_fixed.onnx; a name that ends in _float becomes _fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("calibrator.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.cli import main as sgsdump
    from sgsdump.commands.sdk.options import NoEffect, calibrate_arguments

    no_effect = [
        NoEffect(("-c", "--category"), "the ranges are the same for every category"),
        NoEffect(("-t", "--tool"), "there is no other calibrator to start"),
        NoEffect(("--save_input",), "preprocessed images are not kept", value=False),
        NoEffect(("--soc_version",), "the calibration is the same for all chips"),
    ]
    own = {
        (
            "-sth",
            "--sensitivity_threshold",
        ): "L4, L5: output change above which a convolution is raised to INT16 (default: 0.002)"
    }
    arguments, notes = calibrate_arguments("calibrator.py", __doc__, own, no_effect, argv)
    for note in notes:
        print(note, file=sys.stderr)
    return sgsdump(["calibrate", *arguments])


if __name__ == "__main__":
    from door import enter

    enter(main)
