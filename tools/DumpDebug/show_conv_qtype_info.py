#!/usr/bin/env python3
"""``show_conv_qtype_info.py`` at its place in the SDK; the file of this name in the folder tools does the work."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from door import enter
    from show_conv_qtype_info import main

    enter(main)
