"""What the options of ``sgsdump tune`` ask for, read and checked."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump.tuning.criteria import Target, UserMetric


@dataclass(frozen=True)
class Wanted:
    """What is searched for: the best plan of each rate, or with a target the smallest that reaches it.

    seconds      the time for the search.
    metric_text  the file of the user's metric.
    """

    rates: tuple[float, ...]
    target: Target | None
    seconds: float
    metric: UserMetric | None
    metric_text: bytes


def wanted(args: argparse.Namespace) -> Wanted:
    """Raises ConfigError for what is no rate, target or time and for options that do not go together, InputError for a
    metric that cannot be loaded."""
    from sgsdump.errors import ConfigError
    from sgsdump.files.bounded_read import read_bytes
    from sgsdump.tuning.criteria import load_metric, parse_target
    from sgsdump.tuning.search import RATES

    rates = parse_rates(args.rates) if args.rates else RATES
    target = parse_target(args.target) if args.target else None
    seconds = parse_seconds(args.budget)
    if args.target and args.rates:
        raise ConfigError("--rates and --target exclude each other: a target finds its own rate")
    if target is not None and target.name == "metric" and not args.metric:
        raise ConfigError("--target metric>=X needs --metric FILE.py:function")
    metric = load_metric(args.metric) if args.metric else None
    text = read_bytes(Path(args.metric.rpartition(":")[0])) if args.metric else b""
    return Wanted(rates, target, seconds, metric, text)


def parse_rates(text: str) -> tuple[float, ...]:
    """Raises ConfigError for what is no list of rates above 0.5 and at most 1."""
    from sgsdump.errors import ConfigError
    from sgsdump.tuning.search import check_rates

    try:
        rates = sorted({float(word) for word in text.split(",") if word.strip()})
    except ValueError as error:
        raise ConfigError(f"--rates {text!r} is not a list of numbers like 0.65,0.7") from error
    if not rates:
        raise ConfigError("--rates names no rate")
    check_rates(rates)
    return tuple(rates)


def parse_seconds(text: str) -> float:
    """``60s``, ``5m``, ``1.5h``, or a number of seconds. Raises ConfigError."""
    from sgsdump.errors import ConfigError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match:
        raise ConfigError(f"--budget {text!r} is no time; write 60s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
