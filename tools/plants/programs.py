"""Faults in torch programs: each is run twice, whole and with the fault, and the two dumps are compared.

The program is ``program.py``. Named are the units of its net, by the module of the layer that a finding is of.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plants.outcome import Outcome, Plant, sgsdump
from sgsdump.cli import main

PROGRAM = Path(__file__).with_name("program.py")
TOOLS = ("exec", "register_hook", "torchair", "msprobe")
_CONVOLUTIONAL = ("batch_norm", "group_norm", "gelu", "scale", "slope", "turn", "conv")
_OF_TOKENS = ("linear", "layer_norm", "gelu", "scale", "slope", "softmax", "turn")
_WEIGHTED = {"conv", "linear", "batch_norm", "group_norm", "layer_norm"}
_SCALARS: Mapping[str, tuple[str, list[Any]]] = {
    "batch_norm": ("eps", [1e-3, 1e-2]),
    "group_norm": ("eps", [1e-3, 1e-2]),
    "layer_norm": ("eps", [1e-3, 1e-2]),
    "scale": ("factor", [0.49, 0.7, -0.5]),
    "slope": ("slope", [0.02, 0.2]),
    "softmax": ("dim", [1]),
    "gelu": ("approximate", ["tanh"]),
}
_BLAMED = ("argument", "outside", "another tensor", "not finite", "cause", "magnified", "channel")


def another_weight(rng: np.random.Generator, folder: Path) -> Outcome:
    kinds = _kinds(rng)
    unit = _one_of(rng, kinds, _WEIGHTED)
    name = str(rng.choice(["weight", "bias"]))
    element = None if rng.random() < 0.3 else int(rng.integers(1 << 20))
    value = {"name": name, "element": element, "factor": float(rng.choice([0.5, 0.9, 1.2, -1.0]))}
    return _outcome(rng, folder, kinds, {"unit": unit, "kind": "weight", "value": value})


def another_scalar(rng: np.random.Generator, folder: Path) -> Outcome:
    kinds = _kinds(rng)
    unit = _one_of(rng, kinds, set(_SCALARS))
    name, values = _SCALARS[kinds[unit]]
    value = {"name": name, "value": values[rng.integers(len(values))]}
    return _outcome(rng, folder, kinds, {"unit": unit, "kind": "scalar", "value": value})


def another_dtype(rng: np.random.Generator, folder: Path) -> Outcome:
    """One module computes in another type."""
    kinds = _kinds(rng)
    unit = _one_of(rng, kinds, _WEIGHTED)
    value = str(rng.choice(["float16", "bfloat16", "float64"]))
    return _outcome(rng, folder, kinds, {"unit": unit, "kind": "dtype", "value": value})


def wrong_transpose(rng: np.random.Generator, folder: Path) -> Outcome:
    kinds = _kinds(rng)
    is_convolutional = "conv" in kinds
    unit = _one_of(rng, kinds, {"turn"})
    axes = [None, (2, 3), (1, 3)] if not is_convolutional else [None, (1, 3), (2, 3)]
    value = axes[rng.integers(len(axes))]
    return _outcome(rng, folder, kinds, {"unit": unit, "kind": "transpose", "value": value})


def healthy(rng: np.random.Generator, folder: Path) -> Outcome:
    """The same net: again, with other threads, or with another order in memory."""
    differs = [{}, {"threads": 1}, {"channels_last": True}][rng.integers(3)]
    return _outcome(rng, folder, _kinds(rng), None, differs)


def write_in_place(rng: np.random.Generator, folder: Path) -> Outcome:
    kinds = _kinds(rng)
    kinds.insert(int(rng.integers(1, len(kinds))), "grow")
    unit = kinds.index("grow")
    value = {"name": "factor", "value": float(rng.choice([1.4, 2.0]))}
    return _outcome(rng, folder, kinds, {"unit": unit, "kind": "scalar", "value": value})


def low_precision(rng: np.random.Generator, folder: Path) -> Outcome:
    """Both sides in bfloat16, and a weight or a scalar is another one."""
    kinds = _kinds(rng)
    unit = _one_of(rng, kinds, _WEIGHTED)
    value = {"name": "weight", "element": None, "factor": float(rng.choice([0.9, 1.2]))}
    return _outcome(
        rng,
        folder,
        kinds,
        {"unit": unit, "kind": "weight", "value": value},
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16"},
    )


def compiled_code(rng: np.random.Generator, folder: Path) -> Outcome:
    """The program with the fault is compiled, the other one is not."""
    kinds = _kinds(rng)
    unit = _one_of(rng, kinds, _WEIGHTED)
    value = {"name": "weight", "element": None, "factor": float(rng.choice([0.9, 1.2]))}
    fault = {"unit": unit, "kind": "weight", "value": value}
    return _outcome(rng, folder, kinds, fault, {"compiled": True}, tool="exec")


PLANTS: dict[str, Plant] = {
    function.__name__: function
    for function in (another_weight, another_scalar, another_dtype, wrong_transpose, healthy)
}
# For the table only.
FURTHER: dict[str, Plant] = {function.__name__: function for function in (write_in_place, low_precision, compiled_code)}


def _kinds(rng: np.random.Generator) -> list[str]:
    """Units of a net, with a turn and weights before and after it."""
    of, first = (_CONVOLUTIONAL, "conv") if rng.random() < 0.5 else (_OF_TOKENS, "linear")
    inner = [str(kind) for kind in rng.choice(of, size=int(rng.integers(4, 9)))]
    needed = [kind for kind in ("turn", "scale") if kind not in inner]
    return [first, *inner, *needed, first]


def _one_of(rng: np.random.Generator, kinds: list[str], of: set[str]) -> int:
    units = [index for index, kind in enumerate(kinds) if kind in of]
    return int(units[rng.integers(len(units))])


def _outcome(
    rng: np.random.Generator,
    folder: Path,
    kinds: list[str],
    fault: Mapping[str, Any] | None,
    of_sample: Mapping[str, Any] = {},
    of_benchmark: Mapping[str, Any] = {},
    tool: str = "",
) -> Outcome:
    tool = tool or str(rng.choice(TOOLS))
    spec = {"seed": int(rng.integers(1 << 20)), "kinds": kinds}
    sides = {
        "benchmark": {**spec, "fault": None, **of_benchmark},
        "sample": {**spec, "fault": fault, **of_sample},
    }
    return compared(folder, tool, sides, frozenset({f"units.{fault['unit']}"} if fault else ()))


def compared(folder: Path, tool: str, sides: Mapping[str, Mapping[str, Any]], culprits: frozenset[str]) -> Outcome:
    """The program's dumps of both sides, by their specifications, compared."""
    _run(folder, tool, sides)
    done = sgsdump("compare", "sample", "benchmark", "--json", "comparison.json", folder=folder)
    return _read(folder, done.stdout, f"{tool} {_described(sides['sample'])}", culprits)


def compared_together(
    folder: Path, pairs: Sequence[Mapping[str, Any]], culprits: Sequence[frozenset[str]]
) -> list[Outcome]:
    """The same of several pairs dumped by ``exec``: each is one round of both programs."""
    _run(folder, "exec", {side: [pair[side] for pair in pairs] for side in ("benchmark", "sample")})
    outcomes = []
    for step, (pair, culprit) in enumerate(zip(pairs, culprits)):
        sides = [f"{next((folder / side).glob('msit_dump_*'))}@step={step}" for side in ("sample", "benchmark")]
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            status = main(["compare", *sides, "--json", str(folder / "comparison.json")])
        if status not in (0, 1):
            raise RuntimeError(f"compare ended with {status}: {pair}")
        outcomes.append(_read(folder, text.getvalue(), _described(pair["sample"]), culprit))
    return outcomes


def _described(spec: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in spec.items())


def _run(folder: Path, tool: str, sides: Mapping[str, Any]) -> None:
    started = [_start(folder, side, tool, spec) for side, spec in sides.items()]
    for process in started:
        _, errors = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{tool}: {errors.decode()[-500:]}")


def _read(folder: Path, printed: str, described: str, culprits: frozenset[str]) -> Outcome:
    document = json.loads((folder / "comparison.json").read_text())
    modules = {row["name"]: row["module"] for row in document["rows"]}
    named = [_unit(finding, modules) for finding in document["findings"] if finding["kind"] in _BLAMED]
    lines = printed.partition("\n\n")[2].splitlines()
    line = f"[{described}] {lines[0] if lines else ''}"
    # a curve or a scalar may make no difference to the values that come
    unseen = bool(culprits) and all(row["rmse"] == 0 for row in document["rows"])
    return Outcome(culprits, tuple(dict.fromkeys(named)), line, unseen, told=not named)


def _start(folder: Path, side: str, tool: str, spec: Any) -> subprocess.Popen[bytes]:
    path = folder / f"{side}.json"
    path.write_text(json.dumps(spec))
    program = [sys.executable, str(PROGRAM), str(path), tool, str(folder / side)]
    if tool == "exec":
        rounds = ["-er", "all"] if isinstance(spec, list) else []
        dump = ["exec", "--inside", "eager", *rounds, "-o", side]
        program = [sys.executable, "-m", "sgsdump", *dump, "--", *program]
    return subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _unit(finding: Mapping[str, Any], modules: Mapping[str, str]) -> str:
    """``units.3`` where the finding's layer is in that module; else its name."""
    text = finding["facts"].get("module") or modules.get(finding["layer"]) or finding["layer"]
    words = text.split(".")
    return ".".join(words[:2]) if words[0] == "units" else text
