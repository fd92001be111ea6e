"""Rules that rewrite the sample's names into the benchmark's: regular expressions, a line each::

    # comments and empty lines are skipped
    ^npu_ ->
    /(\\d+)/conv -> .\\1.conv

The pattern is Python's, found anywhere in a name; ``\\1`` in the replacement is the first group. All rules are applied
one after the other, each to what the last has made. They are the user's own: a pattern can be written that takes for
ever, so names of more than 1000 characters are left alone.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted

LONGEST_NAME, LONGEST_RULE = 1000, 1000
_ARROW = "->"


@dataclass(frozen=True)
class Rule:
    """``text`` is the rule as it was given, for messages."""

    pattern: re.Pattern[str]
    replacement: str
    text: str


def read(path: Path | str) -> tuple[Rule, ...]:
    """The rules of a file. Raises FormatError, naming the line."""
    path = Path(path)
    return rules_of(decode(read_bytes(path), path), path)


def rules_of(text: str, path: Path) -> tuple[Rule, ...]:
    """The rules of a file's text. Raises FormatError, naming the line."""
    rules = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pattern, arrow, replacement = line.rpartition(_ARROW)
        if not arrow:
            raise FormatError(f"{path}:{number}: a rule is PATTERN -> REPLACEMENT")
        try:
            rules.append(_rule(pattern.strip(), replacement.strip(), line.strip()))
        except ConfigError as error:
            raise FormatError(f"{path}:{number}: {error}") from None
    return tuple(rules)


def rule_of(text: str) -> Rule:
    """The rule of an option ``PATTERN=REPLACEMENT``, split at the last ``=``. Raises ConfigError."""
    pattern, sign, replacement = text.rpartition("=")
    if not sign:
        raise ConfigError(f"the name rule {quoted(text)} is not PATTERN=REPLACEMENT")
    return _rule(pattern, replacement, text)


def renamed(name: str, rules: Sequence[Rule]) -> tuple[str, tuple[Rule, ...]]:
    """What the rules make of a name, and those that changed it."""
    used = []
    for rule in rules:
        if len(name) > LONGEST_NAME:
            break
        changed = rule.pattern.sub(rule.replacement, name)
        if changed != name:
            used.append(rule)
            name = changed
    return name, tuple(used)


def described(rules: Iterable[Rule]) -> str:
    """The rules as a pair names them in ``Pair.how``."""
    texts = [rule.text for rule in rules]
    return f"rule {' then '.join(texts)}" if len(texts) < 2 else f"rules {' then '.join(texts)}"


def _rule(pattern: str, replacement: str, text: str) -> Rule:
    if not pattern or len(text) > LONGEST_RULE:
        raise ConfigError(f"the name rule {quoted(text)} has {'no pattern' if not pattern else 'too long a pattern'}")
    try:
        with warnings.catch_warnings():
            # of what a pattern may mean in a later Python
            warnings.simplefilter("ignore", FutureWarning)
            compiled = re.compile(pattern)
        compiled.sub(replacement, "")
    except (re.error, IndexError, OverflowError, RecursionError) as error:
        raise ConfigError(f"the name rule {quoted(text)} is no regular expression: {error}") from None
    return Rule(compiled, replacement, text)
