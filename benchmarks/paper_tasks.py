"""Tasks of tune, cure and diagnose, measured for ``commands_on_paper``: each a ``Job`` of one task.

Times are processor time, or wall time if that is shorter: threads that wait add processor time.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cluster_on_paper import Job
from convolutions import INI, residual
from PIL import Image
from threadpoolctl import threadpool_limits

from sgsdump.fixedpoint.curing.channels import _Total, channel_figures
from sgsdump.fixedpoint.curing.editing import Editing
from sgsdump.fixedpoint.curing.fold import REBUILT, Fed
from sgsdump.fixedpoint.curing.reconstruction import Wanted, _products, _Received, _rewritten
from sgsdump.fixedpoint.curing.sensitivity import MOST_GROUPS
from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.calibration import calibrate, selection
from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import PictureComparer, _without_values
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import deployed, serialise
from sgsdump.fixedpoint.quantisation.levels import LEVELS
from sgsdump.fixedpoint.quantisation.objective import watched_tensors
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import _see_feed
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.trials.hardware_rounding import OnHardware
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs, FloatOutputs
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial, words_of
from sgsdump.fixedpoint.quantisation.trials.plan_walk import PlanWalk
from sgsdump.fixedpoint.tuning.criteria import Criteria, Picture
from sgsdump.fixedpoint.tuning.judge import Judge, Question, Subject
from sgsdump.fixedpoint.tuning.proposals import Surrogate, changes_of, proposals
from sgsdump.fixedpoint.tuning.search import AT_ONCE
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.feeds.by_content import PicturePairs, content_key
from sgsdump.models.network import Beside, named_network

# Tasks whose results merge to the same bits in any grouping.
EXACT = "ranges"
# Parts of a task that covers all convolutions, if a cluster ran the parts.
PARTS = 32


def least(function: Callable[[], object], repeat: int) -> float:
    taken = []
    for _ in range(repeat):
        wall, processor = time.perf_counter(), time.process_time()
        function()
        taken += [time.perf_counter() - wall, time.process_time() - processor]
    return min(taken)


def once(make: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of ``make``, and the seconds that it took."""
    made: list[Any] = []
    seconds = least(lambda: made.append(make()), 1)
    return made[0], seconds


def size(value: object) -> int:
    return len(pickle.dumps(value))


def lay_out(folder: Path, count: int) -> OpenNetwork:
    """A residual model on 28 x 28 positions, with 24 images of 640 x 480."""
    (folder / "images").mkdir()
    (folder / "net.onnx").write_bytes(residual(count, (56, 56), loud=True))
    (folder / "input_config.ini").write_text(INI)
    for index in range(REBUILT):
        pixels = np.random.default_rng(index).integers(0, 256, (60, 80, 3)).astype(np.uint8)
        Image.fromarray(pixels).resize((640, 480)).save(folder / "images" / f"{index:02}.jpg")
    beside = Beside(input_config=folder / "input_config.ini")
    return open_network(named_network(folder / "net.onnx", folder / "images", beside), "L2")


class Tasks:
    """The measured tasks.

    domains      number of convolutions that a plan can raise.
    image_bytes  an image in the cache of images.
    propose, rank, gram  seconds of the client: plans for a limit, neighbours of a plan, the surrogate of an image.
    """

    def __init__(self, opened: OpenNetwork, repeat: int, dispatch: float):
        self._model, self._config, self._repeat, self._dispatch = opened.model, opened.config, repeat, dispatch
        self._feeds = opened.feeds()
        self._pairs = PicturePairs(self._feeds)
        self._pair = self._pairs.make(0)
        self._data = serialise(self._model.proto)
        self._proto = deployed(self._model)
        self._names = watched_tensors(self._proto)
        self._prepare = least(lambda: self._feeds.both(1), 2 * repeat)
        self.image_bytes = sum(array.nbytes for array in self._pair.feed.values()) * 5 // 4
        with threadpool_limits(limits=1, user_api="blas"):
            self._ranges_of_images()
            self._integers()
            self._plans()
            self._solver()
            self._comparison()
            self._cures()

    def _job(self, run: float, item: int = 0, result: int = 0, recipe: int = 0, set_up: float = 0.0) -> Job:
        return Job("", 1, self._prepare, run, 0.0, max(0.0, set_up), self._dispatch, item, result, recipe)

    def _ranges_of_images(self) -> None:
        item = self._feeds[0]
        self.hash = self._job(least(lambda: content_key(item[1]), self._repeat))

        def seen(level: str) -> Job:
            selected = selection(analyse(self._proto, {"x"}), LEVELS[level])
            see, made = once(lambda: _see_feed(self._data, self._model.path, selected))
            first, begun = once(lambda: see(item))
            run, found = least(lambda: see(item), self._repeat), replace(first, runs=())
            job = self._job(run, size(item), size(found), len(self._data), made + begun - run)
            return replace(job, name=EXACT, merge=least(lambda: found.merged(found), self._repeat))

        self.see, self.see_fitted = seen("L2"), seen("L3")
        calibration = calibrate(self._model, self._feeds[:4], self._config, "L2")
        self._ranges, self._side = calibration.ranges, side_ranges(calibration.statistics)

    def _integers(self) -> None:
        """Measure an image in the float model and two fixed models: all INT8, and half of the convolutions INT16."""
        pair, names = self._pair, self._names
        hardware = OnHardware(self._side)
        self._trial, self._trial_made = once(
            lambda: PlanTrial(self._model, self._ranges, self._config, hardware=hardware)
        )
        half = words_of(self._trial, frozenset(domain.name for domain in self._trial.domains[::2]))
        floats, made = once(lambda: FloatOutputs(self._model, names)._graph)
        real = floats.run(pair.feed, names)
        run = least(lambda: floats.run(pair.feed, names), self._repeat)
        self.float = self._job(run, size(pair), size(real), len(self._data), made)
        recipe = len(self._data) + size(self._ranges) + size(self._side)

        def fixed(words: tuple[str, ...]) -> tuple[Job, Any]:
            config = replace(self._config, tensor_arrays=words)
            model, made = once(lambda: make_fixed(self._model, self._ranges, config, side=self._side))
            outputs, opened = once(lambda: FixedOutputs(self._model, model.proto, names))
            ours = outputs.run(pair.feed, pair.raw)
            run = least(lambda: outputs.run(pair.feed, pair.raw), self._repeat)
            return self._job(run, size(pair), size(ours) + size(real), recipe, made + opened), model

        (self.fixed, self._fixed), (self.raised, _) = fixed(()), fixed(half)
        self._real = real

    def _plans(self) -> None:
        """All plans of ``each_alone`` on one image, from a few of them; neighbours of a plan; and one plan."""
        names = self._names
        criteria = Criteria([], [Picture(self._pair.raw, self._real)], names, names)
        subject = Subject(self._data, self._model.path, self._ranges, self._config, self._side)
        judge, set_up = once(lambda: Judge(PlanWalk(self._trial, names), criteria))
        domains = [domain.name for domain in self._trial.domains]
        every, number = frozenset(domains), 2 * len(domains) + 2

        def walked(plans: Sequence[frozenset[str]]) -> float:
            prepared = judge.walk.ordered(plans)

            def run() -> None:
                judge._visits.clear()
                judge.answer(Question(0, ()), prepared)

            return least(run, 2)

        whole, few = walked([every]), min(len(domains), 12)
        some = [domains[(2 * i + 1) * len(domains) // (2 * few)] for i in range(few)]
        each = (walked([every, *(every - {name} for name in some)]) - whole) / few
        near = walked([frozenset(domains[::2]) ^ {name} for name in some[:AT_ONCE]])
        asked = size(Question(0, tuple(frozenset(domains[:i]) for i in range(number))))
        scored = size(judge.answer(Question(0, ()), judge.walk.ordered([every])).scores)
        values = sum(self._real[name].size for name in names)
        vectors = np.ones((len(domains) + 1, values))
        self.gram, self.domains = least(lambda: vectors @ vectors.T, 2), len(domains)
        plan = replace(
            self._job(whole, asked // number, scored, size((subject, criteria)), set_up + self._trial_made), prepare=0.0
        )
        self.plan = plan
        self.near = replace(plan, run=near, item_bytes=asked * AT_ONCE // number, result_bytes=scored * AT_ONCE)
        returned = scored * number + 8 * (len(domains) + 1) ** 2
        self.alone = replace(plan, run=whole + number * each, item_bytes=asked, result_bytes=returned)
        returned = (scored * number + vectors.nbytes) // PARTS
        part = whole + number * each / PARTS
        self.alone_part = replace(plan, run=part, item_bytes=asked // PARTS, result_bytes=returned)

    def _solver(self) -> None:
        """The client's search for plans, on a random model of their errors."""
        rng = np.random.default_rng(0)
        moved = rng.standard_normal((self.domains, 64)) * rng.lognormal(0, 1, (self.domains, 1))
        low, gram = float(np.sum(moved.sum(axis=0) ** 2)), np.zeros((1, self.domains + 1, self.domains + 1))
        gram[0, 1:, 1:] = moved @ moved.T
        model = Surrogate(gram, np.zeros(1), low * rng.uniform(0.9, 1, self.domains), low)
        weights, plan = np.full(self.domains, 2304.0), rng.random(self.domains) < 0.4
        self.propose = least(lambda: proposals(model, weights, 0.4 * weights.sum()), 1)
        self.rank = least(lambda: list(changes_of(model, plan, weights, 0.5 * weights.sum()).ranked())[:64], 2)

    def _comparison(self) -> None:
        models = self._model, replace(self._model, proto=self._fixed.proto)
        with tempfile.TemporaryDirectory() as folder:
            comparer = PictureComparer(*models, Path(folder))
            compared, first = once(lambda: comparer.compare(self._pair))
            run = least(lambda: comparer.compare(self._pair), 2)
            with compared.sample, compared.benchmark:
                result = size(_without_values(compared))
        recipe = len(self._data) + self._fixed.proto.ByteSize()
        self.compare = self._job(run, size(self._pair), result, recipe, first - run)

    def _cures(self) -> None:
        """Measure the channels of an image, a run with changed weights, and all layers rebuilt on REBUILT images."""
        editing = Editing(self._model.proto)
        graph = editing.graph
        convs = [node for node in graph.nodes if node.op_type == "Conv"]
        axes = {name: 1 for node in convs for name in (node.input[0], node.output[0])}

        def channels(images: int) -> float:
            fed = Fed(replace(self._pairs, chosen=tuple(range(images))))
            return least(lambda: channel_figures(self._model, fed, axes), self._repeat)

        channels(8)  # reads the images
        two, eight = channels(2), channels(8)
        run, figures = (eight - two) / 6, channel_figures(self._model, self._feeds[:1], axes)
        totals = [_Total(each.low, each.high, each.power, each.mean, 1) for each in figures.values()]
        merge = least(lambda: [each.plus(each) for each in totals], self._repeat)
        job = self._job(run, size(self._feeds[0]), size(totals), len(self._data), two - 2 * run)
        self.channels = replace(job, merge=merge)
        noisy = 2 * len(self._data) // MOST_GROUPS
        self.sensed = replace(self.float, prepare=0.0, item_bytes=noisy, result_bytes=8 * len(self._names))

        images, wanted = [self._pairs.make(index) for index in range(REBUILT)], Wanted(True, True)
        nodes, quants = convs[1:-1], self._fixed.plan.weights
        some = nodes[:: max(1, len(nodes) // 4)][:4]
        whole, few = (_Received(graph, each, self._model, (self._model, self._fixed), False) for each in (nodes, some))
        forward = least(lambda: whole.of(images[0]), self._repeat)
        seen = least(lambda: [few.of(image) for image in images], 2)
        halves = _products(graph, some, few, images, True)
        added = least(lambda: _products(graph, some, few, images, True), 2) - seen

        def rebuild() -> None:
            for node in some:
                _rewritten(editing, node, quants[node.output[0]], halves[node.output[0]], wanted)

        layer = (max(0.0, added) + least(rebuild, 2)) / len(some)
        result = 4 * sum(editing.weight(node).size for node in convs)
        recipe = len(self._data) + self.fixed.recipe_bytes + REBUILT * size(self._pair)

        def of(parts: int) -> Job:
            run = REBUILT * forward + len(convs) * layer / parts
            return replace(self._job(run, 100, result // parts, recipe, self.float.set_up), prepare=0.0)

        self.rebuilt, self.rebuilt_part = of(1), of(PARTS)
