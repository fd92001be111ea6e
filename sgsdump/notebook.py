"""How a result shows, draws and writes itself: its class asks here, and who answers is named at the top of the package.

A room knows nothing of the rooms above it, reports among them. ``sgsdump/__init__.py`` calls ``show_by`` with names
only; what they name is imported when a notebook first shows such a result.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

_views: dict[str, str] = {}


def show_by(views: Mapping[str, str]) -> None:
    """Name the ``module:function`` that shows a result, draws or writes it, by the kind of result and what is asked."""
    _views.update(views)


def as_html(kind: str, result: object) -> str | None:
    """HTML for ``_repr_html_``; None, which lets a notebook show the ``repr``, for a kind without one."""
    return ask(kind, result) if kind in _views else None


def ask(kind: str, result: object, *further: object) -> Any:
    """What the function of this kind makes of the result."""
    module, _, function = _views[kind].partition(":")
    return getattr(importlib.import_module(module), function)(result, *further)
