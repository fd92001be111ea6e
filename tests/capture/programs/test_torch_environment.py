"""The environment of a torch program's round, as it is recorded in both kinds of trees, and as compare tells it."""

import pytest
from hooked_programs import sgsdump, trees
from torch_runs import NETS

from sgsdump import capture, compare, open_dump

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")


def test_it_is_recorded_in_both_kinds_of_trees_and_told_first(tmp_path, monkeypatch):
    main = "torch.set_num_threads(1 + len(sys.argv[1:]))\ntorch.manual_seed(len(sys.argv[1:]))\nNet()(image())\n"
    (tmp_path / "infer.py").write_text(f"import sys\n{NETS}\n{main}")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    for words, folder, arguments in ((), "one", ()), (("--tree",), "other", ("again",)):
        done = sgsdump("exec", *words, "-o", folder, "--", "python", "infer.py", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, other = trees(tmp_path / "one")[0], trees(tmp_path / "other")[0]
    environment = open_dump(one).environment()
    assert environment["versions", "torch"] == torch.__version__
    assert environment["variables", "OMP_WAIT_POLICY"] == "passive" and environment["settings", "threads"] == "1"
    done = sgsdump("compare", str(other), str(one), cwd=tmp_path)
    first = next(line for line in done.stdout.splitlines() if line.startswith("Environments differ"))
    assert first.startswith("Environments differ (sample, benchmark): threads 2, 1"), done.stdout[:500]
    assert "seed" not in first  # the weights' own seed is the same, and nothing is drawn


def test_a_dropout_is_told_with_the_state_of_the_generator(tmp_path):
    net = torch.nn.Dropout(0.5)
    for name, seed in ("one", 1), ("again", 1), ("other", 2):
        torch.manual_seed(seed)
        with capture(tmp_path / name):
            net(torch.ones(8))
    assert compare(tmp_path / "again", tmp_path / "one").environment == ()
    names = [finding.facts["argument"] for finding in compare(tmp_path / "other", tmp_path / "one").environment]
    assert names == ["seed", "state"]
