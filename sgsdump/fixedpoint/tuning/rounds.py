"""The rounds of ``tune --first``: raise convolution inputs to INT16 until the model's outputs are within the limits.

Round 0 is the model as its input_config.ini says. Each further round raises the convolutions that contribute most to
the remaining error, makes the fixed model, dumps it and compares. A round that does not improve the outputs is undone.
If the outputs are within the limits, raised tensors that are not needed are lowered again; a last round verifies this.

The sensitivity of a convolution (``sensitivity_analysis``) is measured once, because the error with only this
convolution at 8 bits does not depend on other choices. Only its share of the remaining error grows from round to round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

from sgsdump.comparison.thresholds import Thresholds
from sgsdump.dumps.io import open_dump
from sgsdump.errors import ConfigError
from sgsdump.files.atomic_write import make_folder
from sgsdump.fixedpoint.quantisation.analysis import Analysis, analyse
from sgsdump.fixedpoint.quantisation.float_model import deployed, uint8_inputs
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.tuning.advice import MAYBE, NO, YES, Advice, advise, holds, rules_text
from sgsdump.fixedpoint.tuning.dump_trial import Calibrated, DumpRun, DumpTrial
from sgsdump.fixedpoint.tuning.rules_of_thumb import Convolution, config_names, convolutions, read_signs
from sgsdump.fixedpoint.tuning.sensitivity_analysis import LabelledPictureFeed, Measurement, SensitivityAnalysis
from sgsdump.progress import SILENT, Progress
from sgsdump.sidecars.input_config import with_tensor_arrays

# A round must remove at least this share of the output error.
WORTH_KEEPING = 0.01
# Rounds in a row without improvement before the search ends.
PATIENCE = 2


@dataclass(frozen=True)
class Change:
    """A tensor raised to INT16 or lowered again, the convolutions that read its domain, and why."""

    tensor: str
    convolutions: tuple[str, ...]
    why: str


@dataclass(frozen=True, eq=False)
class Round:
    """One round.

    tensor_arrays  all names in tensor_arrays in this round.
    wide           convolutions with INT16 inputs, in execution order.
    error          mean RMSE of the judged outputs over all images.
    holds          whether the outputs are within the limits.
    kept           whether the next round starts from this round; ``verdict`` says why.
    """

    number: int
    raised: tuple[Change, ...]
    lowered: tuple[Change, ...]
    tensor_arrays: tuple[str, ...]
    wide: tuple[str, ...]
    run: DumpRun
    error: float
    holds: bool
    kept: bool
    verdict: str


class RoundSearch:
    """The rounds of one simplified float model.

    pictures         images to judge on; the first is dumped, to float.bin and fixed.bin in ``folder``, beside
                     optimized.onnx.
    ranges           of every tensor except float inputs; measured once, because bits do not change them.
    analysis         of the float model, as deployed.
    best             last kept round; ``ended``: why the rounds ended. Both are known when ``rounds`` has ended.
    measured         sensitivity analysis, if it was made.
    before_lowering  round before raised tensors were lowered again.
    """

    def __init__(
        self,
        calibrated: Calibrated,
        pictures: Sequence[LabelledPictureFeed],
        limits: Thresholds,
        folder: Path,
        progress: Progress = SILENT,
    ):
        model, config = calibrated.model, calibrated.config
        float_inputs = {entry.name for entry in config.inputs if not entry.quantised}
        self.ranges = {name: measured for name, measured in calibrated.ranges.items() if name not in float_inputs}
        self._model, self._config, self._pictures, self._limits = model, config, pictures, limits
        self._folder, self._progress, self._side = folder, progress, calibrated.side
        self.analysis = analyse(deployed(model), uint8_inputs(model, config, self.ranges))
        self._candidates = Candidates(self.analysis, config.tensor_arrays)
        self._dumps = DumpTrial(replace(calibrated, ranges=self.ranges), pictures, folder / "float.bin", progress)
        self.measured: Measurement | None = None
        self.before_lowering: Round | None = None
        self.ended = ""

    @property
    def logits(self) -> frozenset[str]:
        """Judged tensors that replace the Softmax they feed."""
        return frozenset(self._dumps.judged) - set(self.analysis.graph.outputs)

    def config_names(self, inputs: Iterable[str]) -> tuple[str, ...]:
        """Return the words of ``tensor_arrays`` for inputs."""
        return config_names(inputs, self._candidates.convolutions)

    def shown(self, name: str) -> str:
        """Return an input for display: the word for ``tensor_arrays``, and the tensor if its name differs."""
        return next((conv.shown_input for conv in self._candidates.convolutions if conv.input == name), name)

    def rounds(self, most: int) -> Iterator[Round]:
        """Yield every round as it ends; at most ``most`` rounds raise something."""
        self.best = self._turn(0, self._config.tensor_arrays)
        yield self.best
        if self.best.holds:
            self.ended = "the outputs are within the limits: no INT16 needed"
            return
        if not self._candidates.left(self.best.run):
            self.ended = "no convolution is left to raise to INT16"
            return
        trial = SensitivityAnalysis(self._model, self.ranges, self._config, side=self._side)
        self.measured = self._measure(trial)
        yield from self._raise(most)
        if self.best.holds:
            yield from self._lower(trial)
        elif not holds(self.measured.all_16, self._limits):
            self.ended += (
                "; even with every convolution at INT16, an output exceeds the limits. Check the calibration ranges "
                "and the calibration images"
            )

    def _measure(self, trial: SensitivityAnalysis) -> Measurement:
        runs = trial.most_runs(len(self._pictures))
        with self._progress.bar("measure contributions", "plan", runs) as advance:
            return trial.measure(self._pictures, advance)

    def _raise(self, most: int) -> Iterator[Round]:
        in_vain: set[str] = set()
        idle = 0
        for number in range(1, most + 1):
            proposed = self._proposed(in_vain)
            if not proposed:
                self.ended = "no convolution is left that causes a noticeable share of the error"
                return
            arrays = self._candidates.ordered([*self.best.tensor_arrays, *(change.tensor for change in proposed)])
            turn = self._turn(number, arrays, raised=proposed)
            yield turn
            if turn.kept:
                idle = 0
            else:
                in_vain |= {change.tensor for change in proposed}
                idle += 1
            if turn.holds:
                self.ended = "the outputs are within the limits"
                return
            if idle == PATIENCE:
                self.ended = f"{idle} rounds in a row did not improve the outputs"
                return
        self.ended = f"an output exceeds the limits after {most} round{'s' if most > 1 else ''} (--rounds)"

    def _proposed(self, in_vain: Collection[str]) -> tuple[Change, ...]:
        """Return the convolutions to raise next, judged by the remaining error."""
        assert self.measured is not None
        candidates, best = self._candidates, self.best.run
        remaining = candidates.left(best, in_vain)
        if not remaining:
            return ()
        with open_dump(self._dumps.float_path) as benchmark:
            signs = read_signs(self.analysis, remaining, self.ranges, benchmark, best.layers)
        advice = advise(remaining, signs, replace(self.measured, all_8=best.outputs), self._limits)
        chosen = worth_raising(advice, holds(self.measured.all_16, self._limits))
        domains = [entry.convolution.domain for entry in chosen]
        return tuple(
            Change(candidates.name_of(domain), candidates.readers(domain), why(entry))
            for domain, entry in zip(domains, chosen)
        )

    def _lower(self, trial: SensitivityAnalysis) -> Iterator[Round]:
        """Lower raised inputs again, least sensitive first, while the outputs stay within the limits."""
        assert self.measured is not None
        brings = {
            self._candidates.domain(sensitivity.domain.name): sensitivity.brings
            for sensitivity in self.measured.sensitivities
        }
        added = [name for name in self.best.tensor_arrays if name not in self._config.tensor_arrays]
        if len(added) < 2:
            return
        wide = {conv.domain for conv in self._candidates.convolutions if self.best.run.is_wide(conv.input)}
        lowered: list[str] = []
        with self._progress.bar("lower again", "plan", len(added)) as advance:
            for done, name in enumerate(sorted(added, key=lambda name: brings[self._candidates.domain(name)]), 1):
                fewer = wide - {self._candidates.domain(name)}
                plan = [domain.name for domain in trial.trial.domains if self._candidates.domain(domain.name) in fewer]
                if holds(trial.try_plan(plan, self._pictures), self._limits):
                    wide = fewer
                    lowered.append(name)
                advance(done)
        if not lowered:
            self.ended += ", and every raised tensor is needed"
            return
        reason = "the outputs are within the limits without it"
        changes = tuple(
            Change(name, self._candidates.readers(self._candidates.domain(name)), reason)
            for name in self._candidates.ordered(lowered)
        )
        arrays = tuple(name for name in self.best.tensor_arrays if name not in lowered)
        before = self.best
        turn = self._turn(before.number + 1, arrays, lowered=changes)
        if turn.kept:
            self.before_lowering = before
            self.ended += f" with {len(added) - len(lowered)} of the {len(added)} raised tensors"
        yield turn

    def _turn(
        self, number: int, arrays: tuple[str, ...], raised: tuple[Change, ...] = (), lowered: tuple[Change, ...] = ()
    ) -> Round:
        """Run a round; a kept round provides optimized.onnx and fixed.bin."""
        tried = make_folder(self._folder / "tried")
        run = self._dumps.run(arrays, tried, f"round {number}")
        error, good = output_error(run.outputs), holds(run.outputs, self._limits)
        wide = self._candidates.wide(run)
        if not raised and not lowered:
            kept, verdict = True, f"output error {error:.6f}"
        elif lowered:
            kept, verdict = good, "the outputs stay within the limits" if good else "an output exceeds the limits"
        else:
            before = self.best.error
            kept = good or error <= (1 - WORTH_KEEPING) * before
            way = "falls" if error < before else "rises"
            verdict = f"output error {way} from {before:.6f} to {error:.6f}"
            verdict += "" if kept or error >= before else f", less than {100 * WORTH_KEEPING:g} %"
        turn = Round(number, raised, lowered, arrays, wide, run, error, good, kept, verdict)
        if kept:
            for path in tried.iterdir():
                path.replace(self._folder / path.name)
            self.best = turn
        rmtree(tried)
        return turn


class Candidates:
    """All ``convolutions`` of a model, in execution order; ``own``: names in the user's tensor_arrays."""

    def __init__(self, analysis: Analysis, own: Sequence[str]):
        self.convolutions = convolutions(analysis)
        self._analysis, self._own = analysis, own

    def domain(self, name: str) -> str:
        """Return the name that represents a tensor in a plan."""
        return self._analysis.switch(name)

    def name_of(self, domain: str) -> str:
        """Return the first name of a domain that input_config.ini can hold; "" without one."""
        return next((c.input for c in self.convolutions if c.domain == domain and _nameable(c.input)), "")

    def readers(self, domain: str) -> tuple[str, ...]:
        """Return the names of the convolutions that read a domain."""
        return tuple(conv.name for conv in self.convolutions if conv.domain == domain)

    def wide(self, run: DumpRun) -> tuple[str, ...]:
        """Return the names of the convolutions with INT16 inputs in a run."""
        return tuple(conv.name for conv in self.convolutions if run.is_wide(conv.input))

    def left(self, run: DumpRun, in_vain: Collection[str] = ()) -> list[Convolution]:
        """Return the convolutions that can still be raised; ``in_vain``: tensors that were raised without success."""
        barred = {self.domain(name) for name in in_vain}
        return [
            conv
            for conv in self.convolutions
            if not conv.reads_picture
            and conv.domain not in barred
            and conv.input in run.plan.tensors
            and not run.is_wide(conv.input)
            and self.name_of(conv.domain)
        ]

    def ordered(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names, the user's own first, the others in execution order."""
        users = [name for name in self._own if name in names]
        order = dict.fromkeys(conv.input for conv in self.convolutions if conv.input in names)
        return tuple(dict.fromkeys([*users, *order]))


def _nameable(name: str) -> bool:
    """Return whether input_config.ini can hold the name."""
    try:
        with_tensor_arrays(b"", [name])
    except ConfigError:
        return False
    return True


def worth_raising(entries: Iterable[Advice], all_16_would_do: bool) -> list[Advice]:
    """Return the convolutions to raise next, one per domain, among measured convolutions.

    These are the convolutions with the verdict YES, or else MAYBE. Without either, they are the worse half of the rest,
    if the outputs are within the limits with all convolutions at INT16.
    """
    advice: dict[str, Advice] = {}
    for entry in entries:
        if entry.measured and entry.signs.limits:
            advice.setdefault(entry.convolution.domain, entry)
    for verdict in (YES, MAYBE):
        chosen = [entry for entry in advice.values() if entry.verdict == verdict]
        if chosen:
            return chosen
    if not all_16_would_do:
        return []
    rest = sorted(
        (entry for entry in advice.values() if entry.verdict == NO),
        key=lambda entry: -entry.measured.brings,  # type: ignore[union-attr]
    )
    return rest[: -(-len(rest) // 2)]


def why(entry: Advice) -> str:
    """Return the evidence for raising a convolution, measured first."""
    assert entry.measured is not None
    share = f"quantising only this input causes {100 * entry.measured.brings_share:.0f} % of the remaining error"
    return ", ".join(filter(None, [share, rules_text(entry.signs)]))
