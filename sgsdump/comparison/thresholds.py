"""How far a layer may be off before it is called bad."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType

from sgsdump.comparison.metrics import METRICS
from sgsdump.errors import ConfigError

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Thresholds:
    """Limits on a layer's metrics; None is no limit. A NaN metric is past every limit on it.

    further  names of further metrics with their limits: the least where higher is better, else the most.
    layers   (pattern of layer names, metric, limit): what holds for these layers in place of the limits above; a later
             one goes before an earlier one. ``*``, ``?`` and ``[ab]`` are as in the shell.
    own      names of a user's own metrics, of which higher is better.
    max_channel_rmse  on the RMSE of a layer's worst channel.
    """

    min_cos: float | None = None
    max_rmse: float | None = None
    max_mse: float | None = None
    further: tuple[tuple[str, float], ...] = ()
    layers: tuple[tuple[str, str, float], ...] = ()
    own: tuple[str, ...] = ()
    max_channel_rmse: float | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for limits that nothing could ever be within, and for unknown metrics."""
        if self.min_cos is not None and not -1 <= self.min_cos <= 1:
            raise ConfigError(f"a COS lies between -1 and 1, so {self.min_cos:g} cannot be a limit on it")
        for name, limit in (
            ("RMSE", self.max_rmse),
            ("MSE", self.max_mse),
            ("RMSE of a channel", self.max_channel_rmse),
        ):
            if limit is not None and not limit >= 0:
                raise ConfigError(f"an {name} is 0 or more, so {limit:g} cannot be a limit on it")
            if limit == math.inf:
                raise ConfigError(f"every {name} is within {limit:g}; leave the limit out, or give a number")
        if isinstance(self.further, str):
            raise ConfigError("further is a list of pairs, a metric's name and its limit, not a string")
        for name, limit in self.further:
            possible = limit == limit if name in self.own else METRICS[name].higher_is_better and limit <= 1
            if not possible and not limit >= 0:
                raise ConfigError(f"nothing could ever be within {limit:g} of the metric {name}")
        for _, name, limit in self.layers:
            Thresholds(own=self.own).limited(name, limit)

    def limited(self, name: str, limit: float) -> Thresholds:
        """With another limit on one metric. Raises ConfigError."""
        if name == "cos":
            return replace(self, min_cos=limit)
        if name == "rmse":
            return replace(self, max_rmse=limit)
        if name == "mse":
            return replace(self, max_mse=limit)
        return replace(self, further=(*(pair for pair in self.further if pair[0] != name), (name, limit)))

    def of_layer(self, *names: str) -> Thresholds:
        """The limits that hold for the layer of this name, or of these."""
        if not self.layers:
            return self
        limits = replace(self, layers=())
        for pattern, name, limit in self.layers:
            if any(fnmatchcase(name, pattern) for name in names):
                limits = limits.limited(name, limit)
        return limits

    def __str__(self) -> str:
        limits = (
            ("COS", "<", self.min_cos),
            ("RMSE", ">", self.max_rmse),
            ("MSE", ">", self.max_mse),
            ("RMSE of a channel", ">", self.max_channel_rmse),
        )
        texts = [f"{name} {sign} {limit:g}" for name, sign, limit in limits if limit is not None]
        texts += [f"{name} {'<' if self._higher_is_better(name) else '>'} {limit:g}" for name, limit in self.further]
        texts += [f"{name} of {layer} past {limit:g}" for layer, name, limit in self.layers]
        return " or ".join(texts)

    def __bool__(self) -> bool:
        return bool(self.further or self.layers) or any(
            limit is not None for limit in (self.min_cos, self.max_rmse, self.max_mse, self.max_channel_rmse)
        )

    def hold(self, cos: float, rmse: float, mse: float, further: Mapping[str, float] = _NONE) -> bool:
        """True when no limit is passed; two tensors of nothing but zeros (MSE 0, COS and RMSE NaN) are equal. An MSE of
        0 beside an RMSE is of differences whose squares are less than the smallest number: they are held to the limits.

        further  the further metrics by name; one that has a limit and is not there counts as NaN.
        """
        if mse == 0 and not rmse > 0:
            return True
        return (
            (self.min_cos is None or cos >= self.min_cos)
            and (self.max_rmse is None or rmse <= self.max_rmse)
            and (self.max_mse is None or mse <= self.max_mse)
            and all(self._holds(name, further.get(name, float("nan")), limit) for name, limit in self.further)
        )

    def past_channel(self, rmse: float) -> bool:
        """Whether a channel's RMSE is past the limit on it, if there is one."""
        return self.max_channel_rmse is not None and not rmse <= self.max_channel_rmse

    def _holds(self, name: str, value: float, limit: float) -> bool:
        return value >= limit if self._higher_is_better(name) else value <= limit

    def _higher_is_better(self, name: str) -> bool:
        return name in self.own or METRICS[name].higher_is_better


DOCUMENTED = Thresholds(min_cos=0.99, max_rmse=0.1)  # "layer likely bad" in the SDK's debugging guide
