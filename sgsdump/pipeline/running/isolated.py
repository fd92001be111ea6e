"""The isolated way: every tensor comes from a sub-model of its own, in which it is the only output.

A back-end that fuses operators shows a tensor in the middle of a fused group only by not fusing there. When each tensor
is the single output of a model that ends in it, the group that ends in it is fused as in the whole model, so at least
one sub-model holds every fused group whole.

A sub-model need not begin at the model's inputs for that. It holds the nodes nearest to its tensor, ``WHOLE`` of them
at least, and is fed with the tensors dumped before it: any group of up to that many nodes is in it (epilogues of a
convolution have about 6, a GELU or LayerNormalization 9, an attention block about 20). So the cost of a dump grows with
the number of tensors and not with its square. Where only some tensors are wanted, a sub-model reaches back to the last
ones dumped, or to the inputs.

Within one model onnxruntime hands float32 values from one float16 node to the next
(``models.passes.segment.unrounded``), so a float16 tensor's last bits may differ from those of the whole model.

Measured on a ResNet-50-like model (benchmarks/pipeline.py): a sub-model has 13 % of the nodes on average, and the dump
takes a tenth or less of the time of running the whole model once per tensor.
"""

from __future__ import annotations

from collections.abc import Collection

from sgsdump.pipeline.running.lineage import Lineage
from sgsdump.pipeline.running.steps import Step

WHOLE = 24


def isolated_steps(lineage: Lineage, wanted: Collection[str], whole: int = WHOLE) -> list[Step]:
    """One step for each wanted tensor, in an order in which they can be computed."""
    return [Step((name,), whole, alone=True) for name in lineage.maker if name in wanted]
