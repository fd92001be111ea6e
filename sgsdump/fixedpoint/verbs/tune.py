"""``tune``: find the convolutions that need INT16, in one of three modes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from sgsdump.fixedpoint.verbs.explain import ExplainOptions
from sgsdump.fixedpoint.verbs.explain import explain as _explain
from sgsdump.fixedpoint.verbs.first_plan import FirstPlanOptions, first_plan
from sgsdump.fixedpoint.verbs.plan_search import SearchOptions, smallest_plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgsdump.fixedpoint.verbs.explained import Explained
    from sgsdump.fixedpoint.verbs.first_plan import FirstPlan
    from sgsdump.fixedpoint.verbs.smallest_plan import SmallestPlan
    from sgsdump.models.network import Data

_OPTIONS: dict[str, Any] = {"explain=True": ExplainOptions, "first=True": FirstPlanOptions, "a search": SearchOptions}


@overload
def tune(
    model: str | Path,
    data: Data,
    *,
    explain: Literal[False] = False,
    first: Literal[False] = False,
    quant_level: str = "L5",
    **options: Unpack[SearchOptions],
) -> SmallestPlan: ...


@overload
def tune(
    model: str | Path,
    data: Data,
    *,
    explain: Literal[False] = False,
    first: Literal[True],
    quant_level: str = "L5",
    **options: Unpack[FirstPlanOptions],
) -> FirstPlan: ...


@overload
def tune(
    model: str | Path,
    data: Data | None = None,
    *,
    explain: Literal[True],
    first: Literal[False] = False,
    quant_level: str = "L5",
    **options: Unpack[ExplainOptions],
) -> Explained: ...


def tune(
    model: str | Path,
    data: Data | None = None,
    *,
    explain: bool = False,
    first: bool = False,
    quant_level: str = "L5",
    **options: Any,
) -> SmallestPlan | FirstPlan | Explained:
    """Find the convolutions that need INT16, as ``sgsdump tune`` does.

    Plans are always verified by running them in the hardware's integer arithmetic.

    Parameters
    ----------
    model : str or Path
        ONNX model, or Caffe ``.prototxt`` (with ``weight_file``).
    data : str, Path, array, mapping or iterable
        Calibration images or arrays, see ``calibrate``. If the metric needs labels, ``data`` contains pairs of an input
        and its label. With ``explain=True`` and ``ranges``, ``data`` is optional and only used to measure the
        contributions.
    explain : bool
        If True, only measure the contribution of each convolution, without a search.
    first : bool
        If True, stop at the first plan within the limits. Cannot be combined with ``explain``.
    quant_level : str
        Calibration level of the ranges, L1 to L5. Weights have one scale per tensor at L1, and one scale per output
        channel from L2 on.
    **options
        Options of the selected mode: ``SearchOptions`` by default, ``FirstPlanOptions`` with ``first=True``,
        ``ExplainOptions`` with ``explain=True``. All modes also accept ``preprocess``, ``input_config``,
        ``weight_file``, ``model_inputs``, ``model_outputs`` and ``strict_sdk``; see ``calibrate``.

    Returns
    -------
    Tuned
        Recommended plan: a ``SmallestPlan`` by default, a ``FirstPlan`` with ``first=True``.
    Explained
        With ``explain=True``: every convolution with its contribution to the output error and a verdict.

    Raises
    ------
    SgsdumpError
        If the model, the data or an option is invalid, or if no plan reaches the target.
    TypeError
        If an option belongs to another mode.

    Examples
    --------
    >>> plan = sgsdump.tune("net.onnx", "images/", input_config="net.ini")  # doctest: +SKIP
    >>> print(plan)  # doctest: +SKIP
    >>> plan.save("tuned")  # doctest: +SKIP
    """
    if explain and first:
        raise TypeError("explain=True and first=True cannot be combined")
    mode = "explain=True" if explain else "first=True" if first else "a search"
    for name in options.keys() - _OPTIONS[mode].__annotations__.keys():
        others = [other for other, cls in _OPTIONS.items() if name in cls.__annotations__]
        if others:
            raise TypeError(f"{name} is an option of {' and '.join(others)}, not of {mode}")
    if explain:
        return _explain(model, data, quant_level, options)  # type: ignore[arg-type]
    if data is None:
        raise TypeError("the argument data is missing; give the images to calibrate on")
    if first:
        return first_plan(model, data, quant_level, options)  # type: ignore[arg-type]
    return smallest_plan(model, data, quant_level, options)  # type: ignore[arg-type]
