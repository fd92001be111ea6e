"""The page inside a notebook: an iframe that holds the whole page and loads nothing."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from sgsdump.files.atomic_write import replace_text

HEIGHT = 900


@dataclass(frozen=True)
class Page:
    """Page of a result, which a notebook shows in a frame.

    Attributes
    ----------
    text : str
        HTML of the page, the same that ``to_html`` writes.
    height : int
        Height of the frame in pixels.
    """

    text: str
    height: int = HEIGHT

    def save(self, path: str | Path) -> Path:
        """Write the page as a single self-contained file. Raises OutputError."""
        replace_text(Path(path), self.text)
        return Path(path)

    def _repr_html_(self) -> str:
        # Without allow-same-origin, the page cannot reach the notebook.
        page = html.escape(self.text, quote=True)
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{page}" width="100%" height="{self.height}" '
            f'title="Report" style="border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<Page of {len(self.text):,} characters; save(path) writes it>"
