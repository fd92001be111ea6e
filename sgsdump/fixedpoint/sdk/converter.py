"""Find what SDK 1.1.5 refuses or computes differently in a model that it should accept.

``converter_rows.py`` lists the observations for each operator; this module looks for them in a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sgsdump.errors import listed
from sgsdump.fixedpoint.sdk import converter_rows as rows
from sgsdump.fixedpoint.sdk.converter_forms import Operator
from sgsdump.fixedpoint.sdk.converter_rows import Change, LayerRefusal, Refusal
from sgsdump.models.converter_facts import SDK, Changed, ConverterFacts, Refused
from sgsdump.models.graph import MAIN_DOMAINS, Graph, opset_of
from sgsdump.models.passes.converted import SUMMED
from sgsdump.sidecars.input_config import RAWDATA

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_IN_FULL = 2  # kinds of operators refused, one line each; more of them share a line


def refusals(refused: Sequence[Refused]) -> list[str]:
    """Return one sentence per row, or one for all of them if there are many."""
    if len(refused) <= MOST_IN_FULL:
        return [str(row) for row in refused]
    kinds = ", ".join(f"{row.what} ({listed(row.layers, 1)})" for row in refused)
    return [
        f"{SDK} refuses {len(refused)} kinds of operators or settings in this model: {kinds}. See "
        f"docs/sdk_converter.md for its messages. A newer SDK may accept them"
    ]


# --- forms -----------------------------------------------------------------------------------------------------------


def facts_of(proto: ModelProto) -> ConverterFacts:
    """Return what the SDK refuses and changes of an ONNX model with folded constants, at the opset of its file."""
    graph, opset = Graph(proto), opset_of(proto)
    operators = [Operator(graph, node, opset) for node in graph.nodes]
    refused: dict[tuple[str, Refusal], list[str]] = {}
    changed: dict[tuple[str, Change], list[str]] = {}
    for operator in operators:
        kind = operator.node.op_type
        of_mean = kind == "ReduceSum" and operator.node.output[0].endswith(SUMMED)
        if kind in ("Shape", "Size") or of_mean or graph.from_shapes.issuperset(filter(None, operator.node.output)):
            continue
        layer = operator.node.name or operator.node.output[0]
        row = _row_of(operator)
        if row is not None:
            refused.setdefault((kind, row), []).append(layer)
            continue
        for change in rows.CHANGED:
            if kind in change.types and change.applies(operator):
                changed.setdefault((kind, change), []).append(layer)
    found = [_refused(kind, row, layers) for (kind, row), layers in refused.items()]
    return ConverterFacts(
        (*found, *_names(graph), *_newer_opset(opset)),
        tuple(
            Changed(_what(kind, row.form), tuple(layers), row.becomes, row.probe, row.followed)
            for (kind, row), layers in changed.items()
        ),
        tuple(_lone_channels(graph)),
    )


def caffe_facts(layers: Iterable[tuple[str, str, Any]], other_weights: Sequence[str] = ()) -> ConverterFacts:
    """Return what the SDK refuses and changes of a Caffe net, from the name, type and message of each layer.

    other_weights  layers whose weights are doubles or half-precision numbers.
    """
    refused: dict[tuple[str, str, str, str, str], list[str]] = {}
    changed: dict[tuple[str, str, str], list[str]] = {}
    layers = list(layers)
    read = {bottom for _, _, message in layers for bottom in message.bottom}

    def fits(form: LayerRefusal, kind: str, message: Any) -> bool:
        return kind == form.type and form.applies(message) and not (form.last and read.intersection(message.top))

    for name, kind, message in layers:
        row = next((row for row in rows.CAFFE_REFUSED if kind in row.types), None)
        form = next((form for form in rows.CAFFE_FORMS if fits(form, kind, message)), None)
        if row is not None:
            refused.setdefault((kind, row.stage, row.words(kind), row.probe, ""), []).append(name)
        elif form is not None:
            refused.setdefault((kind, form.stage, form.said, form.probe, form.form), []).append(name)
        for type_, what, becomes, probe, applies in rows.CAFFE_CHANGED:
            if kind == type_ and applies(message):
                changed.setdefault((_what(kind, what), becomes, probe), []).append(name)
    what, stage, said, probe = rows.OTHER_WEIGHTS
    of_weights = [Refused(what, tuple(other_weights), stage, said, probe)] if other_weights else []
    return ConverterFacts(
        (
            *(
                Refused(_what(kind, form), tuple(names), stage, said, probe)
                for (kind, stage, said, probe, form), names in refused.items()
            ),
            *of_weights,
        ),
        tuple(Changed(what, tuple(names), becomes, probe) for (what, becomes, probe), names in changed.items()),
    )


def config_facts(
    formats: Iterable[tuple[str, str]],
    channels_last: Sequence[str] = (),
    one_for_all: Sequence[str] = (),
    means_by_colour: bool = True,
) -> tuple[Refused, ...]:
    """Return what the SDK refuses of the inputs of an input_config.ini, from name and training format of each.

    channels_last    the images among them of shape N, H, W, C.
    one_for_all      the keys of means and std with one value for several images.
    means_by_colour  images have mean_red, mean_green and mean_blue.
    """
    named: dict[str, list[str]] = {}
    for name, form in formats:
        named.setdefault(form, []).append(name)
    pictures = tuple(name for form, names in named.items() if form not in RAWDATA for name in names)
    refused = [
        Refused(
            f"training_input_formats {form}",
            tuple(names),
            "convert",
            "sgs_ParserInOutConfigFile: Assertion `0' failed.",
            rows.REFUSED_FORMATS[form],
        )
        for form, names in named.items()
        if form in rows.REFUSED_FORMATS
    ]
    if channels_last:
        what = "an image of shape N, H, W, C: export it as N, C, H, W (tf2onnx --inputs-as-nchw)"
        refused.append(Refused(what, tuple(channels_last), *rows.CHANNELS_LAST))
    if one_for_all:
        what = "one value for several images: write one for each, separated by commas"
        refused.append(Refused(what, tuple(one_for_all), *rows.ONE_FOR_ALL))
    if pictures and not means_by_colour:
        what = "an input_config.ini without mean_red, mean_green and mean_blue (only newer SDKs accept mean)"
        refused.append(Refused(what, pictures, *rows.NO_COLOURS))
    return tuple(refused)


def input_changes(
    facts: ConverterFacts, formats: Iterable[tuple[str, str]], grey: Sequence[str] = ()
) -> tuple[Changed, ...]:
    """Return what the SDK changes of a model's inputs, from the name and training format of each.

    grey  images of one channel that are RGB with GRAY.
    """
    named = tuple(name for name, form in formats if form == rows.RAWDATA and name in facts.lone_channels)
    what, becomes, probe = rows.ONE_CHANNEL
    changed = [Changed(f"{what} as {rows.RAWDATA}", named, becomes, probe)] if named else []
    if grey:
        changed.append(Changed(rows.GREY_PICTURE[0], tuple(grey), *rows.GREY_PICTURE[1:]))
    return tuple(changed)


def _lone_channels(graph: Graph) -> Iterator[str]:
    for name in graph.inputs:
        shape = graph.shapes.get(name) or ()
        convolved = any(node.op_type == "Conv" for node in graph.consumers.get(name, ()))
        if len(shape) == 4 and shape[1] == 1 and convolved:
            yield name


def _row_of(operator: Operator) -> Refusal | None:
    kind = operator.node.op_type
    if operator.node.domain in MAIN_DOMAINS:
        row = next((row for row in rows.REFUSED if kind in row.types and row.applies(operator)), None)
        if row is not None or kind in rows.TAKEN:
            return row
    return Refusal((kind,), "", "convert", rows.NO_TYPE, "")


def _newer_opset(opset: int) -> Iterator[Refused]:
    if opset > rows.NEWEST_OPSET:
        yield Refused(
            "a model of this opset", (f"opset {opset}",), "convert", "onnxruntime: not supported", "y_relu_o19"
        )


def _refused(kind: str, row: Refusal, layers: Sequence[str]) -> Refused:
    return Refused(_what(kind, row.form), tuple(layers), row.stage, row.words(kind), row.probe)


def _what(kind: str, form: str) -> str:
    return f"{kind} {form}" if form else kind


def _names(graph: Graph) -> Iterator[Refused]:
    """Yield problems with tensor names, which the SDK stores in its files of ranges and statistics."""
    names = [name for node in graph.nodes for name in node.output]
    long = tuple(name[:20] + "…" for name in names if len(name) > rows.LONGEST_NAME)
    if long:
        yield Refused(f"names of more than {rows.LONGEST_NAME} characters", long, "calibrate", "Aborted", "rn_247")
    parted = tuple(name for name in names if ";" in name)
    if parted:
        what = "names with a semicolon, above level L1"
        yield Refused(what, parted, "calibrate", "get_tensor_statistics_dict AssertionError", "resnet_semi", True)
