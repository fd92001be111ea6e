"""The files that ``sgsdump compare`` writes, each option the same comparison in another form."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.dumps.dump import Dump
    from sgsdump.reports.layers.table import LayerTable, Listing

FILES = ("csv", "json", "html", "junit", "markdown")


def check_files(args: argparse.Namespace) -> None:
    """Raises OutputError when one would overwrite another, or what is read."""
    from sgsdump.dumps.trees import tree_of
    from sgsdump.files.atomic_write import check_folder, check_not_around, check_outputs

    model, annotated = args.annotate or (None, None)
    read = [args.sample, args.benchmark, args.golden, args.tensor_min_max, args.parse_net, args.stages]
    read += [*args.name_map, model]
    written = [*(getattr(args, name) for name in FILES), annotated, args.write_name_map]
    trees = [tree_of(path) for path in read if path]
    check_outputs([*written, args.plots], trees)
    if args.plots:
        check_folder(args.plots, "--plots")
        check_not_around(args.plots, [*trees, *written])


def of_run(args: argparse.Namespace, label: str) -> None:
    """Let every file of these options bear the run's label: ``report.step0-rank0.csv``."""
    for name in FILES:
        path = getattr(args, name)
        setattr(args, name, path and path.with_stem(f"{path.stem}.{label}"))
    if args.plots:
        args.plots = args.plots.with_name(f"{args.plots.name}.{label}")
    if args.annotate:
        model, path = args.annotate
        args.annotate = [model, path.with_stem(f"{path.stem}.{label}")]


def listing_of(args: argparse.Namespace) -> Listing:
    """Which layers are listed; so many worst ones have the worst one first, unless another order was asked for."""
    from sgsdump.reports.layers.table import Listing

    return Listing(args.sort or ("worst" if args.top else "depth"), args.top, args.only_bad)


def write_files(
    args: argparse.Namespace,
    comparison: Comparison,
    thresholds: Thresholds,
    table: LayerTable,
    dumps: tuple[Dump, Dump] | None,
) -> list[str]:
    """Write every file that was asked for; returns what there is to say of them. ``dumps`` are None of several runs."""
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.reports.comparison import REPORTS

    for name, path in (("csv", args.csv), ("json", args.json)):
        if path:
            replace_text(path, REPORTS[name](comparison, thresholds))
    if args.html:
        replace_text(args.html, _page(args, comparison, thresholds, *(dumps or (None, None))))
    lines = write_tables(args, table)
    if args.write_name_map and dumps:
        lines += _write_names(args.write_name_map, comparison, *dumps)
    if args.plots and comparison.rows:
        lines.append(_plotted(args, comparison, thresholds))
    return lines


def title_of(args: argparse.Namespace) -> str:
    return f"{args.sample.name} against {args.benchmark.name}"


def write_tables(args: argparse.Namespace, table: LayerTable) -> list[str]:
    """What is made of any comparison's table of layers: JUnit, Markdown, the annotated model."""
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.reports.layers import junit, markdown

    if args.junit:
        replace_text(args.junit, junit.render(table))
    if args.markdown:
        replace_text(args.markdown, markdown.render(table, listing_of(args)))
    return list(_annotated(args, table)) if args.annotate else []


def _annotated(args: argparse.Namespace, table: LayerTable) -> Iterator[str]:
    from sgsdump.models.model import open_model
    from sgsdump.models.node_notes import annotate
    from sgsdump.quantisation.fixed_facts import read_facts
    from sgsdump.reports.layers.node_notes import notes_of

    model, path = args.annotate
    facts = read_facts(open_model(model))
    stored = {name: tensor.stored for name, tensor in facts.tensors.items()} if facts else {}
    notes = notes_of(table, stored)
    left = annotate(model, path, notes)
    count = len(notes) - len(left)
    yield f"Annotated model {path}: {f'{count} layers at their nodes' if count > 1 else '1 layer at its node'}."
    if left:
        yield f"  without a node in it ({len(left)}):"
        yield f"    {', '.join(note.names[0] for note in left)}"


def _page(
    args: argparse.Namespace, comparison: Comparison, shown: Thresholds, sample: Dump | None, benchmark: Dump | None
) -> str:
    """The comparison as HTML."""
    from sgsdump.reports.html.document import render
    from sgsdump.reports.html.of_comparison import report_of
    from sgsdump.sidecars.tensor_min_max import read_ranges

    return render(
        report_of(
            comparison,
            shown,
            title=title_of(args),
            ranges=read_ranges(args.tensor_min_max) if args.tensor_min_max else None,
            sample=sample,
            benchmark=benchmark,
            facts=[("sample", str(args.sample)), ("benchmark", str(args.benchmark))],
        )
    )


def _plotted(args: argparse.Namespace, comparison: Comparison, thresholds: Thresholds) -> str:
    """Last of all files, since a folder takes its place at once."""
    from sgsdump.files.atomic_write import replacing_folder
    from sgsdump.reports.plots.plots import save_plots
    from sgsdump.sidecars.tensor_min_max import read_ranges

    ranges = read_ranges(args.tensor_min_max) if args.tensor_min_max else {}
    with replacing_folder(args.plots) as folder:
        pictures = save_plots(comparison, folder, thresholds, title=title_of(args), ranges=ranges)
    return f"Pictures: {', '.join(str(args.plots / picture.name) for picture in pictures)}"


def _write_names(path: Path, comparison: Comparison, sample: Dump, benchmark: Dump) -> list[str]:
    from sgsdump.comparison.naming import name_files
    from sgsdump.comparison.naming.pairs_by_map import name_map_of

    pairs = [(row.sample_name, row.name) for row in comparison.rows]
    pairs += [(failed.pair.sample.name, failed.pair.benchmark.name) for failed in comparison.failed]
    names, left_out = name_map_of(pairs, sample, benchmark)
    name_files.write_name_map(names, path)
    lines = [f"Name map {path}: {len(names)} pairs whose names differ."]
    for sample_name, benchmark_name in left_out:
        lines.append(f"  not in it: {benchmark_name} with {sample_name}: one of these names is not unique in its dump")
    return lines
