"""Base classes for the results of ``tune``, and functions that check and write the output folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.errors import ConfigError, OutputError
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgsdump.comparison.verdict import Verdict
    from sgsdump.reports.html.frame import Page
    from sgsdump.reports.report import Report
    from sgsdump.sidecars.quant_param_entries import QuantParam

# The same name means the same content in all modes of tune.
OPTIMIZED, REPORT = "optimized.onnx", "report.html"
LOG, FLOAT_DUMP, FIXED_DUMP = "log", "float.bin", "fixed.bin"
PROGRESS, ROUNDS, CONTRIBUTIONS = "progress.json", "rounds.json", "contributions.json"
_RESULTS = re.compile(
    r"optimized(_\d+_[\d.]+)?\.onnx|optimized_quant_info(_\d+_[\d.]+)?\.(json|pkl)|"
    r"input_config(_\d+_[\d.]+)?\.ini|pareto\.(csv|json|png)|report\.html|cured\.(onnx|quant\.json|quant\.pkl)|"
    r"rounds\.(txt|json)|contributions\.(json|csv)"
)
# Names of calibrate and dump too: results of tune only beside ROUNDS or CONTRIBUTIONS.
_SHARED = frozenset((LOG, FLOAT_DUMP, FIXED_DUMP))


@dataclass(frozen=True)
class Written:
    """Optional output files of ``tune``.

    fixed_models  the fixed models of all plans
    pickles       quant parameters as pickle, for the SDK
    facts         additional lines for the footer of the report
    """

    fixed_models: bool = False
    pickles: bool = False
    facts: tuple[tuple[str, str], ...] = ()


RESULTS_ALONE = Written()


class Proposal:
    """A set of convolution inputs to raise to INT16, with the measurements that support it."""

    @property
    def raised(self) -> tuple[str, ...]:
        """Entries of ``tensor_arrays`` that raise the convolutions of the plan to INT16."""
        raise NotImplementedError

    @property
    def conclusion(self) -> Verdict:
        """Verdict on the model, as a ``Verdict`` object."""
        raise NotImplementedError

    @property
    def verdict(self) -> list[str]:
        """Three lines of text: state, cause, recommendation."""
        from sgsdump.reports.three_lines import verdict_block

        return verdict_block(self.conclusion)

    @property
    def to_copy(self) -> str:
        """The section ``[CONV_CONFIG]`` for input_config.ini; empty if no convolution needs INT16."""
        from sgsdump.fixedpoint.reports.cause_sentences import conv_config

        return conv_config(self.raised) if self.raised else ""

    def lines(self) -> list[str]:
        """Return the lines that the command ``sgsdump tune`` prints."""
        raise NotImplementedError

    def write(self, folder: Path, what: Written = RESULTS_ALONE, progress: Progress = SILENT) -> None:
        """Fill a folder. Raises OutputError."""
        raise NotImplementedError

    def save(self, folder: str | Path, what: Written = RESULTS_ALONE) -> Path:
        """Write the same files as ``sgsdump tune -o`` to a folder.

        The results of an earlier run are replaced only after all new files are written. Other files in the folder are
        kept.

        Parameters
        ----------
        folder : str or Path
            Folder to write.
        what : Written
            Optional files to write. By default, ``save`` writes no optional files.

        Returns
        -------
        Path
            ``folder``.

        Raises
        ------
        OutputError
            If a file cannot be written.
        """
        from sgsdump.files.atomic_write import replacing_folder

        with replacing_folder(Path(folder), keep=kept_in(Path(folder))) as newer:
            self.write(newer, what)
        return Path(folder)

    def to_html(self, path: str | Path) -> Path:
        """Write the report as a single self-contained file. Raises OutputError."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the table of the result as a DataFrame. Raises MissingExtra without pandas."""
        raise NotImplementedError

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the result into matplotlib axes and return the axes."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self.lines())


class Tuned(Proposal):
    """A plan of INT16 convolutions, verified with the hardware's integer arithmetic: a result of ``tune``.

    By default, the result is a ``SmallestPlan``. With ``first=True``, the result is a ``FirstPlan``.
    """

    @property
    def passes(self) -> bool:
        """True if the outputs of the plan are within the limits, also on held-out images."""
        raise NotImplementedError

    def to_html(self, path: str | Path) -> Path:
        """Write the report as a single self-contained file. Raises OutputError."""
        from tempfile import TemporaryDirectory

        from sgsdump.files.atomic_write import replace_text
        from sgsdump.progress import bars

        with TemporaryDirectory(prefix="sgsdump_") as folder:
            replace_text(Path(path), self._page(Path(folder), (), bars()))
        return Path(path)

    def page(self, height: int = 900) -> Page:
        """Return the report as a page for notebooks. ``height`` is the height of its frame in pixels."""
        from tempfile import TemporaryDirectory

        from sgsdump.progress import bars
        from sgsdump.reports.html.frame import Page

        with TemporaryDirectory(prefix="sgsdump_") as folder:
            return Page(self._page(Path(folder), (), bars()), height)

    def _page(self, folder: Path, facts: Iterable[tuple[str, str]], progress: Progress) -> str:
        """Return the report as HTML, with ``facts`` at the end of the footer."""
        from sgsdump.reports.html.document import render

        report = self._report(folder, progress)
        return render(replace(report, facts=(*report.facts, *facts)))

    def _report(self, folder: Path, progress: Progress) -> Report:
        """Return the contents of the report; ``folder`` holds temporary dumps of layers."""
        raise NotImplementedError


def kept_in(folder: Path) -> Callable[[str], bool]:
    """Return a function of a file name in ``folder``: False for an old result of ``tune``, True for other files."""
    of_tune = any((folder / name).exists() for name in (ROUNDS, CONTRIBUTIONS))

    def is_kept(name: str) -> bool:
        return not (_RESULTS.fullmatch(name) or (of_tune and name in _SHARED))

    return is_kept


def check_results(folder: Path, read: Iterable[Path | None], shared: bool = True) -> None:
    """Check that the results can be written to a folder, even if the folder holds older results.

    Parameters
    ----------
    folder
        The output folder (``-o``).
    read
        Files that the command reads.
    shared
        True if the results include LOG, FLOAT_DUMP and FIXED_DUMP.

    Raises
    ------
    OutputError
        If the folder cannot be replaced, or if a result would overwrite a file that ``tune`` did not write.
    ConfigError
        If a result would overwrite one of the files in ``read``.
    """
    from sgsdump.files.atomic_write import check_folder, check_outputs

    files = [path for path in read if path is not None]
    check_outputs([folder], files)
    is_kept, place = kept_in(folder), folder.resolve()
    for path in files:
        inside = path.resolve()
        if inside.is_relative_to(place) and not is_kept(inside.relative_to(place).parts[0]):
            raise ConfigError(f"the results would overwrite {path}; name another folder with -o")
    check_folder(folder)
    for name in sorted(_SHARED) if shared else ():
        if is_kept(name) and (folder / name).exists():
            raise OutputError(
                f"cannot overwrite {folder / name}: tune did not write this file; select another folder with -o"
            )


def write_plan(folder: Path, name: str, params: Sequence[QuantParam], ini: bytes, pickles: bool) -> None:
    """Write the quant parameters and the input_config.ini of a plan; ``name`` is appended to the file names.

    Raises OutputError.
    """
    from sgsdump.files.atomic_write import replacing
    from sgsdump.sidecars import quant_param

    quant_param.write(params, folder / f"optimized_quant_info{name}.json")
    if pickles:
        quant_param.write(params, folder / f"optimized_quant_info{name}.pkl", "pickle")
    with replacing(folder / f"input_config{name}.ini") as file:
        file.write(ini)
