"""One small change to a module at a time, made by cosmic-ray's operators.

Left out are changes that no test can judge or that any test notices: annotations, protocols, blocks for type checkers,
``is`` put for ``==`` and back, an order put for the equality with a text, and of the eleven replacements of an
arithmetic operator all but the nearest, most of the others being a TypeError wherever the line runs.

A *site* is a place in the source and a family of operators (numbers, comparisons ...). Sites are drawn, then one change
of each, so that a line with one ``==``, which can be replaced in five ways, does not count five times.
"""

from __future__ import annotations

import ast
import difflib
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

NEAREST = {
    *("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "FloorDiv_Mul", "Mod_FloorDiv", "Pow_Mul"),
    *("BitAnd_BitOr", "BitOr_BitAnd", "BitXor_BitAnd", "LShift_RShift", "RShift_LShift"),
}
IDENTITY = ("Is_IsNot", "IsNot_Is")
ORDERS = tuple(f"{equality}_{order}" for equality in ("Eq", "NotEq") for order in ("Lt", "LtE", "Gt", "GtE"))
WITH_ARGUMENTS = ("core/VariableInserter", "core/VariableReplacer")

Place = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """The ``occurrence``-th place in a file that ``operator`` can change; ``start`` is its line and column."""

    path: str
    operator: str
    occurrence: int
    start: Place
    source: str

    @property
    def family(self) -> str:
        return self.operator.partition("_")[0]

    @cached_property
    def text(self) -> str:
        changed = mutate_code(self.source, get_operator(self.operator)(), self.occurrence)
        if changed is None:
            raise ValueError(f"{self.path}: {self.operator} has no occurrence {self.occurrence}")
        return changed

    @cached_property
    def change(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Removed and added lines, stripped: what the list of equivalent mutants names a mutant by."""
        rows = list(difflib.unified_diff(self.source.splitlines(), self.text.splitlines(), lineterm="", n=0))[2:]
        removed, added = ([row[1:].strip() for row in rows if row[0] == sign] for sign in "-+")
        return tuple(filter(None, removed)), tuple(filter(None, added))

    def diff(self) -> str:
        removed, added = self.change
        rows = [f"{self.path}:{self.start[0]}", *(f"- {row}" for row in removed), *(f"+ {row}" for row in added)]
        return "\n".join(rows)


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Every mutant of a file, in the order of the source."""
    source = (root / path).read_text(encoding="utf-8")
    operators = {name: get_operator(name)() for name in sorted(operator_names()) if _is_kept(name)}
    tree = ast.parse(source)
    skipped, texts = list(_unjudged(tree)), list(_with_text(tree))
    counts: dict[str, int] = defaultdict(int)
    mutants = []
    for node in ast_nodes(get_ast(source)):
        for name, operator in operators.items():
            for start, _ in operator.mutation_positions(node):
                occurrence = counts[name]
                counts[name] += 1
                if _within(start, skipped) or (name.endswith(ORDERS) and _within(start, texts)):
                    continue
                mutants.append(Mutant(path, name, occurrence, start, source))
    return sorted(mutants, key=lambda mutant: (mutant.start, mutant.operator, mutant.occurrence))


def drawn(mutants: list[Mutant], sample: int | None, seed: int) -> list[Mutant]:
    """One mutant of each site, of ``sample`` sites (None: all of them), in the order of the source."""
    sites: dict[tuple[str, Place, str], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        sites[mutant.path, mutant.start, mutant.family].append(mutant)
    chance = random.Random(seed)
    # The change of a site is drawn by itself, so that a larger sample holds the same change.
    chosen = [random.Random(f"{seed} {site}").choice(changes) for site, changes in sorted(sites.items())]
    if sample is not None and sample < len(chosen):
        chosen = chance.sample(chosen, sample)
    return sorted(chosen, key=lambda mutant: (mutant.path, mutant.start, mutant.operator))


def _is_kept(name: str) -> bool:
    if name in WITH_ARGUMENTS:
        return False
    family, _, replacement = name.removeprefix("core/").partition("_")
    if family == "ReplaceBinaryOperator":
        return replacement in NEAREST
    if family == "ReplaceComparisonOperator" and "Is" in replacement:
        return replacement in IDENTITY
    return True


def _unjudged(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    """From where to where nothing is changed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield _span(node)
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.dump(base) for base in node.bases):
            yield (node.lineno, 0), _span(node)[1]
        for name in ("annotation", "returns"):
            inner = getattr(node, name, None)
            if inner is not None:
                yield _span(inner)


def _with_text(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    """The comparisons with a text that stands there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides):
                yield _span(node)


def _within(start: Place, spans: list[tuple[Place, Place]]) -> bool:
    return any(first <= start < last for first, last in spans)


def _span(node: ast.AST) -> tuple[Place, Place]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
