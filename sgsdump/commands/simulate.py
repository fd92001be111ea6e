"""Simulate: run one input through a float or fixed model and dump every layer as ./DebugConfig.txt says.

The dump is `sigma_outtensor_dump.bin` in the folder of `path=` ($HOME when that is empty).
`sgsdump cfg DebugConfig.txt` writes one into the current folder. Uncomment what you need: dumpTensor switches dumping
on; eliminateGarbage and dequantFixed give comparable values of a fixed model. Without a dump only the outputs are
summed up.

examples:
  sgsdump simulate -m net.onnx -t Float -i cat.jpg -n preprocess.py
  sgsdump simulate -m net_fixed.onnx -t Fixed -i cat.jpg -n preprocess.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import add_model, add_pictures

if TYPE_CHECKING:
    from sgsdump.models.model import Model
    from sgsdump.quantisation.simulation import Simulation
    from sgsdump.sidecars.debug_config import DebugConfig
    from sgsdump.sidecars.input_config import InputConfig

HELP = "run one picture through a float or fixed model, dump its layers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser, "float model (ONNX, .prototxt) or the fixed one of calibrate")
    parser.add_argument("-t", "--type", required=True, choices=["Float", "Fixed", "Offline"], help="which it is")
    add_pictures(parser, "picture, .npy, Input_shape= text, or random[:SEED]")
    parser.add_argument("--input-config", help="input_config.ini, for the built-in preprocess of a float model")


def run(args: argparse.Namespace) -> int:
    from sgsdump.sidecars import input_config

    config = input_config.read(args.input_config) if args.input_config else None
    model = open_as(args.type, args.model, args.weight_file)
    for _ in simulate_all(model, args.type, args.image, args.preprocess, config):
        pass
    return 0


def open_as(kind: str, path: str, weights: str | None = None) -> Model:
    """The model to simulate. Raises ModelError, for an ``Offline`` model before its file is looked at."""
    from sgsdump.errors import ModelError
    from sgsdump.models.model import open_model

    if kind == "Offline":
        raise ModelError("offline models cannot be dumped per layer: their layers are fused; use -t Fixed")
    return open_model(path, weights)


def simulate_all(
    model: Model,
    kind: str,
    image: str,
    preprocess: str | None,
    config: InputConfig | None = None,
    folder: Path | str = ".",
) -> Iterator[tuple[str, Simulation]]:
    """Simulate every picture in turn, dump as the DebugConfig.txt of ``folder`` says, print and give what came of it.

    kind    ``Float`` or ``Fixed``.
    config  for a float model's built-in preprocess; a fixed model remembers its own.
    Raises ModelError when ``kind`` is not what the model is.
    """
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.errors import ConfigError, ModelError
    from sgsdump.models.feeds.feeds import expand, feeds
    from sgsdump.models.model import graph_inputs
    from sgsdump.quantisation.fixed_facts import is_fixed
    from sgsdump.quantisation.float_model import simplify
    from sgsdump.quantisation.simulation import fixed_config, simulate
    from sgsdump.sidecars import debug_config

    debug = debug_config.read(folder) or debug_config.DebugConfig()
    if kind == "Float":
        model = simplify(model)
    if is_fixed(model) != (kind == "Fixed"):
        made = "a fixed model made by calibrate" if is_fixed(model) else "a float model"
        raise ModelError(f"{model.path} is {made}; simulate it with -t {'Fixed' if is_fixed(model) else 'Float'}")
    specs = graph_inputs(model.proto)
    count = len(expand(image, len(specs)))
    if count > 1 and debug.dump_tensor and not debug.do_not_recover:
        raise ConfigError(
            f"{image} holds {count} pictures and each dump would overwrite the last; give one picture, or put "
            f"dumpdonotrecovery into DebugConfig.txt to number the dumps"
        )
    if kind == "Fixed":
        config = fixed_config(model)
    raw = kind == "Fixed" and config is not None
    for label, feed in feeds(image, preprocess, specs, config, normalised=not raw):
        with TERMINAL.bar("simulate", "layer") as advance:
            simulation = simulate(model, feed, debug.dequant_fixed, debug.eliminate_garbage, advance)
            _dump(simulation, debug, is_float=kind == "Float" or debug.dequant_fixed)
        _sum_up(label, simulation)
        yield label, simulation
    if not debug.dump_tensor:
        print("no dump: put DebugConfig.txt with the line dumpTensor into this folder to get one")


def _dump(simulation: Simulation, debug: DebugConfig, is_float: bool) -> None:
    """Write the dump DebugConfig.txt asks for; without one just run to the end."""
    from dataclasses import replace

    from sgsdump.dumps.formats.sigmastar import binary
    from sgsdump.dumps.formats.sigmastar import text as sigmastar_text
    from sgsdump.files.atomic_write import replacing
    from sgsdump.sidecars import parse_net
    from sgsdump.sidecars.debug_config import dump_path

    if not debug.dump_tensor:
        for _ in simulation.records:
            pass
        return
    path = dump_path(debug)
    if debug.dump_as_string:
        text = replace(sigmastar_text.SIM, is_float=is_float, blank=is_float or not debug.eliminate_garbage)
        sigmastar_text.write(simulation.records, path, text)
    else:
        binary.write(simulation.records, path, replace(binary.SIM_SHAPED, is_float=is_float))
    if simulation.net:
        net = path.with_name(f"{path.stem}_parse_net.txt")
        with replacing(net) as file:
            file.write(parse_net.text_of(simulation.net.values()).encode("utf-8", "surrogateescape"))
        print(f"{net}: the buffers' shapes and orders; compare takes it with --parse-net")
    for word in debug.ignored:
        print(f"DebugConfig.txt: {word} has no effect on a layer dump")
    print(f"{path}: {path.stat().st_size:,} bytes")


def _sum_up(label: str, simulation: Simulation) -> None:
    import numpy as np

    for name, array in simulation.outputs.items():
        finite = array[np.isfinite(array)]
        span = f"min {finite.min():g}, max {finite.max():g}" if finite.size else "no finite value"
        odd = array.size - finite.size
        print(f"{label}: output {name} {list(array.shape)}: {span}" + (f", {odd} NaN or Inf" if odd else ""))
    for name, reason in simulation.skipped.items():
        print(f"not dumped: {name}: {reason}")
