"""The options of ``tune``, and which of its modes honour them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import Modes
from sgsdump.fixedpoint.verbs.judges import Judges
from sgsdump.models.network import Network

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds

EXPLAIN, FIRST, SEARCH = "--explain", "--first", "the smallest plan"
_NETWORK = "model weight_file model_inputs model_outputs image data_loader_script preprocess input_config strict_sdk"
_COMMON = f"{_NETWORK} quant_level min_cos max_rmse evaluate output json"
_SEARCH = "rates target objective cost budget num_process scheduler fixed_model"
MODES = Modes(
    honoured={
        **dict.fromkeys(_COMMON.split(), (EXPLAIN, FIRST, SEARCH)),
        **dict.fromkeys(["metric", "validate", "cure", "pickle"], (FIRST, SEARCH)),
        **dict.fromkeys(["explain", "ranges", "dump", "fixed"], (EXPLAIN,)),
        **dict.fromkeys(["first", "rounds"], (FIRST,)),
        **dict.fromkeys(_SEARCH.split(), (SEARCH,)),
    },
    refusals={
        EXPLAIN: "is for a search, but --explain makes none; omit one of them",
        FIRST: "is for the search of the smallest plan, but --first stops earlier; omit one of them",
        SEARCH: "",  # only options with a reason of their own
        **dict.fromkeys(["ranges", "dump", "fixed"], "is for --explain; add --explain, or leave it out"),
        "rounds": "is for --first; add --first, or leave it out",
        "fixed_model": "is for the search of the smallest plan; --first always writes optimized.onnx, --explain none",
    },
    spelled={},
)


@dataclass(frozen=True)
class Options:
    """The options as typed; None and False where not given.

    facts  lines of the report's footer: the command.
    """

    network: Network
    judges: Judges
    quant_level: str
    min_cos: float | None
    max_rmse: float | None
    ranges: Path | None
    dump: Path | None
    fixed: Path | None
    rounds: int | None
    rates: str | None
    target: str | None
    objective: str | None
    cost: str | None
    budget: str | None
    num_process: int | None
    scheduler: str | None
    cure: bool
    output: Path | None
    json: Path | None
    fixed_model: bool
    pickle: bool
    facts: tuple[tuple[str, str], ...]

    @property
    def limits(self) -> Thresholds:
        """The limits that the user gave."""
        from sgsdump.comparison.thresholds import Thresholds

        return Thresholds(self.min_cos, self.max_rmse)

    @property
    def folder(self) -> Path:
        """Folder for the results, in a mode that requires one."""
        assert self.output is not None
        return self.output
