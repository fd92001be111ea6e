"""What a quant plan costs: processor time of the search and of single plans, in runs of the float net.

    python benchmarks/tune.py [--short] [DATA]

DATA holds ultraface/ (model, images/) and images/; by default ../shared/data beside the checkout. A run of the float
net is onnxruntime's, with the settings that plans run with (one thread, basic optimisation). A plan alone is what the
first one costs, for which nothing is there to go on from: in one session, as ``PlanTrial`` has it, and in the stages of
``PlanWalk``, by which the search runs a plan from where it differs from the one before. The whole search is held
against what it took at commit dcad615 (FORMER float runs for a run of the network).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from rows import Row, show
from tuned_net import DATA, MODEL, RATE, TunedNet

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk
from sgsdump.fixedpoint.tuning.search import search_rates
from sgsdump.models.passes.rewrites import mark_outputs

FORMER = 4.4


def rows(net: TunedNet) -> list[Row]:
    """Processor time of one thread for single runs, of all for the search."""
    setup = net.setup()
    feed, raw = net.tuned_on[0]
    outputs = list(setup.pool.pictures[0].floats)
    floats = WholeGraph(mark_outputs(deployed(net.model), outputs), 1)
    whole, walk = WholeGraph(mark_outputs(setup.trial.every_plan, outputs), 1), PlanWalk(setup.trial, outputs)
    plan = walk.prepared(frozenset(setup.sizes.domains[::2]))
    single = quickest(lambda: floats.run(feed, outputs))
    together = quickest(lambda: whole.run({**plan.fed, **raw}, outputs))
    staged = quickest(lambda: walk.visit(raw).outputs(plan))
    start = time.process_time()
    search_rates(setup.pool, setup.sizes, [RATE])
    search, runs = time.process_time() - start, setup.pool.runs
    return [
        Row("tune: one plan alone in one session, float runs", together, single, 1.15),
        Row("tune: one plan alone by stages, float runs", staged, single, 1.15),
        Row("tune: one plan in the search, float runs", search / runs, single, 1.15),
        Row("tune: the search, as of dcad615", search, FORMER * single * runs, 0.33),
    ]


def quickest(run: Callable[[], object], times: int = 20) -> float:
    """Seconds of this thread's processor time, the least of some runs: other work on the machine only adds."""
    run()
    seconds = []
    for _ in range(times):
        start = time.thread_time()
        run()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--short"]
    data = Path(words[0]) if words else DATA
    if not (data / MODEL).is_file():
        sys.exit(f"there is no {data / MODEL}; give the folder that holds it")
    show(rows(TunedNet(data, *(2, 4) if "--short" in sys.argv[1:] else (10,))))


if __name__ == "__main__":
    main()
