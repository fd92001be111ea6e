"""Dumps of a small network by msprobe itself, and its comparisons of them. Run by a Python that has msprobe, once for
all: ``python probe_dumps.py FOLDER``. Each dump is made by a process forked from one that has imported it."""

import json
import os
import sys
from pathlib import Path

import torch
from msprobe.core.single_save.single_saver import SingleSave
from msprobe.msprobe import main as msprobe
from msprobe.pytorch import PrecisionDebugger
from torch import nn

# name: (task, level, summary mode, factor of the last layer's weights)
DUMPS = {
    "statistics_L0": ("statistics", "L0", "statistics", 1.0),
    "statistics_L1": ("statistics", "L1", "statistics", 1.0),
    "statistics_mix": ("statistics", "mix", "statistics", 1.0),
    "statistics_mix_large": ("statistics", "mix", "statistics", 1e4),
    "md5": ("statistics", "mix", "md5", 1.0),
    "md5_large": ("statistics", "mix", "md5", 1.01),
    "xor": ("statistics", "mix", "xor", 1.0),
    "xor_large": ("statistics", "mix", "xor", 1.01),
    "tensor_L0": ("tensor", "L0", "statistics", 1.0),
    "tensor_L1": ("tensor", "L1", "statistics", 1.0),
    "tensor_mix": ("tensor", "mix", "statistics", 1.0),
    "tensor_mix_large": ("tensor", "mix", "statistics", 1.01),
    "structure": ("structure", "mix", "statistics", 1.0),
    "debug": ("statistics", "debug", "statistics", 1.0),
    "debug_large": ("statistics", "debug", "statistics", 1.01),
    "debug_tensor": ("tensor", "debug", "statistics", 1.0),
}
COMPARED = ("statistics_mix", "md5", "xor", "tensor_mix", "debug")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(64, 5)

    def forward(self, x):
        z = self.fc(torch.relu(self.bn(self.conv(x))).flatten(1))
        largest = torch.exp(z).sum()  # Inf where the weights are large
        spectrum, positive = torch.fft.fft(z).real, torch.where(z > 0, z, -z)
        indices = torch.argmax(positive, dim=1).float()
        short = (z.half() * 3).float() + (z.bfloat16() * 3).float()
        return largest.log() + (spectrum + positive + short).mean() + z.double().sum().float() + indices.sum() * 0


def dump(folder, task, level, mode, factor):
    folder.mkdir()
    of_task = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": mode}
    config = {"task": task, "level": level, "dump_path": str(folder), "rank": [], "step": []}
    (folder / "config.json").write_text(json.dumps({**config, "statistics": of_task, "tensor": of_task}))
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        net.fc.weight.mul_(factor)
    debugger, x = PrecisionDebugger(config_path=str(folder / "config.json")), torch.randn(2, 3, 4, 4)
    if level == "debug":
        y = net.conv(x) * factor
        debugger.save(x, "x")
        debugger.save({"y": y, "list": [x, 3]}, "nested")
        debugger.save(y, "grad", save_backward=True)
        y.sum().backward()
    else:
        debugger.start(model=net)
        net(x).backward()
        debugger.stop()
    debugger.step()


def single_save(folder, seed):
    torch.manual_seed(seed)
    SingleSave(str(folder))
    for _ in range(2):
        for _ in range(2):
            SingleSave.save({"logits": torch.randn(2, 3), "states": [torch.randn(2), torch.randn(3)]})
        SingleSave.save_ex({"loss": torch.tensor(1.5), "by_name": {"k": torch.arange(4.0)}})
        SingleSave.step()


def compare(folder, name):
    target, golden = (str(folder / f"{name}{end}" / "step0") for end in ("_large", ""))
    sys.argv = ["msprobe", "compare", "--target_path", target, "--golden_path", golden]
    sys.argv += ["--output_path", f"{folder}/compared_{name}"]
    msprobe()


def overflow(folder):
    sys.argv = [
        "msprobe",
        "overflow_check",
        "-i",
        str(folder / "statistics_mix_large/step0"),
        "-o",
        f"{folder}/overflow",
    ]
    msprobe()


def forked(function, *arguments):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)
    function(*arguments)
    sys.exit(0)


if __name__ == "__main__":
    made = Path(sys.argv[1])
    for name, options in DUMPS.items():
        forked(dump, made / name, *options)
    for seed in (0, 1):
        forked(single_save, made / f"single_save_{seed}", seed)
    for name in COMPARED:
        forked(compare, made, name)
    forked(overflow, made)
