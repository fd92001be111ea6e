"""``dump_path`` of acl.json: a folder that is there and may be written, or ``IP:PATH`` of another machine."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

MOST_LETTERS = 512


def trouble_with(path: str) -> str | None:
    """What is wrong with the folder, None where nothing is; seen from the current folder."""
    address, colon, _ = path.partition(":")
    if colon and _is_address(address):
        return None
    if len(path) > MOST_LETTERS:
        return f"The path has {len(path)} characters, at most {MOST_LETTERS} are allowed"
    if not Path(path).exists():
        return "The path does not exist"
    if not Path(path).is_dir():
        return "The path is not a directory"
    if not os.access(path, os.R_OK | os.W_OK):
        return "The path is not readable and writable"
    return None


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.IPv4Address(text))
    except ValueError:
        return False
