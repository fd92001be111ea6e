"""Advice as text: one line for every convolution, worst first."""

from __future__ import annotations

from collections.abc import Sequence

from sgsdump.tuning.advice import Advice, Measured

_LEGEND = """\
own, inherited: error of what the convolution puts out (sum |a-b| / sum |b|), from its own 8 bits and from the 8 bits
of the layers before it. brings: output error when it alone has 8 bits. removes: part of the output error that goes
away when it alone has 16.
"""


def render(advice: Sequence[Advice]) -> str:
    """The table; the measured columns only where something was measured."""
    if not advice:
        return ""
    measured = any(entry.measured for entry in advice)
    head = ["INT16", "convolution", "type", "input", "range"]
    head += ["own", "inherited", "brings", "removes", "why"] if measured else ["why"]
    lines = [head, *(_cells(entry, measured) for entry in advice)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)] + [0]
    numbers = range(4, len(head) - 1)
    text = "".join(
        "  ".join(f"{c:>{w}}" if i in numbers else f"{c:<{w}}" for i, (c, w) in enumerate(zip(line, widths))).rstrip()
        + "\n"
        for line in lines
    )
    return text + (_LEGEND if measured else "")


def _cells(entry: Advice, measured: bool) -> list[str]:
    conv = entry.convolution
    width = f"{entry.signs.width:.4g}" if entry.signs.limits else "-"
    cells = [entry.verdict, _readable(conv.name), conv.op_type, _readable(conv.shown_input), width]
    if measured:
        cells += _numbers(entry.measured)
    return [*cells, _readable(entry.reason)]


def _numbers(measured: Measured | None) -> list[str]:
    if measured is None:
        return ["-"] * 4
    return [
        f"{measured.own:.4f}",
        f"{measured.inherited:.4f}",
        f"{measured.brings:.4f}",
        f"{round(100 * measured.removes_share)} %",
    ]


def _readable(text: str) -> str:
    return text if text.isprintable() else repr(text)
