#!/usr/bin/env python3
"""``caffe_dump_data.py`` at its place in the SDK; the work is done by the file of this name in the folder tools."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from caffe_dump_data import main
    from door import enter

    enter(main)
