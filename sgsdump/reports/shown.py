"""Texts and numbers as the page shows them."""

from __future__ import annotations

import math
import unicodedata

# Besides what is invisible (control, format, surrogate, private, line and paragraph separators) nothing is changed.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def shown(text: str) -> str:
    """A name as text that reads as it is: characters that are invisible or turn the direction of writing, and lone
    surrogates of names that are not UTF-8, as ``\\u202e`` and the like."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _INVISIBLE else char for char in text)


def copied(text: str) -> str:
    """A text to copy, as it is save for lone surrogates, which no page in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def number(value: float | None, digits: int = 6) -> str:
    """As the other reports print it, six decimals; nan, inf and -inf as these words, and small numbers in full."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    if value and abs(value) < 10 ** (1 - digits):
        return f"{value:.3g}"
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.6g}"


def plain(value: float | None) -> float | str | None:
    """For JSON, which has no NaN and no infinity: these are strings, which float() reads."""
    if value is None:
        return None
    return float(value) if math.isfinite(value) else str(float(value))


def rounded(value: float, digits: int = 4) -> float | str:
    """To so many significant digits, for what is drawn only."""
    return plain(float(f"{value:.{digits - 1}e}")) if math.isfinite(value) else str(float(value))  # type: ignore


def whole(value: float) -> int:
    """A count to three significant digits, for what is drawn only."""
    return int(float(f"{value:.2e}"))


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def left_out_title(missing: int, expected: int) -> str:
    """The heading over what was not compared: what is missing, and what the other dump cannot have."""
    own = f"Without counterpart, so not missing: {expected}"
    return f"Not compared: {missing}{f'. {own}' if expected else ''}" if missing or not expected else own
