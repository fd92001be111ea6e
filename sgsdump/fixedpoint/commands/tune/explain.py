"""``tune --explain``: measure the contributions, write the folder and print the table."""

from __future__ import annotations

from sgsdump.commands.terminal import TERMINAL, print_cut, print_lines
from sgsdump.fixedpoint.commands.network_lines import print_warnings
from sgsdump.fixedpoint.commands.tune.options import Options
from sgsdump.fixedpoint.verbs.explain import Task, check, explained, opened_for
from sgsdump.fixedpoint.verbs.tuned import Written, check_results


def run(options: Options) -> int:
    """Explain; return the exit status."""
    from sgsdump.files.atomic_write import check_outputs

    network = options.network
    task = Task(
        network,
        options.ranges,
        options.dump,
        options.fixed,
        options.quant_level,
        options.limits,
        options.judges.evaluate,
    )
    check(task)
    check_outputs([options.json, options.output], task.files)
    if options.output is not None:
        check_results(options.output, task.files)
    ready = opened_for(task)
    print_warnings(ready.network, ready.coverage)
    found = explained(ready, TERMINAL)
    if options.json:
        found.save_json(options.json)
    if options.output is not None:
        found.save(options.output, Written(facts=options.facts))
    print_lines(found.lines())
    if options.output is not None:
        print(f"{options.output}: {', '.join(sorted(path.name for path in options.output.iterdir()))}")
    print_cut(ready.network.model, ready.network.config)
    return 0
