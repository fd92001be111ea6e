"""A griffe extension: docstrings as this project writes them, as the sections that a reference shows.

Lines ``name  what it is``, with continuations further to the right, are a list of names; ``Raises …``
is a paragraph of its own; ``>>>`` is an example. The rest is text.
"""

from __future__ import annotations

import re

import griffe

ENTRY = re.compile(r"^(\*?\w+(?:,? \*?\w+)*)  +(\S.*)$")


class Sections(griffe.Extension):
    """Rewrites the docstring of every object into Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    lines: list[str] = []
    within = ""  # "entry", "example" or "" for text
    for line in text.splitlines():
        stripped, entry = line.strip(), ENTRY.match(line)
        if stripped.startswith(">>>") and within != "example":
            lines += ["", "```pycon"]
            within = "example"
        elif within == "example" and not stripped:
            lines.append("```")
            within = ""
        if within == "example":
            lines.append(line)
        elif entry and not stripped.startswith(">>>"):
            lines += ["" if within != "entry" else None, f"- **{entry[1]}**: {entry[2]}"]  # type: ignore[list-item]
            within = "entry"
        elif within == "entry" and line.startswith("  "):
            lines.append(f"  {stripped}")
        else:
            lines += [""] if within == "entry" and stripped else []
            within = ""
            lines.append(re.sub(r"^Raises\b", "**Raises**", stripped))
    lines += ["```"] if within == "example" else []
    return re.sub(r"``(.+?)``", r"`\1`", "\n".join(line for line in lines if line is not None))
