"""``sgsdump compare --golden``: a sample and a benchmark, judged by a third run."""

from __future__ import annotations

import argparse

from sgsdump.commands.options import described

NOT_WITH_GOLDEN = (
    *"min_cos max_rmse max_mse match_by_value stages name_map name_rule write_name_map".split(),
    *"metrics metric limit exclude compatible runs html plots scheduler".split(),
)


def compare_golden(args: argparse.Namespace) -> int:
    """Compare, print and write. Raises ConfigError for an option that is for two dumps only."""
    from sgsdump.commands.compare.files import write_tables
    from sgsdump.commands.compare.printed import print_golden
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison import golden
    from sgsdump.dumps.dump import note_lines
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.reports.golden import csv, json
    from sgsdump.reports.layers.of_golden import table_of

    for name in NOT_WITH_GOLDEN:
        if getattr(args, name) not in (None, False, []):
            raise ConfigError(f"--{name.replace('_', '-')} cannot be combined with --golden; leave one of them out")
    paths = (args.sample, args.benchmark, args.golden)
    sample, benchmark, accepted = described(args, *paths)
    settings = golden.GoldenSettings(
        tag=10.0 if args.input_tag is None else args.input_tag,
        th1=args.th1,
        titles=(str(args.sample), str(args.benchmark), str(args.golden)),
    )
    comparison = golden.compare_golden(sample, benchmark, accepted, settings, inputs=args.inputs, progress=TERMINAL)
    for report, path in ((csv, args.csv), (json, args.json)):
        if path:
            replace_text(path, report.render(comparison))
    table = table_of(comparison)
    lines = write_tables(args, table)
    notes = [line for path, dump in zip(paths, (sample, benchmark, accepted)) for line in note_lines(path, dump.notes)]
    print_golden(args, comparison, table, [*lines, *notes])
    return 0 if comparison.passes else 1
