"""How a result shows itself in a notebook: its class asks here, and who answers is named at the top of the package.

A room knows nothing of the rooms above it, reports among them. ``sgsdump/__init__.py`` calls ``show_by`` with names
only; what they name is imported when a notebook first shows such a result.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

_views: dict[str, str] = {}


def show_by(views: Mapping[str, str]) -> None:
    """Name the ``module:function`` that makes a result's HTML, for each kind of result."""
    _views.update(views)


def as_html(kind: str, result: object) -> str | None:
    """HTML for ``_repr_html_``; None, which lets a notebook show the ``repr``, for a kind without one."""
    if kind not in _views:
        return None
    module, _, function = _views[kind].partition(":")
    html: str = getattr(importlib.import_module(module), function)(result)
    return html
