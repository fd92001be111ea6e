"""Readers of .sim files and offline images: recognise the files and read their models."""

from __future__ import annotations

from pathlib import Path

from sgsdump.errors import FormatError
from sgsdump.models.listing import ModelListing
from sgsdump.models.model import Model, ModelReader
from sgsdump.models.readers import MARK
from sgsdump.sidecars.parse_net import ParseNet

_IMAGE_MARK = b"SGSI"
ENDING = ".sim"


def is_sim(path: Path, head: bytes) -> bool:
    """Return whether a file is a .sim file, of a known or unknown layout, or has its ending; ``head``: first bytes."""
    from sgsdump.files.mapped import map_file

    if path.suffix == ENDING:
        return True
    if head[4:8] != MARK:
        return False
    from sgsdump.fixedpoint.sim import file

    try:
        return file.is_sim(map_file(path))
    except FormatError:
        return False


def is_image(path: Path, head: bytes) -> bool:
    """Return whether a file is an offline image; ``head``: its first bytes."""
    return head.startswith(_IMAGE_MARK)


def _read_sim(path: Path) -> Model:
    from sgsdump.fixedpoint.sim.file import INTEGER_KINDS, read

    sim = read(path)
    if sim.kind in INTEGER_KINDS:
        from sgsdump.fixedpoint.sim.plan import fixed_model

        return fixed_model(sim)
    from sgsdump.fixedpoint.sim.onnx_graph import float_model

    return float_model(sim)


def read_image(path: Path) -> Model:
    """Return the fixed model inside an offline image. Raises ModelError."""
    from sgsdump.fixedpoint.sim.image import read
    from sgsdump.fixedpoint.sim.plan import fixed_model

    return fixed_model(read(path).model)


def _list_sim(path: Path) -> ModelListing:
    from sgsdump.fixedpoint.sim.listing import list_sim

    return list_sim(path)


def _list_image(path: Path) -> ModelListing:
    from sgsdump.fixedpoint.sim.listing import list_image

    return list_image(path)


def _net_of_sim(path: Path) -> ParseNet:
    from sgsdump.fixedpoint.sim.net import net_of_sim

    return net_of_sim(path)


def _net_of_image(path: Path) -> ParseNet:
    from sgsdump.fixedpoint.sim.net import net_of_image

    return net_of_image(path)


def _net_text(path: Path) -> str:
    from sgsdump.fixedpoint.sim.net import text_of_sim

    return text_of_sim(path)


SIM = ModelReader("sim", is_sim, _read_sim, listing=_list_sim, net=_net_of_sim, net_text=_net_text, endings=(ENDING,))
IMAGE = ModelReader("img", is_image, read_image, listing=_list_image, net=_net_of_image)
