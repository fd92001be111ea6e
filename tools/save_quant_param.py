#!/usr/bin/env python3
"""Write the quantisation parameters of a fixed model for --quant_file, as the SDK's save_quant_param.py does.

save_quant_param.py -m net_fixed.sim --output_mode JSON|Pickle

The file is MODEL.json or MODEL.pkl beside the model. It has the name, min, max and bit of every tensor and weight.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

FORMS = {"JSON": "json", "Pickle": "pickle"}
ENDINGS = {"JSON": ".json", "Pickle": ".pkl"}


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("save_quant_param.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.fixedpoint.quantisation.quant_file import quant_params
    from sgsdump.models.model import open_model
    from sgsdump.sidecars import quant_param

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-m", "--model", required=True, help="fixed model: fixed.sim, or the ONNX file of calibrator.py"
    )
    parser.add_argument(
        "--output_mode", choices=list(FORMS), default="JSON", help="format of the file (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    params = quant_params(open_model(args.model))
    path = Path(f"{args.model}{ENDINGS[args.output_mode]}")
    quant_param.write(params, path, FORMS[args.output_mode])
    print(f"{path}: {len(params)} tensors")
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
