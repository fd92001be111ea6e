#!/usr/bin/env python3
"""Make the fixed model and the log folder from images, as the SDK's sim_calibrator.py does.

sim_calibrator.py -i images -m float_model -n preprocess.py --input_config input_config.ini [-o fixed_model]

example:
  sim_calibrator.py -i img/ -m net_float.sim -n net.py --input_config input.ini --quant_file optimized_quant_info_0.pkl

The float model is float.sim of the SDK, ONNX or Caffe. The fixed model is ONNX: -o net_fixed.sim writes
net_fixed.onnx. If there is no net_fixed.sim, simulator.py -m net_fixed.sim uses net_fixed.onnx.
Without -o, the fixed model is ./MODEL_fixed.onnx; a name that ends in _float becomes _fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("sim_calibrator.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.cli import main as sgsdump
    from sgsdump.commands.sdk.options import NoEffect, calibrate_arguments

    no_effect = [
        NoEffect(("--mixed_precision",), "input_config.ini selects the bit widths"),
        NoEffect(("--show_log",), "there is no other log", value=False),
        NoEffect(("--work_mode",), "there is only one way to calibrate"),
        NoEffect(("--soc_version",), "the calibration is the same for all chips"),
    ]
    own = {("--quant_file",): "quantisation parameters (JSON or pickle), or tensor_min_max.txt"}
    arguments, notes = calibrate_arguments("sim_calibrator.py", __doc__, own, no_effect, argv)
    for note in notes:
        print(note, file=sys.stderr)
    return sgsdump(["calibrate", *arguments])


if __name__ == "__main__":
    from door import enter

    enter(main)
