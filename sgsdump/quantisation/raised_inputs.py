"""What a word of ``tensor_arrays`` raises to INT16, and the word to write for a convolution's input.

SDK 1.1.5 raises every convolution whose first input's name *begins* with the word: ``c1`` raises c1_xx and c10 alike.
So a Caffe blob stands for all its stages that a convolution reads, as long as no other name begins with it. The input
of a Caffe InnerProduct is the converter's own ``LAYER_reshape#1_output``, so the word is the layer's name; the blob
that it reads raises nothing. Source: small networks through the SDK, see docs/caffe.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError
from sgsdump.models.stage_table import read_stages
from sgsdump.quantisation.domains import Analysis, analyse
from sgsdump.registry import hint, listed
from sgsdump.sidecars.input_config import InputConfig

if TYPE_CHECKING:
    from onnx import ModelProto

_RESHAPED = "_reshape#1_output"


@dataclass(frozen=True, eq=False)
class RaisedInputs:
    """The words of ``tensor_arrays`` for one network."""

    analysis: Analysis

    @cached_property
    def blobs(self) -> dict[str, str]:
        """For each stage of a Caffe blob the blob."""
        return {stage.name: stage.blob for stage in read_stages(self.analysis.graph.proto)}

    @cached_property
    def sdk_names(self) -> dict[str, tuple[str, ...]]:
        """For each first input the names that the SDK has for it: its own, and one for each InnerProduct reading it."""
        reshaped = ("Gemm", "MatMul") if self.blobs else ()
        return {
            name: tuple(
                dict.fromkeys(f"{node.name}{_RESHAPED}" if node.op_type in reshaped else name for node in nodes)
            )
            for name, nodes in self.analysis.first_inputs.items()
        }

    @cached_property
    def words(self) -> dict[str, str]:
        """For each first input the word to write: the first of its names that raises nothing of another domain, or its
        own name where each would."""
        domain, found = self.analysis.domain, {}
        for name, known in self.sdk_names.items():
            own = known[0]
            short = own.removesuffix(_RESHAPED) if own != name else self.blobs.get(name, name)
            exact = (c for c in (short, own) if {domain[each] for each in self.raised_by(c)} == {domain[name]})
            found[name] = next(exact, own)
        return found

    def raised_by(self, word: str) -> tuple[str, ...]:
        """The first inputs that the SDK raises for a word, in execution order; a graph's own input only by its name."""
        pictures = self.analysis.graph.inputs
        return tuple(
            name
            for name, known in self.sdk_names.items()
            if word in known or (name not in pictures and any(each.startswith(word) for each in known))
        )

    def inputs_of(self, chosen: Iterable[str]) -> tuple[str, ...]:
        """The first inputs that words raise. Raises ConfigError for a word that raises none."""
        inputs: dict[str, None] = {}
        for word in chosen:
            raised = self.raised_by(word)
            if not raised:
                raise ConfigError(self._raises_none(word))
            inputs.update(dict.fromkeys(raised))
        return tuple(inputs)

    def beside(self, chosen: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """For each word of a list what it raises without naming it: inputs of domains that no word names."""
        chosen, domain = tuple(chosen), self.analysis.domain
        named = {domain[name] for word in chosen for name in self.sdk_names if self._names(word, name)}
        found = {word: tuple(n for n in self.raised_by(word) if domain[n] not in named) for word in chosen}
        return {word: names for word, names in found.items() if names}

    def shown(self, name: str) -> str:
        """A first input for a person: the word to write, and the tensor where that is another."""
        word = self.words.get(name, name)
        return name if name == word else f"{word} ({name})"

    def _names(self, word: str, name: str) -> bool:
        """Whether a word is an input's own name, its blob or another stage of it, or the InnerProduct that reads it."""
        blob = self.blobs.get(name, name)
        known = (name, blob, *(each.removesuffix(_RESHAPED) for each in self.sdk_names[name]))
        return word in known or self.blobs.get(word) == blob

    def _raises_none(self, word: str) -> str:
        """Why a word raises nothing; for the blob that an InnerProduct alone reads, what to write."""
        for name, known in self.sdk_names.items():
            node = self.analysis.graph.producer.get(name)
            source = node.input[0] if node is not None and name not in self.blobs else name
            if name not in known and word in (source, self.blobs.get(source)):
                layer = known[0].removesuffix(_RESHAPED)
                return (
                    f"tensor_arrays names {word!r}, which the InnerProduct {layer!r} reads: the SDK knows that input "
                    f"by the layer's name, write {layer}"
                )
        near = hint(word, list(dict.fromkeys([*self.words.values(), *self.sdk_names])))
        return f"tensor_arrays names {word!r}, which is no convolution's first input{near}"


def with_raised_inputs(config: InputConfig, proto: ModelProto) -> tuple[InputConfig, list[str]]:
    """The config with the inputs themselves in ``tensor_arrays``, and a sentence for each word that raises more than it
    names. Raises ConfigError for a word that raises nothing."""
    if not config.tensor_arrays:
        return config, []
    inputs = RaisedInputs(analyse(proto))
    exact = replace(config, tensor_arrays=inputs.inputs_of(config.tensor_arrays))
    return exact, [wider(word, names) for word, names in inputs.beside(config.tensor_arrays).items()]


def wider(word: str, names: Iterable[str]) -> str:
    """What to know of a word that raises more than it names."""
    return (
        f"tensor_arrays {word!r} raises {listed(tuple(names))} too: the SDK takes every convolution whose first "
        f"input's name begins so"
    )
