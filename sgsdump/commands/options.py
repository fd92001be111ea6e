"""Options that several commands share, so that one thing is spelled and explained one way."""

from __future__ import annotations

import argparse
from pathlib import Path

INPUTS = "picture, folder, list file, .npy, or random[:SEED]"


def add_model(parser: argparse.ArgumentParser, text: str = "float model: ONNX, or Caffe's .prototxt") -> None:
    """``-m/--model`` and, for Caffe, ``--weight-file``."""
    parser.add_argument("-m", "--model", type=Path, required=True, help=text)
    parser.add_argument("--weight-file", type=Path, metavar="W.caffemodel", help="weights of a Caffe model")


def add_feeds(parser: argparse.ArgumentParser, text: str = INPUTS) -> None:
    """``-i/--image`` or ``--data-loader-script``, and ``-n/--preprocess``."""
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("-i", "--image", help=text)
    add_data_loader(one)
    parser.add_argument("-n", "--preprocess", help="your preprocess file(s), one per input, by commas")


def add_data_loader(parser: argparse._ActionsContainer) -> None:
    """``--data-loader-script``, by Polygraphy's name."""
    parser.add_argument(
        "--data-loader-script",
        metavar="FILE.py",
        help="Python with load_data(), which yields an input dict for each run",
    )


def add_provider(parser: argparse.ArgumentParser) -> None:
    """``--provider`` of onnxruntime."""
    parser.add_argument(
        "--provider", default="CPU", metavar="NAME", help="execution provider, such as CUDAExecutionProvider (CPU)"
    )


def add_pictures(parser: argparse.ArgumentParser, text: str = INPUTS, required: bool = True) -> None:
    """``-i/--image`` and ``-n/--preprocess``."""
    parser.add_argument("-i", "--image", required=required, help=text)
    parser.add_argument("-n", "--preprocess", help="your preprocess file(s), one per input, by commas")
