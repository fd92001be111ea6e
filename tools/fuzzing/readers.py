"""How damaged files are read: as a side file, an input or a dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.inputs import INPUTS
from fuzzing.trial import Contradiction, check_lines
from sgsdump import Dump, Tensor, open_dump
from sgsdump.comparison.naming import NAME_FILES
from sgsdump.errors import SgsdumpError
from sgsdump.models.model import Model, has_net, listing_of, net_of, open_model
from sgsdump.reports.model_listing import listing_json, listing_text
from sgsdump.sidecars import SIDECARS

SIDE_FILES = {**SIDECARS, **NAME_FILES}
MOST_RECORDS = 300


def reader(format: str) -> Callable[[Path], Any]:
    """How files of a format are read."""
    return SIDE_FILES.get(format) or INPUTS.get(format) or MODEL_FILES.get(format) or read_dump


def read_model(path: Path) -> Model:
    """Open a model file of the SDK, and all that it can tell without being run."""
    listing = listing_of(path)
    if listing is not None:
        listing_text(listing), listing_json(listing)
    if has_net(path):
        try:
            net_of(path)
        except SgsdumpError as error:
            check_lines(str(error))
    return open_model(path)


MODEL_FILES = {"sim": read_model, "img": read_model}


def read_dump(path: Path) -> Dump:
    """Open a dump and read all that it can tell."""
    dump = open_dump(path)
    check_lines(*dump.notes)
    assert dump.inputs is not None and dump.constants is not None and repr(dump)
    for record in dump.records[:MOST_RECORDS]:
        read_values(record.tensor)
    return dump


def read_values(tensor: Tensor) -> None:
    info = tensor.info
    for load in (tensor.raw, tensor.stored, tensor.real):
        try:
            array = load()
        except SgsdumpError as error:
            check_lines(str(error))
            continue
        if load == tensor.real:
            right = array.dtype == np.float32
        else:
            right = array.dtype == info.dtype and (load == tensor.raw or info.shape in (None, array.shape))
        if not right:
            said = f"{info.dtype} {info.shape}"
            raise Contradiction(f"{load.__name__}() gives {array.dtype} {array.shape}, the facts say {said}")
