"""Trees of ATB tensors."""

from __future__ import annotations

from formats.conformance import Conformance


class TestConformance(Conformance):
    format = "atb_tree"
    listing = "sgsdump.json"
