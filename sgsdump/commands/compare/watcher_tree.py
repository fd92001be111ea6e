"""``sgsdump compare`` of a watcher's dump alone: which operator changed which watched output."""

from __future__ import annotations

import argparse

from sgsdump.errors import ConfigError
from sgsdump.files.escaping import for_terminal


def compare_watched(args: argparse.Namespace) -> int:
    """A report for each run of the tree; 1 where an output was changed. Raises ConfigError, ValuesError."""
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.runs import Run
    from sgsdump.dumps.trees import list_runs, tree_of
    from sgsdump.dumps.watched_changes import watched_changes
    from sgsdump.reports.dump.watched_lines import render

    given = [f"--{name.replace('_', '-')}" for name in _NOT_HERE if getattr(args, name) not in (None, False, [])]
    if given:
        raise ConfigError(f"{given[0]} is for two dumps; name the benchmark too, or leave it out for a watcher's dump")
    tree = tree_of(args.sample)
    runs = list_runs(args.sample, args.step, args.rank)
    status = 0
    for run in runs or [Run()]:
        with open_dump(tree / run.place) as dump:
            found = watched_changes(dump)
            if len(runs) > 1:
                print(for_terminal(f"== {run}"))
            print(for_terminal(render(found)), end="")
            print(for_terminal("".join(f"note: {note}\n" for note in dump.notes)), end="")
        status = max(status, bool(found.changes))
    return int(status)


_NOT_HERE = (
    *"min_cos max_rmse max_mse inputs tensor_min_max parse_net runs match_by_value stages name_map name_rule".split(),
    *"write_name_map metrics metric limit exclude compatible golden input_tag csv json".split(),
    *"html plots junit markdown annotate sort top only_bad scheduler".split(),
)
