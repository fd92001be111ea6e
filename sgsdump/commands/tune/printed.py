"""What ``sgsdump tune`` prints around its table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump.tuning.pareto import Pareto
    from sgsdump.tuning.setup import Setup


def print_beginning(setup: Setup, most: int, budget: str, progress: Path) -> None:
    """How much there is to do, ``most`` plans, and what is known already."""
    pool, groups = setup.pool, len(setup.sizes.domains)
    runs = most * len(pool.pictures)
    print(f"{groups} groups of convolutions; at most {most} plans on {len(pool.pictures)} pictures = {runs} runs of "
          f"the network, within {budget}")  # fmt: skip
    if pool.resumed:
        print(f"{progress}: going on, {pool.resumed} plans are known")


def print_ending(result: Pareto, folder: Path, level: str) -> None:
    from sgsdump.tuning.pareto import worsened

    how = "every plan there is was tried" if result.effort.exhaustive else f"{result.effort.plans_tried} plans tried"
    rest = "" if result.effort.complete else "; the time ran out before the search ended, the same command goes on"
    print(f"{how}, {result.effort.runs} runs of the network{rest}")
    if result.effort.unsearched:
        print(f"not looked at: {'; '.join(result.effort.unsearched)}")
    names = ", ".join(result.taken.raised[:6]) + (" …" if len(result.taken.raised) > 6 else "")
    for name in result.left_out:
        print(f"not counted: {name}, whose error at INT16 is infinite; is it zero in the float model?")
    for name, (error, low) in worsened(result).items():
        print(f"warning: * leaves {name} worse than INT8 does (error {error:.3g}, INT8 {low:.3g}); "
              f"--objective worst or --objective {name} heeds it")  # fmt: skip
    print(f"*: {len(result.taken.raised)} convolutions at INT16{': ' + names if names else ''}")
    if result.verified is not None:
        print(f"*: in the hardware's integers its error is {result.verified.error:.3g} (searched with "
              f"{result.taken.error:.3g})")  # fmt: skip
    print(f"{folder}: to make its fixed model, sgsdump calibrate with --input-config {folder / 'input_config.ini'} "
          f"--quant-level {level}")  # fmt: skip
