"""The layers as notes beside the nodes of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sgsdump.models.node_notes import Note
from sgsdump.reports.layers.table import Entry, LayerTable
from sgsdump.reports.text import shown


def notes_of(table: LayerTable, in_model: Mapping[str, str] | None = None) -> list[Note]:
    """A note for every layer: its verdict, its figures as the other reports show them, and the remark on it. What was
    not compared says why.

    in_model  what the model calls a layer's tensor, where it has another name for it.
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
