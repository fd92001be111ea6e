"""Values printed ``%.6f, `` or ``%6d, ``, row upon row: read a piece of text at a time, by whole arrays.

A value of six decimals is an integer N over 10**6. Up to nine digits before the point N is below 2**53, so that both
are exact in float64 and their quotient is rounded once: it is what ``strtod`` gives. Eight digits at a time become a
number by arithmetic on the eight bytes as one integer, which is faster than a digit at a time.

A piece of text begins behind a comma and ends before one. What is not printed exactly so (nan, inf, longer numbers,
another hand's spaces) is None here and read another way.
"""

from __future__ import annotations

import numpy as np

_PADDING = bytes(16)
_COMMA, _NEWLINE, _SPACE, _MINUS = b",\n -"
_DECIMALS, _MOST_DIGITS, _WIDTH = 6, 9, 6
_WORD = np.dtype("<u8")


def floats(text: bytes) -> np.ndarray | None:
    """The float32 values of `` 1.500000, -0.250000, …``; None for any other text."""
    places = _places(text)
    if places is None:
        return None
    buffer, starts, ends = places
    negative = buffer[starts] == _MINUS
    before = ends - starts - (_DECIMALS + 1) - negative
    if before.min() < 1 or before.max() > _MOST_DIGITS:
        return None
    words = np.ndarray(buffer.size - 7, _WORD, buffer, strides=(1,))  # the eight bytes at any place
    digits = words[ends - 8] ^ _word(b"0.000000")
    wrong = _not_digits(digits) | (digits & _word(b"\0\xff\0\0\0\0\0\0"))
    number = _number(digits)  # the last digit before the point, 0 for the point, six behind it
    number -= (digits & _word(b"\xff")) * np.uint64(9 * 10**6)
    longer = np.flatnonzero(before > 1)
    if longer.size:
        digits = words[ends[longer] - 16] ^ _word(b"0" * 8)
        digits >>= (8 * (9 - before[longer])).astype(_WORD)
        digits <<= (8 * (9 - before[longer])).astype(_WORD)
        wrong[longer] |= _not_digits(digits)
        number[longer] += _number(digits) * np.uint64(10**7)
    if wrong.any():
        return None
    values = number.astype(np.float64)
    values /= 10**_DECIMALS
    np.negative(values, out=values, where=negative)
    return values.astype(np.float32)


def bytes_of(text: bytes) -> np.ndarray | None:
    """The uint8 values of ``      0,    255, …``; None for any other text."""
    places = _places(text)
    if places is None:
        return None
    buffer, starts, ends = places
    if (ends - starts != _WIDTH).any():
        return None
    hundreds, tens, ones = (buffer[ends - place] for place in (3, 2, 1))
    blank = np.logical_and.reduce([buffer[ends - place] == _SPACE for place in (6, 5, 4)])
    right = blank & _is_digit(ones) & (_is_digit(tens) | ((tens == _SPACE) & (hundreds == _SPACE)))
    right &= _is_digit(hundreds) | (hundreds == _SPACE)
    values = (hundreds & 15) * np.int16(100) + (tens & 15) * np.int16(10) + (ones & 15)  # a space's last bits are 0
    return values.astype(np.uint8) if right.all() and values.max() <= 255 else None


def _places(text: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The text between its commas and paddings, and in there where values begin and where their commas are; None where
    anything divides them but a comma, a space, and perhaps a newline."""
    buffer = np.frombuffer(b"".join((_PADDING, b",", text, b",", _PADDING)), np.uint8)
    commas = np.flatnonzero(buffer == _COMMA)
    ends = commas[1:]
    starts = commas[:-1] + 2
    if (buffer[starts - 1] != _SPACE).any():
        return None
    starts += buffer[starts] == _NEWLINE
    return buffer, starts, ends


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


def _not_digits(digits: np.ndarray) -> np.ndarray:
    """Not zero where one of the eight bytes, each XORed with ``0``, is none of 0 to 9."""
    wrong = digits + _word(b"\x76" * 8)  # beyond 9 the highest bit is set
    wrong |= digits
    wrong &= _word(b"\x80" * 8)
    return wrong


def _number(digits: np.ndarray) -> np.ndarray:
    """The number of eight decimal digits, a byte each, the first one lowest."""
    for factor, shift, kept in (
        (10, 8, b"\xff\0" * 4),
        (100, 16, b"\xff\xff\0\0" * 2),
        (10000, 32, b"\xff\xff\xff\xff\0\0\0\0"),
    ):
        lower = digits >> np.uint64(shift)
        digits = digits * np.uint64(factor)
        digits += lower
        digits &= _word(kept)
    return digits


def _is_digit(byte: np.ndarray) -> np.ndarray:
    return byte - np.uint8(48) <= 9
