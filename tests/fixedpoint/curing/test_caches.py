"""What a fold of ``cure`` computes once, and sums over images that run in parallel."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
from small_nets import model

from sgsdump.fixedpoint.curing import fold as fold_module
from sgsdump.fixedpoint.curing.channels import _Total
from sgsdump.fixedpoint.curing.fold import Fold, Made, Settings


def test_margins_are_computed_once_for_the_same_factors_and_room(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []

    def margins(layers, noise, factors, room):
        asked.append((float(factors[0]), room))
        return {"x": room}

    monkeypatch.setattr(fold_module, "margins", margins)
    fold = object.__new__(Fold)
    fold.config, fold._margins = SimpleNamespace(conv_format=None), deque(maxlen=4)  # type: ignore[assignment]
    basis = SimpleNamespace(layers=[], noise=None, scaling=SimpleNamespace(size=1))
    monkeypatch.setattr(Fold, "basis", lambda self, folded: basis)
    plain, doubled = Made(model([], {}, {"x": (1,)}, []).proto), np.full(1, 2.0)
    made = Made(plain.proto, doubled)
    for one, room in ((plain, 0.1), (plain, 0.2), (made, 0.1), (plain, 0.1), (made, 0.1)):
        assert fold._wider(one, Settings(room=room)) == {"x": room}
    assert asked == [(1.0, 0.1), (1.0, 0.2), (2.0, 0.1)]


@pytest.mark.parametrize(("names", "computed"), [((), 1), (("bn",), 2)])
def test_a_model_in_which_nothing_is_folded_has_one_basis(monkeypatch, names: tuple[str, ...], computed: int) -> None:
    fold = object.__new__(Fold)
    fold._bases, fold.source = {}, SimpleNamespace(proto="source")  # type: ignore[assignment]
    monkeypatch.setattr(fold_module, "folded", lambda proto: (f"{proto}, folded", names))
    monkeypatch.setattr(Fold, "_basis", lambda self, proto, names: SimpleNamespace(proto=proto, folded=names))
    bases = {id(fold.basis(each)) for each in (True, False, True)}
    assert len(bases) == computed and fold.basis(True).folded == names


def test_figures_of_channels_are_those_of_all_images_together() -> None:
    first, second = (np.random.default_rng(seed).normal(seed, 2, (3, 5)).astype(np.float32) for seed in (0, 1))
    for parts in ((first, second), (second, first)):
        figures = _Total.of(parts[0]).plus(_Total.of(parts[1])).figures()
        values = np.concatenate(parts, axis=1).astype(np.float64)
        np.testing.assert_array_equal(figures.low, values.min(axis=1))
        np.testing.assert_array_equal(figures.high, values.max(axis=1))
        np.testing.assert_allclose(figures.power, (values**2).mean(axis=1))
        np.testing.assert_allclose(figures.mean, values.mean(axis=1))
