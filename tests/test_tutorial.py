"""The tutorial is its notebook, its network can be trained, and the metrics of docs/metrics.md are their formulas.

``python tools/make_notebook.py --run`` runs the notebook itself, ``python tools/build_site.py`` builds the site.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
MOST_LINES = 3  # of sgsdump in a step


def module_of(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(name):
    return BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))


def test_the_notebook_is_the_page():
    tool = module_of(ROOT / "tools" / "make_notebook.py")
    written = tool.NOTEBOOK.read_text(encoding="utf-8")
    assert tool.notebook_of(tool.PAGE.read_text(encoding="utf-8")) == written, "run tools/make_notebook.py"
    code = [cell for cell in json.loads(written)["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]) + "\n" for cell in code] == blocks("tutorial.md")


def test_a_step_takes_at_most_three_lines_of_sgsdump():
    found = [block for block in blocks("tutorial.md") if re.search(r"sgsdump\.\w+\(", block)]
    assert len(found) >= 6
    for block in found:
        lines = [line for line in block.splitlines() if "sgsdump" in line or re.match(r"(found|fixed|cured)", line)]
        assert len(lines) <= MOST_LINES, block


def test_the_network_of_the_tutorial_is_trained(tmp_path):
    """A few steps of it: the loss falls, and the ONNX gives what the weights give, scaled channels or not."""
    training = module_of(DOCS / "train_shapes.py")
    x, labels = training.pictures(128, seed=0)
    start, weights = (training.trained(x, labels, steps) for steps in (0, 40))
    losses = [training.step(each, x, labels)[0] for each in (start, weights)]
    assert losses[1] < losses[0] / 1.2
    training.saved(weights, str(tmp_path / "net.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    given = np.concatenate([session.run(None, {"image": picture[None]})[0] for picture in x[:8]])
    first = np.maximum(training.patches(x[:8], 1) @ weights["w1"] + weights["b1"], 0).transpose(0, 3, 1, 2)
    second = np.maximum(training.patches(first, 2) @ weights["w2"] + weights["b2"], 0).mean((1, 2))
    assert np.allclose(given, second @ weights["w3"] + weights["b3"], atol=1e-3)


def test_the_gradients_of_the_training_are_right():
    training = module_of(DOCS / "train_shapes.py")
    x, labels = training.pictures(6, seed=1)
    weights = {name: value.astype(np.float64) for name, value in training.trained(x, labels, 1).items()}
    _, gradients = training.step(weights, x.astype(np.float64), labels)
    for name, at in (("w1", (4, 2)), ("b1", (3,)), ("w2", (10, 5)), ("w3", (7, 1))):
        sides = []
        for change in (1e-6, -1e-6):
            moved = {key: value.copy() for key, value in weights.items()}
            moved[name][at] += change
            sides.append(training.step(moved, x.astype(np.float64), labels)[0])
        assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(gradients[name][at], rel=1e-3, abs=1e-6), name


@pytest.fixture(scope="module")
def metrics():
    names: dict = {}
    for block in blocks("metrics.md"):
        exec(compile(block, "metrics.md", "exec"), names)
    return names


def test_top1_of_the_page(metrics):
    one, other = ({"prob": np.float32([values])} for values in ([1, 3, 2], [0, 1, 9]))
    assert metrics["top1"](one, one) == 1 and metrics["top1"](one, other) == 0
    assert metrics["top1_of_labels"](one, other, 1) == 1 and metrics["top1_of_labels"](one, other, 2) == 0


def test_the_metrics_of_the_page_are_loaded_as_tune_loads_them(tmp_path):
    from sgsdump.fixedpoint.tuning.criteria import load_metric

    (tmp_path / "accuracy.py").write_text("\n".join(blocks("metrics.md")), encoding="utf-8")
    one = {"prob": np.float32([[1, 3, 2]])}
    loaded = load_metric(f"{tmp_path / 'accuracy.py'}:top1_of_labels")
    assert loaded.told == ("label",) and loaded(one, one, label=1) == 1 and loaded(one, one, label=0) == 0
    for name in ("top1", "average_precision", "word_accuracy"):
        assert load_metric(f"{tmp_path / 'accuracy.py'}:{name}").told == ()


def test_average_precision_of_the_page(metrics):
    boxes = np.float32([[0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]])
    truth = {"boxes": boxes, "scores": np.float32([0.9, 0.8, 0.1])}
    assert metrics["overlaps"](boxes[:1], boxes + np.float32([5, 0, 5, 0]))[0].tolist() == pytest.approx([1 / 3, 0, 0])
    assert metrics["average_precision"](truth, truth) == pytest.approx(1)
    missed = truth | {"boxes": boxes + np.float32([[0], [100], [0]])}
    assert metrics["average_precision"](missed, truth) == pytest.approx(0.5)  # one of two, found first
    second = {"boxes": boxes[[2, 0, 1]], "scores": np.float32([0.9, 0.8, 0.7])}
    assert metrics["average_precision"](second, truth) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert metrics["average_precision"](truth, truth | {"scores": np.float32([0, 0, 0])}) == 1


def distance(said, meant):
    """Levenshtein's, by its definition."""
    table = {(i, 0): i for i in range(len(said) + 1)} | {(0, j): j for j in range(len(meant) + 1)}
    for i, j in itertools.product(range(1, len(said) + 1), range(1, len(meant) + 1)):
        change = table[i - 1, j - 1] + (said[i - 1] != meant[j - 1])
        table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, change)
    return table[len(said), len(meant)]


def test_word_accuracy_of_the_page(metrics):
    random = np.random.default_rng(0)
    for _ in range(30):
        said, meant = ({"logits": random.normal(size=(1, 12, 4))} for _ in range(2))
        words = [metrics["spoken"](each["logits"]).tolist() for each in (said, meant)]
        error = distance(*words) / max(len(words[1]), 1)
        assert metrics["word_accuracy"](said, meant) == pytest.approx(1 - error)
    assert metrics["spoken"](np.eye(4)[[1, 1, 0, 1, 2, 2, 0]]).tolist() == [1, 1, 2]


def test_the_metric_of_a_layer_of_the_page(metrics):
    sample, benchmark = np.float32([[1, 2], [3, 1]]), np.float32([[2, 1], [5, 1]])
    assert metrics["same_winner"](sample, benchmark) == 0.5


def test_the_reference_has_every_public_name():
    import sgsdump

    listed = re.findall(r"^::: sgsdump\.(\w+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(sgsdump.__all__)


def test_every_page_is_in_the_site():
    named = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} == named - {"index.md", "README.md"}
