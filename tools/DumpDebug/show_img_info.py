#!/usr/bin/env python3
"""``show_img_info.py`` at its place in the SDK; the work is done by the file of this name in the folder tools."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from door import enter
    from show_img_info import main

    enter(main)
