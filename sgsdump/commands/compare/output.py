"""The output of ``sgsdump compare``. Apart: every mode ends here, in files, a table or the vendor's lines.

Each file is the same comparison in another form; a terminal gets a table as wide as it, a pipe one with whole names,
and ``--format sdk`` the lines of the SDK's tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from sgsdump.commands.compare.options import FILES
from sgsdump.commands.terminal import window
from sgsdump.files.escaping import for_terminal

if TYPE_CHECKING:
    from sgsdump.commands.compare.options import Options, Output
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.golden import GoldenComparison
    from sgsdump.comparison.row import Row
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.dumps.dump import Dump
    from sgsdump.reports.layers.table import LayerTable, Listing


def check_files(output: Output, read: Sequence[Path | None]) -> None:
    """Raises OutputError when one would overwrite another, or what is read."""
    from sgsdump.dumps.trees import tree_of
    from sgsdump.files.atomic_write import check_folder, check_not_around, check_outputs

    model, annotated = output.annotate or (None, None)
    read = [*read, model]
    written = [*(getattr(output, name) for name in FILES), annotated, output.write_name_map]
    trees = [tree_of(path) for path in read if path]
    check_outputs([*written, output.plots], trees)
    if output.plots:
        check_folder(output.plots, "--plots")
        check_not_around(output.plots, [*trees, *written])


def _listing(output: Output) -> Listing:
    """Which layers are listed; so many worst ones have the worst one first, unless another order was asked for."""
    from sgsdump.reports.layers.table import Listing

    return Listing(output.sort or ("worst" if output.top else "depth"), output.top, output.only_bad)


def write_files(
    options: Options,
    comparison: Comparison,
    thresholds: Thresholds,
    table: LayerTable,
    dumps: tuple[Dump, Dump] | None,
) -> list[str]:
    """Write every file that was asked for; returns what there is to say of them. ``dumps`` are None of several runs."""
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.reports.comparison import REPORTS

    output = options.output
    if output.csv:
        replace_text(output.csv, REPORTS["csv"](comparison, thresholds))
    if output.json:
        verdict = options.measuring.verdict_on(comparison, thresholds)
        replace_text(output.json, REPORTS["json"](comparison, thresholds, verdict))
    if output.html:
        replace_text(output.html, _page(options, comparison, thresholds, *(dumps or (None, None))))
    lines = write_tables(output, table)
    if output.write_name_map and dumps:
        lines += _write_names(output.write_name_map, comparison, *dumps)
    if output.plots and comparison.rows:
        lines.append(_plotted(options, output.plots, comparison, thresholds))
    return lines


def write_tables(output: Output, table: LayerTable) -> list[str]:
    """The files made of any comparison's table of layers: JUnit, Markdown, the annotated model."""
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.reports.layers import WRITERS

    table = replace(table, suite=output.suite or table.suite, seconds=monotonic() - output.begun)
    for name in WRITERS:
        if path := getattr(output, name):
            replace_text(path, WRITERS[name](table, _listing(output)))
    return list(_annotated(*output.annotate, table)) if output.annotate else []


def _annotated(model: Path, path: Path, table: LayerTable) -> Iterator[str]:
    from sgsdump.models.fixed_facts import read_facts
    from sgsdump.models.model import open_model
    from sgsdump.models.node_notes import annotate
    from sgsdump.reports.layers.node_notes import notes_of

    facts = read_facts(open_model(model))
    stored = {name: tensor.stored for name, tensor in facts.tensors.items()} if facts else {}
    notes = notes_of(table, stored)
    unmatched = annotate(model, path, notes)
    count = len(notes) - len(unmatched)
    yield f"Annotated model {path}: {f'metrics of {count} layers' if count > 1 else 'metrics of 1 layer'} added."
    if unmatched:
        yield f"  compared layers without a node in the model ({len(unmatched)}):"
        yield f"    {', '.join(note.names[0] for note in unmatched)}"


def _page(
    options: Options, comparison: Comparison, shown: Thresholds, sample: Dump | None, benchmark: Dump | None
) -> str:
    """The comparison as HTML."""
    from sgsdump.reports.html.document import render
    from sgsdump.reports.made_by import versions
    from sgsdump.reports.report import Context, report_of
    from sgsdump.reports.tensors.views import BUDGET
    from sgsdump.sidecars.tensor_min_max import read_ranges

    context = Context(
        options.title,
        facts=[
            ("sample", str(options.sample)),
            ("benchmark", str(options.benchmark)),
            *([("ranges", str(options.reading.ranges))] if options.reading.ranges else []),
            versions(),
            *options.typed,
        ],
        ranges=read_ranges(options.reading.ranges) if options.reading.ranges else {},
        sample=sample,
        benchmark=benchmark,
        page_budget=BUDGET,
    )
    return render(report_of(comparison, shown, context, conclusion=options.measuring.verdict_on(comparison, shown)))


def _plotted(options: Options, plots: Path, comparison: Comparison, thresholds: Thresholds) -> str:
    """Last of all files, since a folder takes its place at once."""
    from sgsdump.files.atomic_write import replacing_folder
    from sgsdump.reports.charts.plots import save_plots
    from sgsdump.reports.report import Context, report_of
    from sgsdump.sidecars.tensor_min_max import read_ranges

    path = options.reading.ranges
    context = Context(options.title, ranges=read_ranges(path) if path else {})
    with replacing_folder(plots) as folder:
        pictures = save_plots(report_of(comparison, thresholds, context), folder)
    return f"Charts: {', '.join(str(plots / picture.name) for picture in pictures)}"


def _write_names(path: Path, comparison: Comparison, sample: Dump, benchmark: Dump) -> list[str]:
    from sgsdump.comparison.naming import name_files
    from sgsdump.comparison.naming.pairs_by_map import name_map_of

    pairs = [(row.sample_name, row.name) for row in comparison.rows]
    pairs += [(failed.pair.sample.name, failed.pair.benchmark.name) for failed in comparison.failed]
    names, left_out = name_map_of(pairs, sample, benchmark)
    name_files.write_name_map(names, path)
    lines = [f"Name map {path}: {len(names)} pairs whose names differ."]
    for sample_name, benchmark_name in left_out:
        lines.append(
            f"  not in the map: {benchmark_name} and {sample_name}; one of these names is not unique in its dump"
        )
    return lines


def print_comparison(
    options: Options,
    comparison: Comparison,
    thresholds: Thresholds,
    table: LayerTable,
    lines: Sequence[str],
) -> None:
    """The layers that are listed, the verdict, ``lines`` and the readers' notes."""
    from sgsdump.dumps.dump import note_lines
    from sgsdump.reports.comparison import REPORTS
    from sgsdump.reports.three_lines import verdict_block
    from sgsdump.reports.verdict import verdict_lines

    verdict = options.measuring.verdict_on(comparison, thresholds)
    if options.output.format != "sdk":
        _print_fitted(verdict_block(verdict))
    indexes = _listing(options.output).places(table.compared)
    rows = tuple(comparison.rows[index] for index in indexes)
    both = [note for note in comparison.sample_notes if note in comparison.benchmark_notes]
    own = [
        [note for note in of_side if note not in both]
        for of_side in (comparison.sample_notes, comparison.benchmark_notes)
    ]
    notes = [
        *note_lines("both dumps", both),
        *note_lines(options.sample, own[0]),
        *note_lines(options.benchmark, own[1]),
    ]
    few = _few(len(rows), len(comparison.rows))
    if options.output.format != "sdk":
        _print_table(table, indexes)
        _print_fitted([*few, *(_remarks(rows) if comparison.other_input is None else ()), ""])
        _print_fitted([*verdict_lines(comparison, thresholds, verdict), *lines, *notes])
        return
    text = REPORTS["sdk_table"](replace(comparison, rows=rows), thresholds)
    text += "".join(f"{line}\n" for line in few)
    print(for_terminal(f"{text}\n" if text else ""), end="")
    print(for_terminal(REPORTS["verdict"](comparison, thresholds, verdict)), end="")
    print(for_terminal("".join(f"{line}\n" for line in (*lines, *notes))), end="")


def damage_text(dumps: str, damaged: Sequence[str]) -> str:
    """Return the error of dumps that are damaged in places, once the rest was compared."""
    more = f" (and {len(damaged) - 1} more, listed above)" if len(damaged) > 1 else ""
    return (
        f"cannot read every tensor of {dumps}: {damaged[0]}{more}. All other tensors were compared. "
        "Create the damaged dump again"
    )


def print_golden(output: Output, comparison: GoldenComparison, table: LayerTable, lines: Sequence[str]) -> None:
    """Print the verdict, the listed tensors, the tensors that are not on all sides, and ``lines``."""
    from sgsdump.reports.golden import golden_closing, golden_log, missing_lines
    from sgsdump.reports.remarks import reason_lines

    if output.format != "sdk":
        _print_fitted(table.verdict)
    indexes = _listing(output).places(table.compared)
    if output.format != "sdk":
        _print_table(table, indexes)
        entries = [table.compared[index] for index in indexes]
        _print_fitted(
            [
                *_few(len(indexes), len(table.compared)),
                *reason_lines((e.name, e.remark) for e in entries if e.remark),
                "",
            ]
        )
        _print_fitted(missing_lines(comparison))
        _print_fitted(reason_lines((entry.name, entry.remark) for entry in table.left_out))
    else:
        _print_fitted(missing_lines(comparison))
        print(for_terminal(golden_log(comparison)), end="")
    _print_fitted([*golden_closing(comparison), *lines])


def _few(listed: int, compared: int) -> list[str]:
    return [f"{listed} of {compared} compared layers are listed."] if 0 < listed < compared else []


def _remarks(rows: Iterable[Row]) -> Iterator[str]:
    """Of the rows listed, without those that the verdict tells of by itself."""
    from sgsdump.reports.remarks import reason_lines, why

    remarks = ((row.name, why(row)) for row in rows if row.finite and not row.misnamed)
    yield from reason_lines((name, remark) for name, remark in remarks if remark)


def _print_table(table: LayerTable, indexes: Sequence[int]) -> None:
    from sgsdump.reports.layers.terminal import render

    print(render([table.compared[index] for index in indexes], window()), end="")


def _print_fitted(lines: Iterable[str]) -> None:
    """Within the window on a terminal; else as they are."""
    terminal = window()
    for line in lines:
        for part in terminal.fitted(line):
            print(part)
