"""A finding: one fact that a user should know, with its evidence; ``rules.py`` concludes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# In the order in which they are told.
KINDS = {
    "environment": "a version, variable or setting in which the two programs' runs differ, or their random numbers",
    "between rounds": "an operator outside the modules, or inputs of a round, in which two programs differ",
    "output": "an output of the network: its figures, and whether it is within the limits",
    "missing": "layers, outputs, runs, steps or ranks that the reference has and the side under test lacks",
    "argument": "a scalar argument or a weight that differs between the two sides",
    "another tensor": "a pair of one name that holds different tensors",
    "not finite": "the first NaN or infinity",
    "outside": "the first operator whose own result is further from the exact one than rounding explains",
    "cause": "the layer or operator where an error arises",
    "magnified": "an operator that magnifies what rounding did before it",
    "rounding": "all that differs is rounding to a narrow type",
    "part": "of an error that is within the limits, the layer that brings most of it",
    "layers": "how many layers are past the limits, and the cause that they share",
    "quantisation": "operators that one of two quantised copies of a network alone keeps in integers",
    "channel": "a channel that is wrong while its layer looks right",
    "worth": "what a fixed model is worth by the user's metric, and on pictures held out",
    "unseen": "the error of a fixed model to expect on images that nothing was fitted to",
    "advice": "what to change",
    "not comparable": "modules that cannot be compared as they were dumped, why, and what makes them comparable",
    "not judged": "what the comparison cannot tell, and why",
}
# They name what is wrong, or where.
CAUSES = frozenset(("between rounds", "argument", "another tensor", "not finite", "outside", "cause"))
# They accuse nothing.
NO_FAULT = frozenset(("magnified", "rounding"))
# How it is known, best first: by intervention or by replaying the operator; by the first tensor that differs while its
# inputs are equal; by the rise of a relative figure.
EVIDENCE = ("measured", "by value", "by figures")
ACCUMULATION = "accumulation"  # the fact "how" of a cause: the sample keeps a sum in a narrower type
PACKED = "packed"  # the fact "how" of a cause: an operator's weights of few bits are not the benchmark's


@dataclass(frozen=True)
class Finding:
    """One fact with its evidence.

    kind      one of ``KINDS``.
    layer     the benchmark's name of the layer or operator, "" where it is of none.
    op_type   its operator.
    figures   by name, in full precision.
    evidence  one of ``EVIDENCE``, "" where the fact speaks for itself.
    names     all layers that the finding is about, where there are several.
    facts     words that are not figures, by name: the argument, both values, the reason.
    """

    kind: str
    layer: str = ""
    op_type: str = ""
    figures: Mapping[str, float] = field(default_factory=dict, hash=False)
    evidence: str = ""
    names: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)
