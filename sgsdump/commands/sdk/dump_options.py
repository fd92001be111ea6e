"""The options that the SDK's scripts onnx_dump_data.py, caffe_dump_data.py and tflite_dump_data.py share."""

from __future__ import annotations

import argparse


def dump_parser(description: str | None, model: str) -> argparse.ArgumentParser:
    """A parser with these options; ``model`` is the help text of -m."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model_file", required=True, help=model)
    parser.add_argument("-i", "--image", required=True, help="picture, folder or list file")
    parser.add_argument("--dump_bin", choices=["True", "False"], default="True", help="binary or text (%(default)s)")
    parser.add_argument("-n", "--preprocess", help="preprocess file(s) with get_image, one per input, by commas")
    return parser
