"""``tune --first``: run the rounds, write the folder and print the verdict."""

from __future__ import annotations

from sgsdump.commands.terminal import TERMINAL, print_cut, print_early, print_lines
from sgsdump.fixedpoint.commands.network_lines import print_warnings
from sgsdump.fixedpoint.commands.tune.options import Options
from sgsdump.fixedpoint.verbs.first_plan import MOST_ROUNDS, Task, first_plan_in, opened_for
from sgsdump.fixedpoint.verbs.tuned import ROUNDS, Written, check_results, kept_in


def run(options: Options) -> int:
    """Run the rounds; return the exit status."""
    from sgsdump.files.atomic_write import check_file, check_outputs, replace_text, replacing_folder

    output, network = options.folder, options.network
    files = [*network.files, *options.judges.files]
    check_outputs([output, options.json], files)
    check_results(output, files)
    rounds = options.rounds or MOST_ROUNDS
    task = Task(network, options.judges, options.quant_level, options.limits, rounds, options.cure)
    ready = opened_for(task)
    print_warnings(ready.network, ready.coverage)
    if options.json:
        check_file(options.json)
    # The folder is opened first: long rounds must not end with "no such folder".
    with replacing_folder(output, keep=kept_in(output)) as folder:
        found = first_plan_in(folder, ready, TERMINAL, print_early, lambda lines: print_early(["", *lines]))
        found.write(folder, Written(pickles=options.pickle, facts=options.facts))
    if options.json:
        replace_text(options.json, (output / ROUNDS).read_text(encoding="utf-8"))
    print_lines([*found.verdict, *found.tail()])
    print(f"{output}: {', '.join(sorted(path.name for path in output.iterdir()))}")
    print_cut(found.basis.opened.model, found.basis.opened.config)
    return 1 if options.limits and not found.passes else 0
