"""What msprobe's SingleSave saved: each save a run, of all tags."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import ConfigError, FormatError

PLACES = ("step0/rank0/micro_step0", "step0/rank0/micro_step10", "step0/rank0/micro_step2", "step1/rank0")


def saved(root: Path, shift: float = 0.0) -> Path:
    """``logits`` and the list ``states`` saved three times in step 0, once in step 1; ``loss`` once without a count."""
    for number, place in enumerate(PLACES):
        for tag, names in (("logits", ["logits"]), ("states", ["states.0", "states.10", "states.2"])):
            folder = root / "data" / tag / place
            folder.mkdir(parents=True)
            (folder / f"{tag}.json").write_text('{"data": {}}')
            for name in names:
                np.save(folder / f"{name}.npy", np.float32([number, len(name), shift]))
    folder = root / "data" / "loss" / "step0" / "rank0"
    folder.mkdir(parents=True)
    np.save(folder / "loss.npy", np.float32(1.5))
    (root / "configurations.json").write_text("{}")
    return root


def test_each_save_is_a_run_of_all_tags(tmp_path: Path) -> None:
    tree = saved(tmp_path)
    assert [(run.step, run.rank, run.graph) for run in list_runs(tree)] == [
        (0, 0, ""),
        (0, 0, "micro_step0"),
        (0, 0, "micro_step2"),
        (0, 0, "micro_step10"),
        (1, 0, ""),
    ]
    with pytest.raises(ConfigError, match="holds 5 runs"):
        open_dump(tree)
    dump = open_dump(tree, step=1)
    assert dump.format == "msprobe_single_save"
    assert list(dump.outputs) == ["logits", "states.0", "states.2", "states.10"]
    assert dump["states.10"].stored().tolist() == [3, 9, 0]
    second = open_dump(f"{tree}@step=0,graph=micro_step2")
    assert second["logits"].stored().tolist() == [2, 6, 0]
    assert list(open_dump(f"{tree}@step=0,graph=-").outputs) == ["loss"]


def test_two_programs_are_compared_save_by_save(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [str(saved(tmp_path / side, shift)) for side, shift in (("a", 1.0), ("b", 0.0))]
    main(["compare", *sides])
    assert "Runs compared: 5; different: 4." in capsys.readouterr().out


def test_what_is_no_tensor_is_left_out(tmp_path: Path) -> None:
    tree = saved(tmp_path)
    (tree / "data/logits/step1/rank0/logits.npy").write_bytes(b"\x93NUMPY")
    dump = open_dump(tree, step=1)
    assert "logits" not in dump and "left out" in dump.notes[0]
    for file in (tree / "data/states/step1/rank0").glob("*.npy"):
        file.unlink()
    with pytest.raises(FormatError, match="holds no tensor"):
        open_dump(tree, step=1)


def test_other_dumps_below_a_folder_called_data_are_what_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "mine" / "step0" / "rank0"
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", np.ones(2))
    (folder / "dump.json").write_text(
        '{"dump_data_dir": "", "data": {"x.0.debug": {"type": "torch.Tensor", "dtype": "torch.int8", "shape": []}}}'
    )
    assert open_dump(folder).format == "msprobe_dir"
    inner = saved(folder / "inner" / "data" / "tag" / "step0" / "rank0")
    assert len(list_runs(inner)) == 5 and next(iter(open_dump(inner, step=1))) == "logits"


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = saved(tmp_path / "outside") / "data/logits/step1/rank0"
    tree = saved(tmp_path / "tree")
    (tree / "data/other/step1").mkdir(parents=True)
    (tree / "data/other/step1/rank0").symlink_to(outside)
    assert list(open_dump(tree, step=1).outputs) == ["logits", "states.0", "states.2", "states.10"]
