"""Values of options, read and checked: functions for argparse's ``type``."""

from __future__ import annotations

import argparse
import math


def whole_number(text: str) -> int:
    """1 or more."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text} is no number of 1 or more")
    return int(text)


def not_negative(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text} is no number of 0 or more")
    return value


def threshold(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is no threshold")
    return value


def size_in_bytes(text: str) -> int:
    """``500M``, ``20G``, ``1000``."""
    unit = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1:].upper(), 0)
    digits = text[:-1] if unit else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16 and int(digits)):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 500M or 20G")
    return int(digits) << unit


def names(text: str) -> list[str]:
    """What commas separate."""
    return [name.strip() for name in text.split(",") if name.strip()]
