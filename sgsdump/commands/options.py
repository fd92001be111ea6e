"""Options that several commands share, so that one thing is spelled and explained one way."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Dump
    from sgsdump.tensors.stages import Stage

INPUTS = "picture, folder, list file, .npy, or random[:SEED]"


def add_model(parser: argparse.ArgumentParser, text: str = "float model: ONNX, or Caffe's .prototxt") -> None:
    """``-m/--model`` and, for Caffe, ``--weight-file``."""
    parser.add_argument("-m", "--model", type=Path, required=True, help=text)
    parser.add_argument("--weight-file", type=Path, metavar="W.caffemodel", help="weights of a Caffe model")


def add_feeds(parser: argparse.ArgumentParser, text: str = INPUTS) -> None:
    """``-i/--image`` or ``--data-loader-script``, and ``-n/--preprocess``."""
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("-i", "--image", help=text)
    add_data_loader(one)
    parser.add_argument("-n", "--preprocess", help="your preprocess file(s), one per input, by commas")


def add_data_loader(parser: argparse._ActionsContainer) -> None:
    """``--data-loader-script``, by Polygraphy's name."""
    parser.add_argument(
        "--data-loader-script",
        metavar="FILE.py",
        help="Python with load_data(), which yields an input dict for each run",
    )


def add_provider(parser: argparse.ArgumentParser) -> None:
    """``--provider`` of onnxruntime."""
    parser.add_argument(
        "--provider", default="CPU", metavar="NAME", help="execution provider, such as CUDAExecutionProvider (CPU)"
    )


def add_pictures(parser: argparse.ArgumentParser, text: str = INPUTS, required: bool = True) -> None:
    """``-i/--image`` and ``-n/--preprocess``."""
    parser.add_argument("-i", "--image", required=required, help=text)
    parser.add_argument("-n", "--preprocess", help="your preprocess file(s), one per input, by commas")


def add_input_config(parser: argparse.ArgumentParser, text: str = "input_config.ini", required: bool = True) -> None:
    """``--input-config``."""
    parser.add_argument("--input-config", required=required, type=Path, metavar="INI", help=text)


def add_parse_net(parser: argparse.ArgumentParser) -> None:
    """``--parse-net``."""
    parser.add_argument(
        "--parse-net",
        type=Path,
        metavar="FILE",
        help="what the SDK's bin/parse_net prints of the fixed model, to unpad and dequantise integer dumps",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """``--step`` and ``--rank``: which run of a tree of several."""
    parser.add_argument(
        "--step", type=int, metavar="N", help="of a tree of several runs, that of this step; or write TREE@step=N"
    )
    parser.add_argument("--rank", type=int, metavar="N", help="and of this rank (or device); or TREE@step=N,rank=N")


def add_stages(parser: argparse._ActionsContainer) -> None:
    """``--stages``: a model that tells which stages the blobs of a Caffe network have."""
    parser.add_argument(
        "--stages",
        type=Path,
        metavar="MODEL",
        help="of a Caffe network: a model of it, float or fixed, that calibrate made; blobs pair with the SDK's stages "
        "by its table instead of by their names",
    )


def stages_of(model: Path | None, required: bool = True) -> tuple[Stage, ...]:
    """The table of stages that a model carries, () for None. Raises ConfigError where one is required that it lacks."""
    from sgsdump.errors import ConfigError
    from sgsdump.models.model import open_model
    from sgsdump.tensors.stages import KEY, table_of

    if model is None:
        return ()
    properties = {entry.key: entry.value for entry in open_model(model).proto.metadata_props}
    if KEY in properties:
        return table_of(properties[KEY])
    if required:
        raise ConfigError(
            f"{model} has no table of stages ({KEY}); give a model that calibrate made of a Caffe network"
        )
    return ()


def opened(args: argparse.Namespace, *paths: Path) -> list[Dump]:
    """The dumps at paths; ``--step`` and ``--rank`` are for those that are trees. Raises ConfigError where none is."""
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.trees import list_runs

    if args.step is None and args.rank is None:
        return [open_dump(path) for path in paths]
    is_tree = [bool(list_runs(path)) for path in paths]
    if not any(is_tree):
        return [open_dump(path, args.step, args.rank) for path in paths]
    return [open_dump(path, args.step, args.rank) if tree else open_dump(path) for path, tree in zip(paths, is_tree)]


def described(args: argparse.Namespace, *paths: Path) -> list[Dump]:
    """The dumps at paths, unpadded and dequantised as far as ``--tensor-min-max`` and ``--parse-net`` tell."""
    from sgsdump.dumps.formats.sigmastar.side_files import with_side_files
    from sgsdump.sidecars import parse_net
    from sgsdump.sidecars.tensor_min_max import read_ranges

    ranges = read_ranges(args.tensor_min_max) if args.tensor_min_max else None
    dumps = opened(args, *paths)
    net = parse_net.read(args.parse_net) if args.parse_net else None
    return [with_side_files(dump, ranges, net) for dump in dumps]
