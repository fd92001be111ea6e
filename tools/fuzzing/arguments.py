"""Command lines that work, and odd ones made of them: values that an option never wants, options of the same command
that were not asked for, words that are missing or doubled. A line is kept as the JSON list of its words."""

from __future__ import annotations

import argparse
import json
from functools import cache
from random import Random

MODEL = "-m digits.onnx --input-config input_config.ini"
LINES = (
    "dump -m digits.onnx -i digit.png --input-config input_config.ini -o out.bin",
    "dump -m digits.onnx -i x.npy -o out.npz --dump-bin True",
    "pipeline full -m digits.onnx -o out --step 5",
    "pipeline once -m digits.onnx --name conv0 -o out --seed 3 --range 0 1",
    "pipeline range -m digits.onnx -b 3 -e 6 -o out --shape image=1x1x8x8",
    "pipeline list -m digits.onnx --name conv0 -i image:x.npy -o out",
    f"calibrate {MODEL} -i pictures -o out.onnx --quant-level L1",
    f"cure {MODEL} -i pictures -o out.onnx --quant-level L1 --cures fold,ranges",
    "simulate -m fixed.onnx -t Fixed -i digit.png",
    "simulate -m digits.onnx -t Float -i digit.png --input-config input_config.ini",
    "compare fixed.bin float.bin --csv out.csv --json out.json --metrics psnr,sqnr --limit conv0/relu:psnr=1",
    "judge fixed.bin float.bin float.bin --times 3 --csv j.csv --format sdk",
    "compare digits.onnx digits.onnx --match-by-value --csv weights.csv",
    "check fixed.bin --json out.json",
    "report fixed.bin float.bin -o out.html",
    "report pictures --before pictures -o out.html",
    "histogram fixed.bin -o out",
    "convert float.bin out.npz --layout NCHW --dtype float32",
    "convert fixed.bin out --to npy_dir --select c*",
    "show fixed.bin --csv out.csv",
    "show fixed.bin conv0_bias --stored -o out.npy",
    "split fixed.bin out --to npz",
    "split fixed.bin out.npz --pattern c*",
    "merge fixed.bin float.bin out.bin --prefix",
    f"tune --explain --ranges log/tensor_min_max.txt {MODEL} --dump float.bin --fixed fixed.bin",
    f"tune --explain --ranges log/tensor_min_max.txt {MODEL} -i digit.png --min-cos 0.9 --json out.json",
    f"tune --first {MODEL} -i pictures -o out --rounds 1 --quant-level L1",
    f"tune {MODEL} -i pictures -o out --rates 0.6 --budget 1s --quant-level L1",
    f"diagnose {MODEL} -i pictures -o out --max-images 2 --quant-level L1 --min-cos 0.5",
    "cfg",
    "completion bash",
    "demo -o digits.onnx/demo",
)
VALUES = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "2",
        "0.5",
        "-0.0",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "1e-400",
        "9" * 19,
        "9" * 400,
        "0x10",
    ),
    *("1_000", "٣", "True", "None", "x", "é", "\udcff", "a\nb", "\x1b[31m", "x" * 300, "x/" * 200, "*", "[", "(", "\\"),
    *(
        ",",
        ",,",
        "a,b",
        "1,2",
        ":",
        "a:b",
        "=",
        "a=b",
        "a=1",
        "conv0=1",
        "%",
        "%s",
        "{0}",
        "-",
        "--",
        "@x",
        "~",
        "$HOME",
    ),
    *(".", "..", "/nowhere/x", "pictures", "pictures/", "log", "digits.onnx", "fixed.onnx", "fixed.bin", "digit.png"),
    *("x.npy", "input_config.ini", "DebugConfig.txt", "log/tensor_min_max.txt", "log/tensor_chn.txt", "gone.json"),
    *(
        "x.npy/x",
        "out.onnx",
        "out.npz",
        "random",
        "random:9",
        "image:x.npy",
        "image",
        "conv0",
        "prob",
        "0:1",
        "L9",
        "1s",
    ),
    *(
        "2d",
        "0s",
        "-5s",
        "1x3x8x8",
        "image=1x1x8x8",
        "image=0",
        "image=-1x9",
        "image=" + "9" * 30,
        "psnr",
        "RMSE",
        "cos",
    ),
)


def drawn(data: bytes, donor: bytes, rng: Random) -> bytes:
    """The line with one to three things odd."""
    words = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        words = _changed(words, rng)
    return json.dumps(words).encode()


def _changed(words: list[str], rng: Random) -> list[str]:
    if not words:
        return [rng.choice(VALUES)]
    at, what = rng.randrange(len(words)), rng.random()
    if what < 0.45 and at > 0:
        return [*words[:at], rng.choice(VALUES), *words[at + 1 :]]
    if what < 0.55:
        return words[:at] + words[at + 1 :]
    if what < 0.62:
        return words[: at + 1] + words[at:]
    if what < 0.65:
        return [*words[:at], rng.choice(VALUES), *words[at:]]
    options = sorted(_options(tuple(words)))
    return [*words, rng.choice(options), *rng.choices(VALUES, k=rng.choice((0, 1, 1, 1, 2)))] if options else words


def _options(words: tuple[str, ...]) -> set[str]:
    """The options of the line's command."""
    parser, options = _parser(), set[str]()
    for word in words:
        children = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        if not children or word not in children[0].choices:
            break
        parser = children[0].choices[word]
        options = {name for action in parser._actions for name in action.option_strings}
    # A cluster's address is waited for, and what is asked of a name server is no business of a fuzzer.
    return options - {"--scheduler", "-h", "--help"}


@cache
def _parser() -> argparse.ArgumentParser:
    from sgsdump.commands.parser import build_parser

    return build_parser()
