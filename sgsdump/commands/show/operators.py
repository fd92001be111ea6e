"""``sgsdump show --operators``: the operators of a model."""

from __future__ import annotations

import argparse

_OF_DUMPS = "name part operations step rank stored all against worst csv output".split()


def show_operators(args: argparse.Namespace) -> int:
    from sgsdump.errors import ConfigError
    from sgsdump.files.atomic_write import check_outputs, replace_text
    from sgsdump.files.escaping import for_terminal
    from sgsdump.models.operator_list import list_operators
    from sgsdump.reports.dump import operators_table

    given = [name for name in _OF_DUMPS if getattr(args, name) not in (None, False)]
    if given:
        option = "NAME" if given[0] in ("name", "part") else f"--{given[0]}"
        raise ConfigError(f"--operators lists a model; {option} is for a dump: leave one of them out")
    check_outputs([args.json], [args.dump])
    graphs = operators_table.selected(list_operators(args.dump), args.select)
    if args.json:
        replace_text(args.json, operators_table.json_document(graphs))
    print(for_terminal(operators_table.render(graphs)), end="")
    return 0
