"""SDK names of the tensors of a Caffe network: the stages of its blobs.

In-place layers (top = bottom) write one blob several times. Caffe shows the last value; the SDK keeps each value as a
tensor. In network order, the first layer with the top ``b`` computes ``b``. Each further layer appends ``_xx``, once
more while the name is taken:

    Convolution conv1           conv1
    BatchNorm   conv1, in place            } one MUL, conv1_xx,
    Scale       conv1, in place            } and one ADD, conv1_xx_xx
    ReLU        conv1, in place conv1_xx_xx_xx

* BatchNorm and the Scale after it become MUL and ADD. ADD has the Scale's name, or the BatchNorm's without a Scale.
  If ADD's name has ``_xx`` exactly twice, MUL is its input's name with ``_xx``, otherwise with ``_MUL``.
* The last stage of an output is ``b``; earlier stages extend ``b#0``. * In the last stage, a name drops a ``#`` and all
characters after it. * Dropout is a RESHAPE and counts. Of consecutive reshapes (InnerProduct begins and ends with one)
only the last remains.

Source: small networks converted with SDK 1.1.5, see docs/caffe.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sgsdump.models.caffe.net import Net
from sgsdump.models.caffe.prototxt import Layer

SUFFIX = "_xx"
# Layers that the converter writes as a factor and an offset.
AFFINE = ("BatchNorm", "BN", "Scale", "Power")
# Layers that end with a reshape; InnerProduct and Dropout begin with one too.
RESHAPING = ("Flatten", "InnerProduct", "Reshape")


@dataclass(frozen=True, eq=False)
class Step:
    """One layer in the SDK's form.

    tops     names of the tensors of its tops
    joined   BatchNorm that shares one MUL and one ADD with this Scale
    product  name of the MUL inside
    passes   True if it computes no tensor: its tops are its bottom
    """

    layer: Layer
    tops: tuple[str, ...]
    joined: Layer | None = None
    product: str | None = None
    passes: bool = False


def steps(net: Net, outputs: Collection[str] = ()) -> list[Step]:
    """Return the layers under the SDK's names; ``outputs``: output blobs, by default those without readers."""
    readers = _readers(net.layers)
    outputs = set(outputs) or _last_blobs(net, readers)
    names = _names(net, outputs)
    ordered: list[Step] = []
    joined: dict[int, Layer] = {}
    passing: set[int] = set()
    for index, layer in enumerate(net.layers):
        follower = _follower(net.layers, readers, index, outputs)
        kind = "" if follower is None else net.layers[follower].type
        if layer.type == "BatchNorm" and follower is not None and _scales_channels(net.layers[follower]):
            joined[follower] = layer
            continue
        if layer.type == "Split" or (layer.type == "Dropout" and kind in ("Dropout", *RESHAPING)):
            passing.add(index)
        if layer.type in RESHAPING:
            dropouts = _dropouts_after(net.layers, readers, index, outputs)
            passing.update(dropouts)
            names[index] = names[[index, *dropouts][-1]]
        ordered.append(Step(layer, names[index], joined.get(index), passes=index in passing))
    return _with_products(_distinct(ordered, net.inputs), net)


def _scales_channels(layer: Layer) -> bool:
    """Return whether a layer is a Scale with learned values per channel."""
    param = layer.message.scale_param
    return layer.type == "Scale" and len(layer.bottoms) == 1 and (param.axis, param.num_axes) == (1, 1)


def _names(net: Net, outputs: Collection[str]) -> list[tuple[str, ...]]:
    """Return for each layer the tensor names of its tops."""
    taken: set[str] = set()
    names = []
    for layer in net.layers:
        tops = []
        for top in layer.tops:
            name = top
            while name in taken:
                name += SUFFIX
            taken.add(name)
            tops.append(name)
        names.append(tuple(tops))
    last = {top: (index, slot) for index, layer in enumerate(net.layers) for slot, top in enumerate(layer.tops)}
    first = {top: names[i][s] for i, layer in reversed([*enumerate(net.layers)]) for s, top in enumerate(layer.tops)}

    def renamed(top: str, index: int, slot: int) -> str:
        name, is_last = names[index][slot], last[top] == (index, slot)
        if top in outputs:
            return top if is_last else f"{top}#0{name.removeprefix(first[top])}"
        return (name.partition("#")[0] or name) if is_last else name

    numbered = enumerate(net.layers)
    return [tuple(renamed(top, index, slot) for slot, top in enumerate(layer.tops)) for index, layer in numbered]


def _readers(layers: Sequence[Layer]) -> dict[int, list[int]]:
    """Return for each layer the layers that read its output; an in-place layer ends the reads of the previous one."""
    makers: dict[str, int] = {}
    readers: dict[int, list[int]] = defaultdict(list)
    for index, layer in enumerate(layers):
        for bottom in dict.fromkeys(layer.bottoms):
            if bottom in makers:
                readers[makers[bottom]].append(index)
        makers.update(dict.fromkeys(layer.tops, index))
    return readers


def _last_blobs(net: Net, readers: dict[int, list[int]]) -> set[str]:
    """Return the blobs whose last value has no reader."""
    last = {top: index for index, layer in enumerate(net.layers) for top in layer.tops}
    return {
        top
        for top, index in last.items()
        if not any(top in net.layers[reader].bottoms for reader in readers.get(index, ()))
    }


def _follower(
    layers: Sequence[Layer], readers: dict[int, list[int]], index: int, outputs: Collection[str]
) -> int | None:
    """Return the only reader of a layer's output; None if there are several, or if it is an output of the network."""
    followers = readers.get(index, [])
    tops = layers[index].tops
    if len(followers) != 1 or len(tops) != 1:
        return None
    rewritten = tops[0] in layers[followers[0]].tops
    return followers[0] if rewritten or tops[0] not in outputs else None


def _dropouts_after(
    layers: Sequence[Layer], readers: dict[int, list[int]], index: int, outputs: Collection[str]
) -> list[int]:
    """Return the consecutive Dropouts that are sole readers of a layer's output; all their reshapes merge."""
    dropouts: list[int] = []
    follower = _follower(layers, readers, index, outputs)
    while follower is not None and layers[follower].type == "Dropout":
        dropouts.append(follower)
        follower = _follower(layers, readers, follower, outputs)
    return dropouts


def _distinct(ordered: list[Step], inputs: Collection[str]) -> list[Step]:
    """Make names unique if the SDK's rule would repeat the name of an input or another stage."""
    taken = set(inputs)
    result = []
    for step in ordered:
        tops = []
        for name in step.tops if not step.passes else ():
            while name in taken:
                name += SUFFIX
            taken.add(name)
            tops.append(name)
        result.append(step if step.passes else replace(step, tops=tuple(tops)))
    return result


def _with_products(ordered: list[Step], net: Net) -> list[Step]:
    """Set the names of the MULs."""
    taken = {*net.inputs, *(name for step in ordered for name in step.tops)}
    current = {name: name for name in net.inputs}
    result = []
    for step in ordered:
        source = step.joined or step.layer
        read = current.get(source.bottoms[0], "") if source.bottoms else ""
        product = _product(step, read) if _has_product(step) else None
        if product is not None:
            while product in taken:
                product = f"{read}_MUL" if product.endswith(SUFFIX) else product + "_"
            taken.add(product)
        result.append(replace(step, product=product))
        made_of = [read] * len(step.layer.tops) if step.passes else step.tops
        current.update(zip(step.layer.tops, made_of))
    return result


def _has_product(step: Step) -> bool:
    """Return whether a layer becomes a MUL and an ADD; a Scale without offset is one MUL with the layer's own name."""
    if step.layer.type == "Scale" and step.joined is None:
        return _scales_channels(step.layer) and step.layer.message.scale_param.bias_term
    return step.layer.type in AFFINE and bool(step.tops)


def _product(step: Step, read: str) -> str:
    if step.layer.type == "Power":
        return f"{step.layer.name}_MUL_output"
    return read + (SUFFIX if step.tops[0].count(SUFFIX) == 2 else "_MUL")
