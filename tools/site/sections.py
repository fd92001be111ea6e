"""A griffe extension that prepares docstrings for mkdocstrings.

NumPy sections are left to mkdocstrings. In the text before the first section, lines ``name  meaning`` become a list,
``Raises ...`` becomes bold, and ``>>>`` begins an example. Double backquotes become Markdown code.
"""

from __future__ import annotations

import re

import griffe

ENTRY = re.compile(r"^(\*?\w+(?:,? \*?\w+)*)  +(\S.*)$")
SECTION = re.compile(r"^\S.*\n-{3,}$", re.MULTILINE)


class Sections(griffe.Extension):
    """Rewrites the docstring of every object as Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown, with its NumPy sections unchanged."""
    first = SECTION.search(text)
    head, sections = (text, "") if first is None else (text[: first.start()], text[first.start() :])
    head = _as_markdown(head) + "\n" * bool(sections)
    # doctest's directives are no part of an example for readers
    sections = re.sub(r" *# doctest: .*$", "", sections, flags=re.MULTILINE)
    return re.sub(r"``(.+?)``", r"`\1`", head + sections)


def _as_markdown(text: str) -> str:
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
    return "\n".join(line for line in lines if line is not None)
