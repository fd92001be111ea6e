"""Options that several commands share, so that one thing is spelled and explained one way."""

from __future__ import annotations

import argparse
from pathlib import Path

INPUTS = "picture, folder, list file, .npy, or random[:SEED]"


def add_model(parser: argparse.ArgumentParser, text: str = "float model: ONNX, or Caffe's .prototxt") -> None:
    """``-m/--model`` and, for Caffe, ``--weight-file``."""
    parser.add_argument("-m", "--model", type=Path, required=True, help=text)
    parser.add_argument("--weight-file", type=Path, metavar="W.caffemodel", help="weights of a Caffe model")


def add_pictures(parser: argparse.ArgumentParser, text: str = INPUTS, required: bool = True) -> None:
    """``-i/--image`` and ``-n/--preprocess``."""
    parser.add_argument("-i", "--image", required=required, help=text)
    parser.add_argument("-n", "--preprocess", help="your preprocess file(s), one per input, by commas")
