"""Seconds and evaluations to a tuned plan: ``sgsdump tune`` against two usual ways, same model, pictures and rate.

(a) one re-quantise-and-run per candidate with onnxruntime.quantization: every convolution alone raised to INT16 in an
    INT8 model, then raised together in the order of gain per byte, each step verified;
(b) plain greedy over ``PlanTrial``: each step tries every convolution that still fits and keeps the best.

Each is stopped at ten times the seconds of ours (twice with --short); its error is then that of the best plan it has
verified. Each plan is judged twice: by the error its own way works with (ours looks at the logits, the others at the
outputs; (a) runs the graphs that onnxruntime makes), and by the error of the same plan in tune.
With the model's own pictures a table of plans is printed too, calibrated and tuned on 24 photographs, judged on 10
pictures with faces.

    python benchmarks/tune_ways.py [--short] [DATA]

DATA is as for ``tune.py``, which has the rows of the table of figures.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tuned_net import DATA, MODEL, RATE, TunedNet

from sgsdump.fixedpoint.quantisation.objective import score, total
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan
from sgsdump.fixedpoint.reports.pareto_reports import pareto_table as render
from sgsdump.fixedpoint.tuning.criteria import Picture
from sgsdump.fixedpoint.tuning.pareto import pareto
from sgsdump.fixedpoint.tuning.plan_costs import Sizes
from sgsdump.fixedpoint.tuning.search import SearchResult, search_rates
from sgsdump.fixedpoint.tuning.setup import Setup
from sgsdump.models.feeds.image_list import evenly

TIMES, TIMES_SHORT = 10, 2
TABLE_RATES = (0.505, 0.51, 0.55, 0.6, 0.65, 0.7, 0.75, 0.85, 0.95)


@dataclass(frozen=True)
class Outcome:
    seconds: float
    plans: int
    error: float
    plan: Plan
    whole: bool = True


def ours(net: TunedNet) -> Outcome:
    start = time.perf_counter()
    setup = net.setup()
    found = search_rates(setup.pool, setup.sizes, [RATE])
    seconds = time.perf_counter() - start
    plan = found.plans[0].plan
    return Outcome(seconds, len(setup.pool.scores), setup.pool.error(plan), plan)


def greedy(net: TunedNet, limit: float) -> Outcome:
    """(b), one plan at a time through one whole-graph session."""
    start = time.perf_counter()
    setup = net.setup()
    judge = _judge(setup, lambda plan, picture: setup.trial.run(plan, picture.raw, setup.trial.outputs))
    return _greedy(judge, setup.sizes, start, limit)


def _greedy(judge: Callable[[Plan], float], sizes: Sizes, start: float, limit: float) -> Outcome:
    plan, plans, most = frozenset[str](), 1, sizes.limit(RATE)
    error = judge(plan)
    while True:
        fitting = [plan | {d} for d in sizes.domains if d not in plan and sizes.wide(plan | {d}) <= most]
        tried: list[tuple[float, Plan]] = []
        for candidate in fitting:
            if time.perf_counter() - start > limit:
                best = min(tried, key=lambda pair: pair[0], default=(error, plan))
                return Outcome(time.perf_counter() - start, plans, *min((error, plan), best, key=lambda p: p[0]), False)
            tried.append((judge(candidate), candidate))
            plans += 1
        best = min(tried, key=lambda pair: pair[0], default=(error, plan))
        if best[0] >= error:
            return Outcome(time.perf_counter() - start, plans, error, plan)
        error, plan = best


def requantise(net: TunedNet, limit: float) -> Outcome:
    """(a)."""
    setup = net.setup()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = _Requantised(net, setup, Path(folder))
        judge = _judge(setup, run)
        low, gains, plans, most = judge(frozenset()), {}, 1, setup.sizes.limit(RATE)
        best: tuple[float, Plan] = (low, frozenset())
        plan: Plan = frozenset()
        done = False
        for domain in setup.sizes.domains:
            if time.perf_counter() - start > limit:
                break
            single = frozenset({domain})
            error = judge(single)
            plans += 1
            gains[domain] = (low - error) / setup.sizes.wide(single)
            if setup.sizes.wide(single) <= most:
                best = min(best, (error, single), key=lambda pair: pair[0])
        else:
            done = True
        for domain in sorted(gains, key=lambda name: -gains[name]) if done else []:
            if time.perf_counter() - start > limit:
                done = False
                break
            if gains[domain] > 0 and setup.sizes.wide(plan | {domain}) <= most:
                plan |= {domain}
                plans += 1
                best = min(best, (judge(plan), plan), key=lambda pair: pair[0])
        seconds = time.perf_counter() - start
    return Outcome(seconds, plans, *best, done)


class _Requantised:
    """A plan as onnxruntime's own INT8/INT16 QDQ model; calibrated once, which is kind to it."""

    def __init__(self, net: TunedNet, setup: Setup, folder: Path):
        import onnx
        import onnxruntime as ort

        ort.set_default_logger_severity(4)
        self._setup, self._folder = setup, folder
        self._plan: Plan | None = None
        self._float = folder / "float.onnx"
        proto = onnx.ModelProto.FromString(setup.trial.proto.SerializeToString())
        weights = {tensor.name for tensor in proto.graph.initializer}
        inputs = [info for info in proto.graph.input if info.name not in weights]
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
        onnx.save(proto, self._float)
        self._feeds = [feed for _, feed in evenly(net.calibration, 2)]
        self._floats = {id(p.raw): feed for p, (feed, _) in zip(setup.pool.pictures, net.tuned_on)}
        self._ranges = {
            name: {"rmin": np.float32(found.low), "rmax": np.float32(found.high)}
            for name, found in net.ranges.items()
            if found.min.size == 1 and name in setup.trial.analysis.stored
        }

    def __call__(self, plan: Plan, picture: Picture) -> dict[str, np.ndarray]:
        import onnxruntime as ort

        if plan != self._plan:
            options = ort.SessionOptions()
            options.log_severity_level = 4
            self._session = ort.InferenceSession(str(self._quantised(plan)), options, ["CPUExecutionProvider"])
            self._plan = plan
        names = [o.name for o in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, self._floats[id(picture.raw)])))

    def _quantised(self, plan: Plan) -> Path:
        import logging

        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        logging.disable(logging.WARNING)

        class Reader(CalibrationDataReader):
            def __init__(self, given: Sequence[dict]):
                self._given = iter(given)

            def get_next(self) -> dict | None:
                return next(self._given, None)

        overrides: dict[str, list] = {name: [found] for name, found in self._ranges.items()}
        chosen = [d for d in self._setup.trial.domains if d.name in plan]
        graph = self._setup.trial.analysis.graph
        for domain in chosen:
            for name in domain.inputs:
                overrides[name] = [{**self._ranges[name], "quant_type": QuantType.QInt16, "symmetric": True}]
            for name in domain.convolutions:
                overrides[graph.producer[name].input[1]] = [{"quant_type": QuantType.QInt16, "symmetric": True}]
        target = self._folder / "quantised.onnx"
        quantize_static(
            self._float,
            target,
            Reader(self._feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["Conv"],
            extra_options={
                "TensorQuantOverrides": overrides,
                "UseQDQContribOps": True,
                "QDQKeepRemovableActivations": True,
            },
        )
        return target


def _judge(setup: Setup, run: Callable[[Plan, Picture], dict[str, np.ndarray]]) -> Callable[[Plan], float]:
    """The outputs' error of a plan over all pictures: of the network's outputs, whose graphs show no logits."""

    def judge(plan: Plan) -> float:
        names = setup.trial.outputs
        pairs = [
            (run(plan, picture), {name: picture.floats[name] for name in names}) for picture in setup.pool.pictures
        ]
        judged = total(score(outputs, floats) for outputs, floats in pairs)
        return sum(judged.error(name) for name in names) / len(names)

    return judge


def table(net: TunedNet) -> str:
    """Plans tuned on the calibration pictures, judged on pictures with faces."""
    tuned = net.setup()
    found: SearchResult = search_rates(tuned.pool, tuned.sizes, TABLE_RATES)
    judged = net.setup(judged=True)
    judged.pool.measure([each.plan for each in (*found.ends, *found.plans, found.smallest)])
    return render(pareto(found, judged))


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--short"]
    short = "--short" in sys.argv[1:]
    data = Path(words[0]) if words else DATA
    if not (data / MODEL).is_file():
        sys.exit(f"there is no {data / MODEL}; give the folder that holds it")
    net, times = TunedNet(data, *(2, 4) if short else (10,)), TIMES_SHORT if short else TIMES
    setup = net.setup()
    print(f"{len(setup.sizes.domains)} domains, {len(net.tuned_on)} pictures, rate {RATE}")
    print("                                   seconds   plans  s a plan  its own error  error in tune")

    def line(name: str, found: Outcome) -> None:
        # The two ends as well: one number is made of the outputs' errors by what INT8 and INT16 give.
        setup.pool.measure([frozenset(), frozenset(setup.sizes.domains), found.plan])
        end = "" if found.whole else f"  stopped at {times} times ours"
        print(f"  {name:32}{found.seconds:8.1f}{found.plans:8}{found.seconds / found.plans:10.3f}{found.error:15.5f}"
              f"{setup.pool.error(found.plan):15.5f}{end}", flush=True)  # fmt: skip

    mine = ours(net)
    line("sgsdump tune", mine)
    line("(a) quantize_static", requantise(net, times * mine.seconds))
    line("(b) plain greedy", greedy(net, times * mine.seconds))
    if not short:
        print(table(net), end="")


if __name__ == "__main__":
    main()
