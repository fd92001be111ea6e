"""``histogram``: distribution of the values of each layer within its calibration range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

from sgsdump import plugins
from sgsdump.errors import ConfigError, ValuesError, hint

if TYPE_CHECKING:
    from sgsdump.comparison.distribution import Distribution, Undrawn
    from sgsdump.dumps.dump import Dump
    from sgsdump.tensors.types import Range


class Calibrated(Protocol):
    """Result of ``calibrate``, or any object whose ``ranges`` maps tensor names to ranges."""

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Calibration range of each tensor by name."""


@dataclass(frozen=True, eq=False)
class Histograms:
    """Distributions of a dump's layers within their calibration ranges, in execution order.

    A ``Histograms`` object is a collection of its layers. ``Histograms`` supports ``len``, iteration, and indexing by
    name, number or slice.

    Attributes
    ----------
    layers : tuple of Distribution
        One record per layer with its counts and range. The record tells whether the layer is clipped, uses little of
        its range, or has NaN or Inf. Notebooks show the record as a chart.
    undrawn : tuple of Undrawn
        Layers whose values are not available, with the reason.
    unused : tuple of str
        Names in the ranges file that match no layer.
    notes : tuple of str
        Notes from reading the dump.

    Examples
    --------
    ::

        result = sgsdump.histogram("float.bin", "tensor_min_max.txt")
        [layer.name for layer in result.troubled]
        result["conv1"].levels
        result.save("Histograms")
    """

    layers: tuple[Distribution, ...]
    undrawn: tuple[Undrawn, ...] = ()
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def troubled(self) -> tuple[Distribution, ...]:
        """Suspicious layers: clipped, using only a small part of their range, or with NaN or Inf."""
        return tuple(layer for layer in self.layers if layer.troubled)

    def save(self, folder: str | Path) -> Path:
        """Write one chart per layer and ``overview.png``, as ``sgsdump histogram`` does.

        Parameters
        ----------
        folder : str or Path
            Folder to write. An existing folder is kept under a new name.

        Returns
        -------
        Path
            The written folder.

        Raises
        ------
        ValuesError
            If there are no layers to draw.
        OutputError
            If the folder cannot be written.
        """
        from sgsdump.files.atomic_write import replacing_folder

        with replacing_folder(Path(folder)) as new:
            drawn_into(new, self.layers).check(Path(folder))
        return Path(folder)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per layer.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        from sgsdump.comparison.distribution import to_pandas

        return to_pandas([*self.layers, *self.undrawn])

    @overload
    def __getitem__(self, name: str | int) -> Distribution: ...

    @overload
    def __getitem__(self, name: slice) -> tuple[Distribution, ...]: ...

    def __getitem__(self, name: str | int | slice) -> Distribution | tuple[Distribution, ...]:
        """Return a layer by name or number, or several layers by slice.

        Parameters
        ----------
        name : str, int or slice

        Returns
        -------
        Distribution or tuple of Distribution

        Raises
        ------
        KeyError
            If no layer has this name. The error message lists similar names, or gives the reason why the layer has no
            values.
        IndexError
            If ``name`` is a number, and no layer has this number.
        """
        if isinstance(name, int | slice):
            return self.layers[name]
        by_name = {layer.name: layer for layer in reversed(self.layers)}
        if name in by_name:
            return by_name[name]
        reason = next((layer.reason for layer in self.undrawn if layer.name == name), "")
        raise KeyError(reason or f"no layer {name!r}{hint(name, by_name)}")

    def __iter__(self) -> Iterator[Distribution]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        undrawn = f", {len(self.undrawn)} without values" if self.undrawn else ""
        return f"<Histograms: {len(self.layers)} layers, {len(self.troubled)} suspicious{undrawn}>"

    def _repr_html_(self) -> str | None:
        return plugins.as_html("distributions", self.layers)


def histogram(
    dump: Dump | str | Path, ranges: str | Path | Mapping[str, Range] | Calibrated | None = None
) -> Histograms:
    """Compute a histogram of each layer's values, to compare the values with the layer's calibration range.

    The function is the Python equivalent of ``sgsdump histogram``.

    Parameters
    ----------
    dump : Dump, str or Path
        Dump of the float model, or the path of a dump in any format.
    ranges : str, Path, mapping or FixedModel, optional
        Calibration ranges: a ``tensor_min_max.txt``, a quant file, ranges of AIMET, Quark or NNCF, {tensor name:
        ``Range``}, or the result of ``calibrate``. If ``ranges`` is None, the histograms show no calibration ranges.

    Returns
    -------
    Histograms

    Raises
    ------
    SgsdumpError
        If a file cannot be read, or if no range matches a layer.

    Examples
    --------
    ::

        result = sgsdump.histogram("float.bin", sgsdump.calibrate("model.onnx", "images"))
    """
    from sgsdump.comparison.distribution import Undrawn, distributions
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.io import open_dump

    opened = dump if isinstance(dump, Dump) else open_dump(dump)
    named = (
        ("the dump" if isinstance(dump, Dump) else str(dump)),
        (str(ranges) if isinstance(ranges, str | Path) else "the ranges"),
    )
    matched = matched_ranges(opened, None if ranges is None else _ranges_of(ranges), *named)
    found = list(distributions(with_side_files(opened, matched.by_layer), matched.by_layer))
    return Histograms(
        tuple(layer for layer in found if not isinstance(layer, Undrawn)),
        tuple(layer for layer in found if isinstance(layer, Undrawn)),
        tuple(sorted(matched.unused - opened.constants.keys())),
        tuple(opened.notes),
    )


def _ranges_of(ranges: str | Path | Mapping[str, Range] | Calibrated) -> Mapping[str, Range]:
    from sgsdump.models.model import ranges_of

    if isinstance(ranges, str | Path):
        return ranges_of(Path(ranges))
    return ranges if isinstance(ranges, Mapping) else ranges.ranges


@dataclass(frozen=True)
class Matched:
    """Ranges by layer name, and the names of ranges that match no layer."""

    by_layer: Mapping[str, Range]
    unused: frozenset[str]


def matched_ranges(dump: Dump, ranges: Mapping[str, Range] | None, dump_name: str, ranges_name: str) -> Matched:
    """Return the range of each layer. Raise ConfigError if ``ranges`` is empty, or if no range matches a layer."""
    from sgsdump.comparison.distribution import layers, pair_ranges

    if ranges is None:
        return Matched({}, frozenset())
    if not ranges:
        raise ConfigError(f"{ranges_name}: no ranges found. Calibrate again, or give another file")
    records = layers(dump)
    names = [record.name for record in records]
    pairs = pair_ranges(names, ranges)
    # NNCF and AIMET's analyser name an output by its node.
    nodes: dict[str, list[str]] = {}
    for record in records:
        nodes.setdefault(f"{record.op_type}_output_{record.slot}", []).append(record.name)
    used = set(pairs.values())
    rest = {name: bounds for name, bounds in ranges.items() if name not in used}
    for node, name in pair_ranges(nodes, rest).items():
        if len(nodes[node]) == 1:
            pairs.setdefault(nodes[node][0], name)
    if not pairs:
        raise ConfigError(
            f"{ranges_name}: no range matches a layer of {dump_name}. Check that both are of the same model "
            f"(layers: {_first(names)}; ranges: {_first(list(ranges))})"
        )
    return Matched({name: ranges[pairs[name]] for name in pairs}, frozenset(ranges.keys() - pairs.values()))


def with_side_files(dump: Dump, ranges: Mapping[str, Range], parse_net: Path | None = None) -> Dump:
    """Return the dump with padding removed and values dequantised, as far as the ranges and ``parse_net`` allow."""
    from sgsdump.dumps.formats.sigmastar import side_files
    from sgsdump.models.model import net_of

    return side_files.with_side_files(dump, ranges, net_of(parse_net) if parse_net else None)


@dataclass(frozen=True)
class Drawn:
    """Result of drawing charts: layers, layers not drawn, overview files, and layers that share another's chart."""

    layers: list[Distribution]
    undrawn: list[Undrawn]
    sheets: list[Path]
    copies: Mapping[int, int]

    def check(self, of: Path) -> None:
        """Raise ValuesError if no layer was drawn."""
        if not self.layers:
            why = f": {self.undrawn[0].reason}" if self.undrawn else ""
            raise ValuesError(f"{of}: no layer to draw{why}")


def drawn_into(folder: Path, results: Iterable[Distribution | Undrawn]) -> Drawn:
    """Draw the chart of each layer as soon as its values are counted, then draw the overviews.

    The folder must be empty. Raise OSError.
    """
    from sgsdump.comparison.distribution import Undrawn
    from sgsdump.files.names import Taken
    from sgsdump.reports.charts.bins import Copies, drawn_values
    from sgsdump.reports.charts.layer_histogram import drawing_beside, file_name, save_contact_sheets, save_histogram

    drawn: list[Distribution] = []
    undrawn: list[Undrawn] = []
    copies, taken = Copies(), Taken()
    with drawing_beside(save_histogram) as draw:
        for result in results:
            if isinstance(result, Undrawn):
                undrawn.append(result)
                continue
            if not copies.add(len(drawn), result.op_type, drawn_values(result)):
                draw(result, folder / file_name(result, taken))
            drawn.append(result)
    return Drawn(drawn, undrawn, save_contact_sheets(drawn, folder, copies.of), copies.of)


def _first(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
