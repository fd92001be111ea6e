"""The words of ``tensor_arrays`` in input_config.ini, and the convolutions that they raise to INT16.

SDK 1.1.5 raises every convolution whose first input's name *begins* with the word: ``c1`` raises c1_xx and c10 alike.
A Caffe blob therefore names all its stages that a convolution reads, unless another name begins with it. The input of a
Caffe InnerProduct is the converter's own ``LAYER_reshape#1_output``, so the word is the layer's name; the blob that it
reads raises nothing. If several InnerProducts read one tensor, each is raised separately. An InnerProduct that reads a
Flatten, or a Concat of Flattens, is raised by the name of that blob. Every input is raised separately: tensors that
share its values stay at 8 bits unless they are named too. Source: small networks through the SDK, see docs/caffe.md and
docs/formats/fixed_arithmetic.md#types.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError, hint, listed
from sgsdump.fixedpoint.quantisation.analysis import (
    Analysis,
    analyse,
)
from sgsdump.models.graph import BROUGHT_BACK, FLAT, is_reshape_of_converter
from sgsdump.models.model import read_stages
from sgsdump.sidecars.input_config import InputConfig

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


_RESHAPED = "_reshape#1_output"


@dataclass(frozen=True, eq=False)
class RaisedInputs:
    """The words of ``tensor_arrays`` for one network."""

    analysis: Analysis

    @cached_property
    def blobs(self) -> dict[str, str]:
        """The blob of each stage of a Caffe blob."""
        return {stage.name: stage.blob for stage in read_stages(self.analysis.graph.proto)}

    @cached_property
    def sdk_names(self) -> dict[str, tuple[str, ...]]:
        """The SDK's names of each first input: its own, and one for each InnerProduct that reads it."""
        producer = self.analysis.graph.producer
        # A tensor that the converter moves for a convolution is also raised by the name of its source.
        moved = {
            name: (producer[name].input[0],)
            for name in self.analysis.first_inputs
            if name.endswith(BROUGHT_BACK) and name in producer and producer[name].op_type == "Identity"
        }
        return {
            name: tuple(
                dict.fromkeys(
                    [
                        *(self._known_as(name, node) for node in nodes),
                        *moved.get(name, ()),
                    ]
                )
            )
            for name, nodes in self.analysis.first_inputs.items()
        }

    def _known_as(self, name: str, node: NodeProto) -> str:
        """Return the SDK's name for the input of a convolution.

        For an InnerProduct it is the layer's name, unless the layer reads a Flatten or Concat. A tensor that the
        converter reshapes for a fully connected operator has the name of its source.
        """
        producer = self.analysis.graph.producer
        copied = name in producer and is_reshape_of_converter(producer[name])
        source = producer[name].input[0] if copied else name
        flat = source in self.blobs and source in producer and producer[source].op_type in FLAT
        if self.blobs and node.op_type in ("Gemm", "MatMul") and not flat:
            return f"{node.name}{_RESHAPED}"
        return source

    @cached_property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The words to write for each first input, one for each of its SDK names.

        The first of the blob (or layer) name and the SDK's name that raises nothing else, or the SDK's name if both do.
        """
        return {
            name: tuple(dict.fromkeys(self._word(alias, name) for alias in aliases))
            for name, aliases in self.sdk_names.items()
        }

    def _word(self, alias: str, name: str) -> str:
        """Return the word for one of the SDK's names of a first input."""
        short = alias.removesuffix(_RESHAPED) if alias.endswith(_RESHAPED) else self.blobs.get(alias, alias)
        switch = self.analysis.switch
        raised = ((word, {switch(each) for each in self.raised_by(word)}) for word in (short, alias))
        return next((word for word, switches in raised if switches == {switch(name)}), alias)

    def raised_by(self, word: str) -> tuple[str, ...]:
        """Return the first inputs that a word raises in the SDK, in execution order; graph inputs by full name only."""
        pictures = self.analysis.graph.inputs
        return tuple(
            name
            for name, aliases in self.sdk_names.items()
            if word in aliases or (name not in pictures and any(alias.startswith(word) for alias in aliases))
        )

    def inputs_of(self, chosen: Iterable[str]) -> tuple[str, ...]:
        """Return the first inputs that words raise. Raises ConfigError for a word that raises none."""
        inputs: dict[str, None] = {}
        for word in chosen:
            raised = self.raised_by(word)
            if not raised:
                raise ConfigError(self._raises_none(word))
            inputs.update(dict.fromkeys(raised))
        return tuple(inputs)

    def beside(self, chosen: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return, for each word of a list, the inputs that it raises although no word names them."""
        chosen, switch = tuple(chosen), self.analysis.switch
        named = {switch(name) for word in chosen for name in self.sdk_names if self._names(word, name)}
        raised = {word: tuple(n for n in self.raised_by(word) if switch(n) not in named) for word in chosen}
        return {word: names for word, names in raised.items() if names}

    def _names(self, word: str, name: str) -> bool:
        """Return whether a word is an input's name, its blob, another stage of that, or the InnerProduct reading it."""
        blob = self.blobs.get(name, name)
        aliases = (name, blob, *(alias.removesuffix(_RESHAPED) for alias in self.sdk_names[name]))
        return word in aliases or self.blobs.get(word) == blob

    def _raises_none(self, word: str) -> str:
        """Return the message for a word that raises nothing; if only an InnerProduct reads it, with the word to use."""
        for name, aliases in self.sdk_names.items():
            node = self.analysis.graph.producer.get(name)
            source = node.input[0] if node is not None and name not in self.blobs else name
            if name not in aliases and word in (source, self.blobs.get(source)):
                layer = aliases[0].removesuffix(_RESHAPED)
                return (
                    f"tensor_arrays names {word!r}, the input of InnerProduct {layer!r}, but the SDK "
                    f"names this input after the layer. Use {layer}"
                )
        words = chain.from_iterable(self.words.values())
        near = hint(word, list(dict.fromkeys([*words, *self.sdk_names])))
        return f"tensor_arrays names {word!r}, which is not the first input of a convolution{near}"


def with_raised_inputs(config: InputConfig, proto: ModelProto) -> tuple[InputConfig, list[str]]:
    """Return the config with the raised inputs in ``tensor_arrays``, and notes on inputs that the SDK also raises.

    Raises ConfigError for a word that raises nothing.
    """
    inputs = RaisedInputs(analyse(proto))
    words = config.tensor_arrays
    exact = replace(config, tensor_arrays=inputs.inputs_of(words))
    return exact, [wider(word, names) for word, names in inputs.beside(words).items()]


def wider(word: str, names: Iterable[str]) -> str:
    """Return a note on a word that raises more than it names."""
    return (
        f"tensor_arrays entry {word!r} also raises {listed(tuple(names))} to INT16: the SDK raises "
        "every convolution whose first input has a name that begins with this entry"
    )
