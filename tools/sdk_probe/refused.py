#!/usr/bin/env python3
"""Whether sgsdump names exactly the networks that the SDK refuses, over a folder of probes and their said.tsv.

python tools/sdk_probe/refused.py PROBES

said.tsv has a line for each: name, the stage that failed (ok where none did), the SDK's last words. Prints each network
that is named without reason, or not named; the exit status is 1 where there is one.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(folder: Path) -> int:
    wrong = 0
    rows = [line.split("\t") for line in (folder / "said.tsv").read_text(encoding="utf-8").splitlines()]
    for name, stage, *_ in rows:
        named = refused(folder / name)
        if bool(named) != (stage != "ok"):
            wrong += 1
            print(f"{name}: the SDK says {stage}, sgsdump {'; '.join(named) or 'nothing'}")
    print(f"{len(rows) - wrong} of {len(rows)} as the SDK")
    return int(wrong > 0)


def refused(probe: Path) -> list[str]:
    """What sgsdump says that the SDK refuses of a probe."""
    from sgsdump.fixedpoint.quantisation.float_model import simplify
    from sgsdump.fixedpoint.sdk.converter import caffe_facts, config_facts, facts_of
    from sgsdump.models.model import open_model
    from sgsdump.sidecars import input_config

    config = input_config.read(probe / "input_config.ini")
    found = list(config_facts((entry.name, entry.training_format) for entry in config.inputs))
    if (probe / "net.prototxt").exists():
        outputs = [output.name for output in config.outputs]
        model = open_model(probe / "net.prototxt", probe / "net.caffemodel", staged_outputs=outputs)
        found += caffe_facts(model.caffe.layers, model.caffe.other_weights).refused
    else:
        found += facts_of(simplify(open_model(probe / "net.onnx")).proto).refused
    return [str(row) for row in found if not (row.above_l1 and not re.search("_L[2-5]$", probe.name))]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
