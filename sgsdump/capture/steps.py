"""Which runs of a network are dumped: ``0|3-5|10`` (TorchAir's dump_step) and ``3,5,7,7`` (msit's execute range)."""

from __future__ import annotations

from dataclasses import dataclass

from sgsdump.errors import ConfigError

RANGE_LENGTH = 500
MOST_DIGITS = 4000


@dataclass(frozen=True)
class Steps:
    """Inclusive ranges of step numbers, from 0; no range at all stands for every step."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, step: int) -> bool:
        return not self.ranges or any(first <= step <= last for first, last in self.ranges)


EVERY = Steps()


def read_steps(text: str) -> Steps:
    """``0|3-5|10``: steps and ranges of steps. Raises ConfigError."""
    ranges = []
    for part in text.split("|"):
        ends = [end.strip() for end in part.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise ConfigError(f"dump_step {text[:80]!r}: {part.strip()[:40]!r} is no step; write steps as 0|3-5|10")
        ranges.append((whole_number(ends[0]), whole_number(ends[-1])))
    return _checked(ranges, f"dump_step {text[:80]!r}")


def read_ranges(text: str) -> Steps:
    """``3,5,7,7``: pairs of first and last step; ``all`` for every step. At most 500 characters. Raises ConfigError."""
    if text.strip() == "all":
        return EVERY
    what = f"execute range {text[:80]!r}"
    if len(text) > RANGE_LENGTH:
        raise ConfigError(f"{what} has {len(text)} characters; at most {RANGE_LENGTH} are read")
    numbers = [number.strip() for number in text.split(",")]
    if len(numbers) % 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigError(f"{what} is not pairs of step numbers, as in 3,5,7,7 for steps 3 to 5 and 7")
    return _checked(list(zip(map(int, numbers[::2]), map(int, numbers[1::2]), strict=True)), what)


def whole_number(digits: str) -> int:
    """No step is beyond this many digits; Python refuses to read more than some thousand."""
    return int(digits.lstrip("0")[:MOST_DIGITS] or "0")


def _checked(ranges: list[tuple[int, int]], what: str) -> Steps:
    for first, last in ranges:
        if first > last:
            raise ConfigError(f"{what}: {first} to {last} goes backwards")
    return Steps(tuple(ranges))
