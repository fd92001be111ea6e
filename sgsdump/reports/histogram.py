"""``histogram``: how the values of every layer lie in its calibrated range."""

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
    """What ``calibrate`` returns."""

    @property
    def ranges(self) -> Mapping[str, Range]: ...


@dataclass(frozen=True, eq=False)
class Histograms:
    """The layers of a dump against their ranges, in the network's order.

    layers   each a ``Distribution``: its counts, range and what is wrong with it; a notebook draws it.
    undrawn  layers whose values cannot be had, and why.
    unused   names of ranges that are of no layer.
    notes    of the dump.

    It is a collection of its layers: ``len(h)``, ``for layer in h``, ``h["conv1"]``, ``h[0]``.
    """

    layers: tuple[Distribution, ...]
    undrawn: tuple[Undrawn, ...] = ()
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def troubled(self) -> tuple[Distribution, ...]:
        """Those that need a look: clipped, wasteful of their range, with NaN or Inf."""
        return tuple(layer for layer in self.layers if layer.troubled)

    def save(self, folder: str | Path) -> Path:
        """Write the folder of ``sgsdump histogram``, a picture per layer and ``overview.png``; an older one is moved
        aside. Raises ValuesError without layers, OutputError."""
        from sgsdump.files.atomic_write import replacing_folder

        with replacing_folder(Path(folder)) as new:
            drawn_into(new, self.layers).check(Path(folder))
        return Path(folder)

    def to_pandas(self) -> Any:
        """Every layer as a DataFrame. Raises MissingExtra without pandas."""
        from sgsdump.comparison.distribution import to_pandas

        return to_pandas([*self.layers, *self.undrawn])

    @overload
    def __getitem__(self, name: str | int) -> Distribution: ...

    @overload
    def __getitem__(self, name: slice) -> tuple[Distribution, ...]: ...

    def __getitem__(self, name: str | int | slice) -> Distribution | tuple[Distribution, ...]:
        """The layer of this name, or at this place. Raises KeyError with the nearest names, or with the reason why
        there is none; IndexError."""
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
        return f"<Histograms: {len(self.layers)} layers, {len(self.troubled)} need a look{undrawn}>"

    def _repr_html_(self) -> str | None:
        return plugins.as_html("distributions", self.layers)


def histogram(
    dump: Dump | str | Path, ranges: str | Path | Mapping[str, Range] | Calibrated | None = None
) -> Histograms:
    """How the values of every layer lie in its calibrated range; as ``sgsdump histogram``.

    dump    of the float model, of any format.
    ranges  what ``calibrate`` returned, a ``tensor_min_max.txt`` or quant file, or ``Range`` by name; None: histograms
            alone.

    Raises SgsdumpError: what cannot be read, and ranges of another network.
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
    """Ranges by layer name, and the names of those of no layer."""

    by_layer: Mapping[str, Range]
    unused: frozenset[str]


def matched_ranges(dump: Dump, ranges: Mapping[str, Range] | None, dump_name: str, ranges_name: str) -> Matched:
    """Raises ConfigError where there are no ranges, or those of another network."""
    from sgsdump.comparison.distribution import layers, pair_ranges

    if ranges is None:
        return Matched({}, frozenset())
    if not ranges:
        raise ConfigError(f"{ranges_name} holds no range; calibrate again, or name another file")
    names = [record.name for record in layers(dump)]
    pairs = pair_ranges(names, ranges)
    if not pairs:
        raise ConfigError(
            f"no layer of {dump_name} has a range in {ranges_name}; are both of the same network? "
            f"(layers: {_first(names)}; ranges: {_first(list(ranges))})"
        )
    return Matched({name: ranges[pairs[name]] for name in pairs}, frozenset(ranges.keys() - pairs.values()))


def with_side_files(dump: Dump, ranges: Mapping[str, Range], parse_net: Path | None = None) -> Dump:
    """The dump, unpadded and dequantised as far as its layers' ranges and parse_net's text tell."""
    from sgsdump.dumps.formats.sigmastar import side_files
    from sgsdump.models.model import net_of

    return side_files.with_side_files(dump, ranges, net_of(parse_net) if parse_net else None)


@dataclass(frozen=True)
class Drawn:
    """The pictures of a folder: the layers, those not drawn, the overviews, and which layer is a copy of which."""

    layers: list[Distribution]
    undrawn: list[Undrawn]
    sheets: list[Path]
    copies: Mapping[int, int]

    def check(self, of: Path) -> None:
        """Raises ValuesError where nothing was drawn."""
        if not self.layers:
            why = f": {self.undrawn[0].reason}" if self.undrawn else ""
            raise ValuesError(f"nothing to draw in {of}{why}")


def drawn_into(folder: Path, results: Iterable[Distribution | Undrawn]) -> Drawn:
    """Draw each layer into an empty folder as soon as it is counted, and the overviews at the end. Raises OSError."""
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
