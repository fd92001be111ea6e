"""What dumping a language model costs: a Llama-like decoder in bfloat16 makes 64 tokens under ``sgsdump exec``, with
the statistics of every operator, with its layers alone, and under an empty dispatch mode, beside the program alone.

    python benchmarks/capture_decoder.py            24 layers, hidden size 1024, 64 tokens, twice
    python benchmarks/capture_decoder.py --short    4 layers, hidden size 256, 8 tokens, once: what a tensor costs
                                                    counts far more there than in the model of full size

Times are the processor's, of all processes: the tokens in the program and what ``exec`` itself computes, without the
start and the end of either. Ways go by turns and the least time counts, for other work on the machine only ever adds to
it. The first token is counted too, in which the weights are looked at. Beside the times: the files of the dump, how
much more memory the program takes, and the time of comparing two dumps of a few tokens, for 1,000 tensors of a token.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rows import Row, is_short_with_torch, show

WAYS: dict[str, list[str] | None] = {
    "plain": None,
    "mode": None,
    "statistics": ["--type", "model", "tensor", "stats"],
    "layers": ["--type", "model", "tensor", "stats", "-child", "False"],
}
PROGRAM = """
import json, resource, sys, time
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

layers, hidden, tokens, way, out = *map(int, sys.argv[1:4]), *sys.argv[4:6]
HEADS = 8


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


def rotated(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.past = None

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q, k, v = (part(x).view(batch, length, HEADS, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        if self.past is not None:
            k, v = torch.cat((self.past[0], k), 2), torch.cat((self.past[1], v), 2)
        self.past = k, v
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.o(y.transpose(1, 2).reshape(batch, length, hidden))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        wide = hidden * 11 // 4
        self.norm1, self.norm2, self.attention, self.act = Norm(), Norm(), Attention(), nn.SiLU()
        self.gate, self.up = (nn.Linear(hidden, wide, bias=False) for _ in range(2))
        self.down = nn.Linear(wide, hidden, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(self.act(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(32000, hidden), Norm()
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(hidden, 32000, bias=False)
        self.place = 0

    def forward(self, ids):
        x = self.embedding(ids)
        size = hidden // HEADS
        places = torch.arange(self.place, self.place + ids.shape[1])
        angles = places[:, None] * (1.0 / 10000 ** (torch.arange(0, size, 2) / size))[None]
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        self.place += ids.shape[1]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class Empty(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
torch.set_num_threads(1)
net = Decoder().to(torch.bfloat16).eval()
ids, chosen = torch.randint(0, 32000, (1, 16)), []
with Empty() if way == "mode" else torch.no_grad():
    torch.ones(1) + 1  # what a first operator under a mode imports
began = time.process_time()
with torch.no_grad():
    for _ in range(tokens):
        if way == "mode":
            with Empty():
                y = net(ids)
        else:
            y = net(ids)
        ids = y[:, -1:].argmax(-1)
        chosen.append(int(ids))
seconds = time.process_time() - began
print(chosen)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open(out, "w") as file:
    json.dump({"seconds": seconds, "whole": time.process_time(), "peak": peak}, file)
"""
FEW = 4  # tokens of the dumps that are compared
SGSDUMP = "import sys; from sgsdump.cli import main; sys.exit(main(sys.argv[1:]))"


def cpu() -> float:
    """Seconds of the processor that ended child processes took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start_of_exec(folder: Path) -> float:
    """What ``sgsdump exec`` takes of a program that does nothing."""
    began = cpu()
    words = [sys.executable, "-c", SGSDUMP, "exec", "-o", str(folder / "nothing"), "--", sys.executable, "-c", "pass"]
    subprocess.run(words, capture_output=True, check=False)
    return cpu() - began


def run(way: str, folder: Path, sizes: list[str]) -> dict[str, Any]:
    """The seconds of a way, the program's peak in KiB, what it printed, and its dump."""
    out, tree = folder / "out.json", folder / way
    words = [sys.executable, str(folder / "program.py"), *sizes, way, str(out)]
    options = WAYS[way]
    shutil.rmtree(tree, ignore_errors=True)
    if options is not None:
        words = [sys.executable, "-c", SGSDUMP, "exec", "-o", str(tree), "-er", "all", *options, "--", *words]
    began = cpu()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    whole = cpu() - began
    told = json.loads(out.read_text())
    return {
        "tokens": told["seconds"],
        "beside": whole - told["whole"],
        "peak": told["peak"],
        "text": done.stdout,
        "tree": tree,
    }


def comparing(tree: Path) -> float:
    """Seconds to compare a dump of a few tokens with itself, for 1,000 tensors of a token."""
    from sgsdump import list_runs, open_dump

    (root,) = tree.glob("msit_dump_*")
    tensors = sum(len(open_dump(root / run.place).records) for run in list_runs(root))
    began = cpu()
    subprocess.run([sys.executable, "-c", SGSDUMP, "compare", str(root), str(root)], capture_output=True, check=True)
    return (cpu() - began) / tensors * 1000


def measure(layers: int, hidden: int, tokens: int, turns: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        idle = start_of_exec(folder)
        results: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for _ in range(turns):
            for way in WAYS:
                results[way].append(run(way, folder, [str(layers), str(hidden), str(tokens)]))
        texts = {result["text"] for of_way in results.values() for result in of_way}
        if len(texts) != 1:
            raise SystemExit("a way of running the program changed what it printed")
        leaving = min(result["beside"] for result in results["plain"])  # a program that gives its memory back
        seconds = {
            way: min(
                result["tokens"] + (max(0.0, result["beside"] - leaving - idle) if WAYS[way] else 0)
                for result in of_way
            )
            for way, of_way in results.items()
        }
        peaks = {way: min(result["peak"] for result in of_way) / 1024 for way, of_way in results.items()}
        files = sum(path.is_file() for path in (folder / "statistics").rglob("*"))
        few = run("statistics", folder, [str(layers), str(hidden), str(min(tokens, FEW))])
        title = f"decoder, {layers} layers of {hidden}, {tokens} tokens"
        return [
            Row(f"{title}: empty mode", seconds["mode"], seconds["plain"]),
            Row(f"{title}: statistics", seconds["statistics"], seconds["plain"], 3),
            Row(f"{title}: layers alone", seconds["layers"], seconds["plain"], 1.3),
            Row(f"{title}: files", files, 200, 1, "files"),
            Row(f"{title}: more memory", peaks["statistics"] - peaks["plain"], 200, 1, "MiB"),
            Row(f"{title}: comparing 1,000", comparing(few["tree"]), 2, 1),
        ]


def main() -> None:
    short = is_short_with_torch(__doc__ or "")
    if short is None:
        return
    for name in ("SGSDUMP_NO_KERNEL", "PYTHONDONTWRITEBYTECODE"):  # installed, it has its bytecode
        os.environ.pop(name, None)
    show(measure(*((4, 256, 8, 1) if short else (24, 1024, 64, 2))))


if __name__ == "__main__":
    main()
