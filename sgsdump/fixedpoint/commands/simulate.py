"""Run an input through a float or fixed model and dump the layers that ./DebugConfig.txt selects.

examples:
  sgsdump simulate -m net.onnx -t Float -i cat.jpg -n preprocess.py
  sgsdump simulate -m net_fixed.onnx -t Fixed -i cat.jpg -n preprocess.py
  sgsdump simulate -m net_fixed.onnx -t Fixed -i cat.jpg -n preprocess.py --dump-rawdata
  sgsdump simulate -m net.img -t Offline -i cat.jpg

DebugConfig.txt:
  sgsdump cfg DebugConfig.txt writes a template. dumpTensor switches the dump
  on; eliminateGarbage and dequantFixed make the values of a fixed model
  comparable. If DebugConfig.txt does not switch the dump on, simulate prints
  only a summary of the outputs.

the dump:
  The dump is the file sigma_outtensor_dump.bin. The line path=FOLDER of
  DebugConfig.txt selects the folder of this file; without a folder, the file is
  written to $HOME. With several images, each dump has the name of its image:
  sigma_outtensor_dump_cat.bin. With a data loader script, the dumps are
  numbered: sigma_outtensor_dump_0.bin, sigma_outtensor_dump_1.bin.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import add_feeds, add_input_config, add_model, add_provider, part_of, record
from sgsdump.commands.terminal import print_branches, print_cut
from sgsdump.models.network import Source, feeds_of

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.files.names import Taken
    from sgsdump.fixedpoint.quantisation.simulation import Simulation
    from sgsdump.models.model import Model, Part
    from sgsdump.sidecars.debug_config import DebugConfig
    from sgsdump.sidecars.input_config import InputConfig


RARE = ("--model-inputs", "--model-outputs", "--provider")


@dataclass(frozen=True)
class Options:
    model: Path
    weight_file: Path | None
    part: Part
    type: str
    image: str | None
    data_loader_script: str | None
    preprocess: str | None
    provider: str
    input_config: Path | None
    dump_rawdata: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("model and inputs")
    source.add_argument("-t", "--type", required=True, choices=["Float", "Fixed", "Offline"], help="type of the model")
    add_model(
        source,
        "float model; or fixed model (written by calibrate, or fixed.sim); or, with -t Offline, the "
        "SDK's compiled model for the hardware (.img)",
    )
    add_feeds(source, "image, folder, list file, .npy, text file that begins with Input_shape=, or random[:SEED]")
    add_input_config(source, "input_config.ini, for the built-in preprocessing of a float model")
    add_provider(source)
    parser.add_argument_group("output").add_argument(
        "--dump-rawdata",
        action="store_true",
        help=(
            "for a fixed model: also write the input bytes that the board reads, as IMAGE.bin "
            "(docs/board_against_pc.md)"
        ),
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.sidecars import input_config

    options = record(Options, args, part=part_of(args))
    config = input_config.read(options.input_config) if options.input_config else None
    model = open_as(options.type, options.model, options.weight_file, config, options.part)
    source = Source(options.image, options.preprocess, config, options.data_loader_script)
    how = Running(options.provider, each_named=True, dump_rawdata=options.dump_rawdata)
    for _ in simulate_all(model, options.type, source, how=how):
        pass
    print_cut(model, config)
    return 0


@dataclass(frozen=True)
class Running:
    """Options of a simulation.

    provider      execution provider of onnxruntime
    each_named    put the name of the image into the name of its dump; False refuses several images
    dump_rawdata  fixed model: also write the input bytes of the board
    """

    provider: str = "CPU"
    each_named: bool = False
    dump_rawdata: bool = False


def open_as(
    kind: str,
    path: str | Path,
    weights: str | Path | None = None,
    config: InputConfig | None = None,
    part: Part | None = None,
) -> Model:
    """Return the model to simulate; for ``Offline``, the fixed model inside the offline image.

    Raises ModelError, and ConfigError for a part of a fixed model.
    """
    from sgsdump.errors import ConfigError
    from sgsdump.models.model import WHOLE, open_model

    if kind != "Float" and part:
        raise ConfigError(
            "--model-inputs and --model-outputs apply to float models only; to cut a fixed model, pass "
            "these options to calibrate"
        )
    if kind == "Offline":
        from sgsdump.fixedpoint.sim.readers import read_image

        model = read_image(Path(path))
        print(f"{path}: simulating the fixed model inside this offline image; its hardware commands are not read")
        return model
    outputs = [output.name for output in config.outputs] if config else []
    return open_model(path, weights, staged_outputs=outputs, part=part or WHOLE)


def simulate_all(
    model: Model,
    kind: str,
    source: Source,
    folder: Path | str = ".",
    how: Running = Running(),
) -> Iterator[tuple[str, Simulation]]:
    """Simulate every image in turn, dump by the DebugConfig.txt of ``folder``, and yield name and result.

    kind    ``Float``, ``Fixed`` or ``Offline``
    source  its config is for the built-in preprocessing of a float model; a fixed model stores its own

    Raises ModelError if the model is not of this kind.
    """
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.errors import ConfigError, ModelError
    from sgsdump.files.names import Taken, named, output_paths
    from sgsdump.fixedpoint.quantisation.simulation import fixed_config, simulate
    from sgsdump.models.feeds.data_loader import loaded_feeds
    from sgsdump.models.feeds.feeds import expand, feeds
    from sgsdump.models.fixed_facts import is_fixed
    from sgsdump.models.model import graph_inputs
    from sgsdump.sidecars import debug_config

    is_float = kind == "Float"
    debug = debug_config.read(folder, dumps_fixed=not is_float) or debug_config.DebugConfig()
    if is_float:
        from sgsdump.fixedpoint.quantisation.float_model import simplify

        specs = graph_inputs(model.proto)
        model = simplify(model, lambda: feeds_of(source, specs), outside=True)
    if is_fixed(model) == is_float:
        made = "a fixed model" if is_fixed(model) else "a float model"
        raise ModelError(f"{model.path} is {made}; simulate it with -t {'Fixed' if is_fixed(model) else 'Float'}")
    if how.dump_rawdata and is_float:
        raise ConfigError("--dump-rawdata writes the input bytes of a fixed model; use -t Fixed")
    specs, image = graph_inputs(model.proto), source.image
    files = [] if image is None else [run[0] for run in expand(image, len(specs))]
    count = len(files)
    if count > 1 and debug.dump_tensor and not (debug.do_not_recover or how.each_named):
        raise ConfigError(
            f"{image} holds {count} images, and each dump would overwrite the previous one; give one image, or put "
            f"dumpdonotrecovery into DebugConfig.txt to number the dumps"
        )
    config = source.config if is_float else fixed_config(model)
    raw = not is_float and config is not None
    plain = Path(debug_config.DUMP_NAME)
    if image is None:
        loaded = loaded_feeds(source.script or "", specs, config, normalised=not raw)
        runs = ((named(plain, number), f"feed {number}", feed) for number, feed in loaded)
    else:
        targets = [plain] * count if debug.do_not_recover else output_paths(plain, files)
        fed = feeds(image, source.preprocess, specs, config, normalised=not raw)
        runs = ((target, label, feed) for target, (label, feed) in zip(targets, fed))
    taken = Taken()
    for target, label, feed in runs:
        if how.dump_rawdata:
            _write_rawdata(model, feed, label, taken)
        with TERMINAL.bar("simulate", "layer") as advance:
            simulation = simulate(model, feed, debug.dequant_fixed, debug.eliminate_garbage, advance, how.provider)
            _dump(simulation, debug, target.name, is_float=is_float or debug.dequant_fixed)
        _sum_up(label, simulation)
        yield label, simulation
    if not debug.dump_tensor:
        print("nothing was dumped; to dump, put DebugConfig.txt with the line dumpTensor into this folder")
    print_branches(model)


def _write_rawdata(model: Model, feed: Mapping[str, np.ndarray], label: str, taken: Taken) -> None:
    """Write the input bytes of the board into one file per input, named after its image, in the current folder."""
    from sgsdump.files.atomic_write import replacing
    from sgsdump.files.names import file_stem
    from sgsdump.fixedpoint.quantisation.raw_input import raw_inputs

    buffers = list(raw_inputs(model, feed))
    files = label.split(",") if label.count(",") == len(buffers) - 1 else [label] * len(buffers)
    for (name, data), file in zip(buffers, files):
        path = Path(taken.free(file_stem(Path(file).name), ".bin"))
        with replacing(path) as out:
            out.write(data)
        print(f"{path}: {len(data):,} bytes that the board reads into {name}")


def _dump(simulation: Simulation, debug: DebugConfig, name: str, is_float: bool) -> None:
    """Write the dump that DebugConfig.txt selects; without one, only run the model."""
    from dataclasses import replace

    from sgsdump.dumps.formats.sigmastar import binary
    from sgsdump.dumps.formats.sigmastar import text_dump as sigmastar_text
    from sgsdump.dumps.formats.sigmastar.text_dump import SIM
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.sidecars import parse_net
    from sgsdump.sidecars.debug_config import dump_path

    if not debug.dump_tensor:
        for _ in simulation.records:
            pass
        return
    path = dump_path(debug, name)
    if debug.dump_as_string:
        text = replace(SIM, is_float=is_float, blank=is_float or not debug.eliminate_garbage)
        sigmastar_text.write(simulation.records, path, text)
    else:
        binary.write(simulation.records, path, replace(binary.SIM_SHAPED, is_float=is_float))
    if simulation.net:
        net = path.with_name(f"{path.stem}_parse_net.txt")
        replace_text(net, parse_net.text_of(simulation.net.values()))
        print(f"{net}: shapes and layouts of the buffers, for compare --parse-net")
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
