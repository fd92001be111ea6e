#!/usr/bin/env python3
"""What 8 bits cost four transformers, and which layer diagnose names for it.

    python tools/attention.py                    four networks, weights as transformers draws them
    python tools/attention.py --sharp            larger weights, those of queries and keys twice; norms and biases drawn
    python tools/attention.py --only gpt --level L2

A BERT, a ViT, a GPT-2 with a cache of keys and values, and the encoder of a Whisper, three layers each, exported by
torch (needs torch and transformers beside sgsdump). Each is run on 16 drawn inputs, the ViT on pictures; a line of
Markdown for each network: the outputs' RMSE, the layer that brings most of it, by its input and by its weights, and
what 16 bits there leave. The limit of diagnose is 0.02, so that a smaller error is named too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RUNS, LIMIT, SIDE = 16, 0.02, 32
OUTPUTS = {"bert": ["hidden", "pooled"], "vit": ["logits"], "gpt": ["logits"], "whisper": ["hidden"]}
PREPROCESS = """
import numpy as np
from PIL import Image

def get_image(path, nchw=False, norm=True):
    pixels = np.asarray(Image.open(path).convert("RGB"), np.float32)
    pixels = (pixels - 127.5) / 127.5 if norm else pixels
    return pixels.transpose(2, 0, 1)[None] if nchw else pixels[None]
"""
Feed = dict[str, np.ndarray]


def bert(draw: dict[str, float]) -> tuple[Any, Feed]:
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512,
                        vocab_size=1000, max_position_embeddings=64, **_initial(draw, 0.06))  # fmt: skip
    config._attn_implementation = "eager"
    ids = np.zeros((1, 32), np.int64)
    return BertModel(config), {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def vit(draw: dict[str, float]) -> tuple[Any, Feed]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=SIDE, patch_size=8, hidden_size=96, num_hidden_layers=3, num_attention_heads=3,
                       intermediate_size=192, num_labels=10, **_initial(draw, 0.08))  # fmt: skip
    config._attn_implementation = "eager"
    return ViTForImageClassification(config), {"pixel_values": np.zeros((1, 3, SIDE, SIDE), np.float32)}


def gpt(draw: dict[str, float]) -> tuple[Any, Feed]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=96, n_layer=3, n_head=4, vocab_size=500, n_positions=64, **_initial(draw, 0.08))
    config._attn_implementation = "eager"
    past = {f"past_{layer}_{part}": np.zeros((1, 4, 8, 24), np.float32) for layer in range(3) for part in "kv"}
    return GPT2LMHeadModel(config), {
        "input_ids": np.zeros((1, 4), np.int64), "attention_mask": np.ones((1, 12), np.int64), **past
    }  # fmt: skip


def whisper(draw: dict[str, float]) -> tuple[Any, Feed]:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(d_model=96, encoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=192,
                           decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=64, vocab_size=100,
                           num_mel_bins=40, max_source_positions=50, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                           decoder_start_token_id=1, **_initial(draw, 0.08, "init_std"))  # fmt: skip
    config._attn_implementation = "eager"
    return WhisperModel(config).encoder, {"input_features": np.zeros((1, 40, 100), np.float32)}


NETS: dict[str, Callable[[dict[str, float]], tuple[Any, Feed]]] = {
    "bert": bert,
    "vit": vit,
    "gpt": gpt,
    "whisper": whisper,
}


def _initial(draw: dict[str, float], sharp: float, name: str = "initializer_range") -> dict[str, float]:
    return {name: sharp} if draw else {}


def export(name: str, sharp: bool, path: Path) -> Feed:
    """Write the network; returns a feed of its shapes and types."""
    import torch

    torch.manual_seed(1)
    net, feed = NETS[name]({"scale": 2.0} if sharp else {})
    if sharp:
        _sharpen(net)

    class Plain(torch.nn.Module):
        """Takes and gives tensors alone."""

        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *tensors: Any) -> Any:
            named = dict(zip(feed, tensors))
            past = [named.pop(key) for key in list(named) if key.startswith("past_")]
            if past:
                from transformers import DynamicCache

                cache = DynamicCache()
                for layer in range(len(past) // 2):
                    cache.update(past[2 * layer], past[2 * layer + 1], layer)
                named |= {"past_key_values": cache, "use_cache": True}
            found = self.net(**named)
            return found[0] if name != "bert" else (found[0], found[1])

    tensors = tuple(torch.from_numpy(array) for array in feed.values())
    options: dict[str, Any] = {"dynamo": True, "external_data": False} if name == "gpt" else {"dynamo": False}
    with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(Plain().eval(), tensors, str(path), input_names=list(feed), output_names=OUTPUTS[name],
                          opset_version=18 if name == "gpt" else 17, **options)  # fmt: skip
    return feed


def _sharpen(net: Any) -> None:
    import torch

    generator = torch.Generator().manual_seed(5)
    for name, parameter in net.named_parameters():
        if any(part in name for part in ("query.weight", "key.weight", "q_proj.weight", "k_proj.weight")):
            parameter.data.mul_(2)
        elif "c_attn.weight" in name:
            parameter.data[:, : parameter.shape[1] // 3 * 2].mul_(2)
        elif name.endswith("bias"):
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
        elif "norm" in name.lower() or "ln_" in name:
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.1)


def write_data(feed: Feed, folder: Path) -> None:
    """Pictures for a ViT, else a file of arrays for each run: token ids, masks of some length, normal numbers."""
    from PIL import Image

    folder.mkdir()
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        if list(feed) == ["pixel_values"]:
            pixels = np.clip(128 + 60 * rng.normal(size=(4, 4, 3)).repeat(8, 0).repeat(8, 1)
                             + rng.normal(0, 12, (SIDE, SIDE, 3)), 0, 255)  # fmt: skip
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{seed}.png")
            continue
        arrays: dict[str, Any] = {}
        for name, like in feed.items():
            if name == "attention_mask":
                # a GPT's shorter text begins later, a BERT's ends earlier
                length, first = int(rng.integers(like.shape[1] // 2, like.shape[1] + 1)), "past_0_k" not in feed
                place = np.arange(like.shape[1])
                arrays[name] = (place < length if first else place >= like.shape[1] - length)[None].astype(np.int64)
            elif like.dtype.kind == "i":
                arrays[name] = rng.integers(0, 500, like.shape)
            else:
                arrays[name] = rng.normal(size=like.shape).astype(np.float32)
        np.savez(folder / f"{seed}.npz", **arrays)


def line_of(name: str, sharp: bool, level: str, folder: Path) -> str:
    """A network's line of the table."""
    write_data(export(name, sharp, folder / "net.onnx"), folder / "data")
    (folder / "preprocess.py").write_text(PREPROCESS)
    words = ["-m", "net.onnx", "-i", "data", "--quant-level", level, "--max-rmse", str(LIMIT), "-o", "found"]
    words += ["-n", "preprocess.py"] if name == "vit" else []
    command = [sys.executable, "-m", "sgsdump", "diagnose", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode > 1 or not (folder / "found" / "layers.json").is_file():
        return f"| {name} | {done.stderr.strip().splitlines()[-1]} |"
    findings = json.loads((folder / "found" / "layers.json").read_text())["findings"]
    outputs = [f"{f['layer']} {f['figures']['rmse']:.4f}" for f in findings if f["kind"] == "output"]
    first = next((f for f in findings if f["kind"] in ("cause", "part")), None)
    advice = next((f for f in findings if f["kind"] == "advice"), None)
    cells = [name, ", ".join(outputs), *_named(first)]
    after = "" if advice is None else f"{advice['figures']['error_after']:.4f}, {len(advice['names'])} inputs"
    return f"| {' | '.join([*cells, after])} |"


def _named(finding: dict[str, Any] | None) -> tuple[str, str]:
    if finding is None:
        return "", ""
    figures = finding["figures"]
    brings = ("brings", "input_brings", "weights_bring")
    return finding["layer"], ", ".join(f"{100 * figures[key]:.0f} %" for key in brings if key in figures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default=",".join(NETS), metavar="NAME,…", help="these networks (default: %(default)s)"
    )
    parser.add_argument("--sharp", action="store_true", help="larger weights, those of queries and keys twice as large")
    parser.add_argument("--level", default="L1", help="of calibration (default: %(default)s)")
    args = parser.parse_args()
    print("| network | outputs' RMSE | brings most | it, its input, its weights alone bring | with the advice |")
    print("|---|---|---|---|---|")
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(line_of(name, args.sharp, args.level, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
