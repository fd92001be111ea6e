"""Layers of a comparison as notes on the nodes of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sgsdump.models.node_notes import Note
from sgsdump.reports.layers.table import Entry, LayerTable
from sgsdump.reports.text import shown


def notes_of(table: LayerTable, in_model: Mapping[str, str] | None = None) -> list[Note]:
    """Return a note per layer: its verdict, its figures as in other reports, and the remark or the reason.

    in_model  the model's name of a layer's tensor, if it differs.
    """
    return [_note(entry, in_model or {}) for entry in table.entries]


def _note(entry: Entry, in_model: Mapping[str, str]) -> Note:
    texts = {"verdict": entry.verdict, **{name: entry.text(name) for name in entry.figures}}
    texts |= {"limits": entry.limits} if entry.limits else {}
    texts |= {"remark": entry.remark} if entry.remark else {}
    rank = math.inf if math.isnan(entry.error) else entry.error if entry.status == "compared" else -1.0
    names = [name for name in (entry.name, entry.sample_name) if name]
    names += [in_model[name] for name in names if name in in_model]
    return Note(tuple(dict.fromkeys(names)), {shown(name): shown(text) for name, text in texts.items()}, rank)
