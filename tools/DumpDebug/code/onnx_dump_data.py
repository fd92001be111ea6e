#!/usr/bin/env python3
"""``onnx_dump_data.py`` at its place in the SDK; the work is done by the file of this name in the folder tools."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from door import enter
    from onnx_dump_data import main

    enter(main)
