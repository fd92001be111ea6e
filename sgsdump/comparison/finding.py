"""Record of a finding: one fact for the user, with its evidence. ``rules.py`` derives the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# In reporting order.
KINDS = {
    "environment": "version, variable, setting or random numbers that differ between the runs of two programs",
    "between rounds": "operator outside the modules, or input of a round, that differs between two programs",
    "output": "output of the model: its figures, and whether it is within the limits",
    "missing": "layers, outputs, runs, steps or ranks that the sample lacks",
    "argument": "scalar argument or weight that differs between the two sides",
    "another tensor": "pair whose tensors share a name but are different tensors",
    "not finite": "first NaN or Inf",
    "outside": "first operator whose result deviates from the exact result by more than rounding explains",
    "cause": "layer or operator where the error arises",
    "magnified": "operator that amplifies earlier rounding",
    "rounding": "all differences are rounding to a narrow type",
    "part": "layer that contributes most of an error that is within the limits",
    "layers": "number of layers that exceed the limits, and their common cause",
    "quantisation": "operators that only one of two quantised models computes in integers",
    "channel": "wrong channel of a layer that is within the limits as a whole",
    "worth": "quality of a fixed model by the user's metric, and on held-out images",
    "unseen": "expected error of a fixed model on held-out images",
    "advice": "recommended change",
    "not comparable": "modules that are not comparable as dumped, with the reason and the fix",
    "not judged": "layers that the comparison cannot judge, with the reason",
}
# Kinds that name a fault or the place of a fault.
CAUSES = frozenset(("between rounds", "argument", "another tensor", "not finite", "outside", "cause"))
# Kinds that explain a difference without a fault.
NO_FAULT = frozenset(("magnified", "rounding"))
# Kinds of evidence, strongest first: changing the model or replaying the operator; the first tensor that differs while
# its inputs are equal; the rise of a relative figure.
EVIDENCE = ("measured", "by value", "by figures")
ACCUMULATION = "accumulation"  # fact "how" of a cause: the sample accumulates a sum in a narrower type
PACKED = "packed"  # fact "how" of a cause: the packed low-bit weights of an operator differ from the benchmark's


@dataclass(frozen=True)
class Finding:
    """One fact with its evidence.

    kind      one of ``KINDS``.
    layer     the benchmark's name of the layer or operator; "" for none.
    op_type   operator type of the layer.
    figures   figures by name, in full precision.
    evidence  one of ``EVIDENCE``; "" if the fact needs no evidence.
    names     all layers of the finding, if there are several.
    facts     facts other than figures, by name: the argument, both values, the reason.
    """

    kind: str
    layer: str = ""
    op_type: str = ""
    figures: Mapping[str, float] = field(default_factory=dict, hash=False)
    evidence: str = ""
    names: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)
