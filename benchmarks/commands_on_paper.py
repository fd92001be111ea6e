"""How far tune, cure and diagnose scale: 1,000 images and 500 convolutions on 1 to 64 workers, on paper.

    python benchmarks/commands_on_paper.py            task times of a residual model of 500 convolutions
    python benchmarks/commands_on_paper.py --short    48 convolutions, few repetitions

``cluster_on_paper`` explains the simulated cluster. A command is a list of phases, one after another. A phase has
waves; each waits for the wave before it. The tasks of a wave are independent. The client computes on one core. Levels
are the defaults: L5, and L2 for cure. ``tune`` has time for the whole search. Each command is played in three ways.

as it is    many phases run on the client; cure has no --scheduler.
all tasks   every independent task goes through the engine of today.
read there  also, workers read the images, as for ``compare``, READ_TOGETHER in a task, and merge their ranges.

The numbers of tasks follow from the constants of the code. Numbers that depend on the model's values were counted on a
model of 200 convolutions that is bad at INT8. Both were checked in runs of 12 to 200 convolutions and 12 to 48 images.

Checked once: tune of 48 convolutions and 24 images with one real worker, wall time on a busy machine, paper first.
Calibrating 0.86 and 0.84 s, again for the folds 0.86 and 1.16 s, each convolution alone 2.3 and 3.7 s, a wave of plans
0.41 and 0.35 s, a plan on held-out images 0.94 and 1.19 s, the whole 43 s (for 52 waves) and 35 s (28 waves).

Not included: reports, ranges that L3 and L5 fit (at most 24 tensors), and what ``cluster_on_paper`` excludes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cluster_on_paper import LINK, WORKERS, Job, dispatch_seconds, merged_there, seconds, stops_at
from paper_tasks import EXACT, PARTS, Tasks, lay_out

from sgsdump.fixedpoint.curing.fold import SENSED
from sgsdump.fixedpoint.curing.sensitivity import MOST_GROUPS
from sgsdump.fixedpoint.tuning.causes import TRIED
from sgsdump.fixedpoint.tuning.plan_scores import FEWEST, KEPT, RANKED
from sgsdump.fixedpoint.tuning.search import AT_ONCE, RATES
from sgsdump.fixedpoint.tuning.sensitivity_analysis import HEAD
from sgsdump.fixedpoint.tuning.sensitivity_analysis import RANKED as MEASURED_ALONE
from sgsdump.fixedpoint.tuning.setup import PICTURES
from sgsdump.fixedpoint.tuning.worth import MOST_COUNTED
from sgsdump.fixedpoint.verbs.diagnose import MAX_IMAGES, MEASURED
from sgsdump.models.feeds.by_content import HELD_BYTES, JUDGED, OF_MANY

IMAGES, FOLDS, HELD = 1000, OF_MANY, OF_MANY * JUDGED
CLIENT, CLUSTER, READS, ALWAYS = "client", "cluster", "client reads", "client, always"
WAYS = TODAY, ALL_TASKS, THERE = "as it is", "all tasks", "read there"
READ_TOGETHER, PATH_BYTES = 16, 200
# Counted with 200 convolutions. Groups of convolutions that L5 tries; plans outside the limits on few images, and plans
# on all images; plans of the table, and those on held-out images; fixed models of diagnose on held-out images.
GROUPS_TRIED, FAILED, PASSED, CHOSEN, HELD_PLANS, CANDIDATES = 97, 15, 2, 12, 8, 3
# Waves of the search (at most 10, 56 and 48), and plans of its first proposals.
HALVED, IMPROVED, SHRUNK, PROPOSED = 9, 35, 5, 11


@dataclass(frozen=True)
class Phase:
    """Waves of equal tasks; ``job`` has the tasks of one wave.

    today    where the phase runs: CLIENT or CLUSTER; READS: on the client until workers read images; ALWAYS there.
    planned  the waves if every independent task goes to the cluster, by default the same.
    own      seconds of the client before each wave.
    anew     each wave has its own model, which every worker prepares again.
    """

    name: str
    job: Job
    waves: int = 1
    today: str = CLIENT
    planned: tuple[Phase, ...] = ()
    own: float = 0.0
    anew: bool = False

    def on_client(self) -> float:
        job = self.job
        of_wave = self.own + job.tasks * (job.prepare + job.run + job.merge)
        return self.waves * of_wave + job.set_up * (self.waves if self.anew else 1)

    def on_cluster(self, workers: int) -> float:
        later = replace(self.job, recipe_bytes=0, set_up=self.job.set_up if self.anew else 0.0)
        return seconds(self.job, workers) + (self.waves - 1) * seconds(later, workers) + self.waves * self.own

    def parts(self, way: str) -> list[tuple[bool, Phase]]:
        """Return what runs, and whether on the cluster."""
        if way == TODAY or self.today == ALWAYS:
            return [(True, self.spread(way))] if self.today == CLUSTER else [(False, self)]
        if way == ALL_TASKS and self.today == READS:
            return [(False, self)]
        return [(True, one.spread(way)) for one in self.planned or (self,)]

    def spread(self, way: str) -> Phase:
        """Return the phase with the tasks that are sent to the cluster."""
        sent = read_there(self.job) if way == THERE else merged_there(self.job) if self.job.name == EXACT else self.job
        return replace(self, job=sent)

    def taken(self, workers: int, way: str) -> float:
        parts = self.parts(way)
        return sum(part.on_cluster(workers) if spread else part.on_client() for spread, part in parts)

    def why(self, workers: int, way: str) -> str:
        """Return what takes most of the phase."""
        spread, most = max(self.parts(way), key=lambda part: part[1].on_cluster(workers))
        if not spread:
            return "on the client"
        job, waves = most.job, most.waves
        each, first = waves * job.tasks, waves if most.anew else 1
        steps = f"{waves} step{'s one after another' if waves > 1 else ''} of {1e3 * job.run:.0f} ms"
        parts = {
            "the client reads, sends and merges": each * (job.client - _sent(job)),
            "the client searches": waves * most.own,
            "the link": each * _sent(job),
            "each worker prepares the models": first * job.set_up,
            "the model travels": math.log2(2 * workers) * job.recipe_bytes / LINK,
            steps: waves * job.run * math.ceil(job.tasks / workers),
        }
        return max(parts, key=lambda name: parts[name])


def read_there(job: Job) -> Job:
    """Return tasks of READ_TOGETHER images that the worker reads. It merges ranges, with the same bits in any grouping.

    Other results are merged by the client, in the order of the images.
    """
    if not job.prepare:
        return job
    many = READ_TOGETHER if job.tasks > READ_TOGETHER else 1
    exact = job.name == EXACT
    run = many * (job.prepare + job.run) + (many - 1) * job.merge * exact
    merge, result = (each if exact else many * each for each in (job.merge, job.result_bytes))
    tasks, item = math.ceil(job.tasks / many), many * PATH_BYTES
    return replace(job, tasks=tasks, prepare=0.0, run=run, merge=merge, item_bytes=item, result_bytes=int(result))


def _sent(job: Job) -> float:
    return (job.item_bytes + job.result_bytes) / LINK


def times(job: Job, tasks: int, **changed: float | int) -> Job:
    return replace(job, tasks=tasks, **changed)  # type: ignore[arg-type]


def kept(job: Job, t: Tasks, images: int) -> Job:
    """Return the job with the images that HELD_BYTES hold, which are not read again."""
    return replace(job, prepare=job.prepare * max(0.0, 1 - HELD_BYTES / (images * t.image_bytes)))


def whole_plans(job: Job, tasks: int, images: int) -> Job:
    """Return tasks that prepare a plan's model and run it on some images."""
    run, sent = job.set_up + images * (job.prepare + job.run), images * job.item_bytes
    result = images * job.result_bytes
    return times(job, tasks, prepare=0.0, run=run, set_up=0.0, item_bytes=sent, result_bytes=result)


def tune(t: Tasks, images: int) -> list[Phase]:
    first = min(PICTURES, max(FEWEST, RANKED // t.domains))
    rest, most = PICTURES - first, min(images, MOST_COUNTED)
    fixed, raised = kept(t.fixed, t, images), kept(t.raised, t, images)
    both = times(fixed, images, run=fixed.run + t.float.run)
    alone = Phase("", times(t.alone_part, first * PARTS), own=first * t.gram)
    plan, again = t.plan, (10 + len(RATES)) / 2 * t.propose
    ranked = times(t.near, first)
    best = times(plan, rest, run=KEPT * plan.run, result_bytes=KEPT * plan.result_bytes)
    few = replace(raised, prepare=0.0)
    held = times(few, 2 * HELD, set_up=(FOLDS + 1) * raised.set_up)
    of_held = whole_plans(few, 2 * FOLDS, HELD // 2)

    def groups(name: str, waves: int, own: float) -> list[Phase]:
        """Rivals on the ranking images, then the best of them on the others."""
        rivals, others = times(plan, first * AT_ONCE), times(plan, KEPT * rest)
        found = [Phase(f"{name}: rivals", ranked, waves, CLUSTER, (Phase("", rivals, waves, own=own),), own)]
        return found + ([Phase(f"{name}: the best", best, waves, CLUSTER, (Phase("", others, waves),))] if rest else [])

    return [
        Phase("read the images for their order", times(t.hash, images * FOLDS), today=READS),
        Phase("calibrate", times(t.see_fitted, images), today=CLUSTER),
        Phase("calibrate without a fold", times(t.see_fitted, images * (FOLDS - 1) // FOLDS), FOLDS, CLUSTER),
        Phase("float values to judge by", times(t.float, PICTURES + min(HELD, images))),
        Phase("INT8 on all images", both, anew=True),
        Phase("each convolution alone", times(t.alone, first), 1, CLUSTER, (alone,)),
        Phase("both ends", times(plan, PICTURES, run=2 * plan.run), 1, CLUSTER),
        Phase(
            "plans foreseen and proposed",
            times(plan, PICTURES, run=PROPOSED * plan.run),
            2,
            CLUSTER,
            (Phase("", times(plan, PICTURES * PROPOSED), 2, own=again),),
            again,
        ),
        *groups("halve", HALVED, t.propose),
        *groups("improve, shrink", IMPROVED + SHRUNK, t.rank),
        Phase("verify: plans outside limits", times(few, PICTURES), FAILED, anew=True),
        Phase("verify: plans within", times(raised, images + PICTURES), PASSED, anew=True),
        Phase(
            "verify: plans of the table",
            times(few, PICTURES),
            CHOSEN,
            planned=(Phase("", whole_plans(few, CHOSEN, PICTURES)),),
            anew=True,
        ),
        Phase("verify: within, held out", held, PASSED, planned=(Phase("", of_held, PASSED),), anew=True),
        Phase(
            "verify: table, held out",
            held,
            HELD_PLANS,
            planned=(Phase("", times(of_held, of_held.tasks * HELD_PLANS)),),
            anew=True,
        ),
        Phase("count answers", times(raised, most, run=raised.run + t.float.run)),
    ]


def diagnose(t: Tasks, images: int) -> list[Phase]:
    later = min(MEASURED, images) - min(MEASURED, max(1, MEASURED_ALONE // t.domains))
    first, depth = min(MEASURED, images) - later, math.ceil(math.log2(t.domains))
    head = (4 * HEAD + 2) / (2 * t.domains + 2)
    fixed, raised = kept(t.fixed, t, images), kept(t.raised, t, images)
    both = times(fixed, images, run=fixed.run + raised.run + t.float.run, set_up=fixed.set_up + raised.set_up)
    few = replace(raised, prepare=0.0)
    held = times(few, 2 * HELD, run=few.run + t.float.run / 2, set_up=(FOLDS + 1) * raised.set_up)
    of_held = whole_plans(few, 2 * FOLDS * CANDIDATES, HELD // 2)
    chunks = PARTS * 2 // TRIED
    groups = Phase("", times(t.plan, math.ceil(GROUPS_TRIED / depth)), depth)
    tried = (Phase("", whole_plans(raised, TRIED * chunks, math.ceil(images / chunks))),)
    without = times(t.see_fitted, images * (FOLDS - 1) // FOLDS)
    compared = kept(t.compare, t, images)
    found = [
        Phase("read the images for their order", times(t.hash, images * FOLDS), today=READS),
        Phase("calibrate", times(t.see_fitted, images), today=CLUSTER),
        Phase("bits: groups of convolutions", times(t.plan, 1), GROUPS_TRIED, planned=(groups,)),
        Phase(
            "each convolution alone", times(t.alone, first), planned=(Phase("", times(t.alone_part, first * PARTS)),)
        ),
        Phase("the worst, on more images", times(t.alone, later, run=head * t.alone.run)),
        Phase("outputs, and with the advice", both, anew=True),
        Phase("causes: candidates", times(raised, images), TRIED, planned=tried, anew=True),
        Phase("causes: spread, by bisection", times(raised, images), depth + 2, anew=True),
        Phase("reach of the tensors", times(t.see, images)),
        Phase("calibrate without a fold", without, FOLDS, CLUSTER),
        Phase("advice on held-out images", held, CANDIDATES, planned=(Phase("", of_held),), anew=True),
        Phase("compare layers", times(compared, MAX_IMAGES - 1), today=CLUSTER),
        Phase("compare the last image", times(compared, 1), today=ALWAYS),
        Phase("compare layers with the advice", times(compared, MAX_IMAGES)),
        Phase("count answers", times(fixed, min(images, MOST_COUNTED), run=fixed.run + t.float.run)),
    ]
    return [phase for phase in found if phase.job.tasks]


def cure(t: Tasks, images: int) -> list[Phase]:
    runs, see, channels = 2 * SENSED * (MOST_GROUPS + 1), kept(t.see, t, images), kept(t.channels, t, images)
    parts = (Phase("", times(t.rebuilt_part, FOLDS * PARTS), 2), Phase("", times(t.rebuilt_part, PARTS)))
    few = replace(t.fixed, prepare=0.0)
    judged, spread = times(few, HELD, set_up=FOLDS * t.fixed.set_up), whole_plans(few, HELD // 4, 4)
    return [
        Phase("read the images for their order", times(t.hash, images), today=READS),
        Phase("calibrate the states of the folds", times(see, images * (FOLDS - 1)), 4),
        Phase("calibrate the result", times(see, images), 3),
        Phase("channels, no BatchNormalization", times(channels, images * (FOLDS - 1))),
        Phase("channels of the result", times(channels, images)),
        Phase("sensitivities of layers", times(t.sensed, runs * FOLDS)),
        Phase("sensitivities for the result", times(t.sensed, runs)),
        Phase("bias and round: all layers", times(t.rebuilt, 1), 2 * FOLDS + 1, planned=parts),
        Phase("change of the float model", times(replace(t.float, prepare=0.0), HELD), 4, anew=True),
        Phase("judge a state", judged, 11, planned=(Phase("", spread, 11),), anew=True),
    ]


def show(name: str, phases: Sequence[Phase], images: int, convolutions: int) -> None:
    print(f"\n{name}: {images} images, {convolutions} convolutions")
    print(f"{'phase':35}{'today':>15}{'waves x tasks':>14}{'ms':>9}{'kB to':>9}{'kB from':>9}{'s alone':>9}")

    def line(one: Phase, name: str, where: str) -> str:
        job, tasks = one.job, f"{one.waves} x {one.job.tasks}"
        sizes = f"{1e3 * job.run:9.1f}{job.item_bytes / 1e3:9.1f}{job.result_bytes / 1e3:9.1f}"
        return f"{name:35}{where:>15}{tasks:>14}{sizes}"

    for phase in phases:
        print(f"{line(phase, phase.name, phase.today)}{phase.on_client():9.1f}")
        for one in phase.planned:
            print(line(one, "", "all tasks"))

    def whole(workers: int, way: str) -> float:
        return sum(phase.taken(workers, way) for phase in phases)

    print(f"{'workers':>9}{''.join(f'{way:>12}{chr(32):2}speed-up' for way in WAYS)}")
    for workers in WORKERS:
        found = [(whole(workers, way), whole(1, way)) for way in WAYS]
        print(f"{workers:9}{''.join(f'{taken:12.0f}{alone / taken:10.1f}' for taken, alone in found)}")
    for way in WAYS:
        stop, at = stops_at(partial(whole, way=way)), WORKERS[-1]
        most = sorted(phases, key=lambda phase: -phase.taken(at, way))[:3]
        told = "; ".join(f"{phase.name} {phase.taken(at, way):.0f} s ({phase.why(at, way)})" for phase in most)
        print(f"{way}: stops scaling at {stop} workers. Most of {whole(at, way):.0f} s at {at}: {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--convolutions", type=int)
    args = parser.parse_args()
    short, count = args.short, args.convolutions or (48 if args.short else 500)
    dispatch = dispatch_seconds(200 if short else 2000)
    with tempfile.TemporaryDirectory() as place:
        opened = lay_out(Path(place), count)
        tasks = Tasks(opened, 3 if short else 5, dispatch)
        print(f"Handing over a task takes {1e3 * dispatch:.2f} ms, reading an image {1e3 * tasks.hash.prepare:.2f} ms")
        for name, phases in (("tune", tune), ("cure", cure), ("diagnose", diagnose)):
            show(name, phases(tasks, IMAGES), IMAGES, count)


if __name__ == "__main__":
    main()
