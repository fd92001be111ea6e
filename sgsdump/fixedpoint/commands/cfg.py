"""Write a template of a configuration file, or list the templates if no NAME is given.

examples:
  sgsdump cfg
  sgsdump cfg DebugConfig.txt
  sgsdump cfg input_config.ini
  sgsdump cfg input_config.ini -m net.onnx -n preprocess.py
  sgsdump cfg input_config.ini -m net.onnx -o models/net.ini

the files:
  DebugConfig.txt selects what sgsdump simulate dumps. input_config.ini has the
  inputs of the model, their mean, std_value and colour order, and the outputs.
  Existing files are never overwritten.

input_config.ini of a model (-m):
  The file lists all inputs and outputs of the model.
  Colour order, mean and std_value come from running the preprocess file (-n) on
  images of one colour. If an image (-i) is given, the settings are checked on
  this image. diagnose infers the same settings.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import add_image, add_model, add_output, add_preprocess, part_of, record

if TYPE_CHECKING:
    from sgsdump.models.model import Part

RARE = ("--model-inputs", "--model-outputs")
NAME = "input_config.ini"


@dataclass(frozen=True)
class Options:
    name: str | None
    output: Path | None
    model: Path | None
    weight_file: Path | None
    part: Part
    image: str | None
    preprocess: str | None

    @property
    def target(self) -> Path:
        """File to write: the given file, or NAME in the given folder."""
        name = str(self.name)
        if self.output is None:
            return Path(name)
        return self.output / name if self.output.is_dir() else self.output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="template to write (default: list all templates)")
    output = parser.add_argument_group("output")
    add_output(output, "file to write, or a folder for the file (default: NAME in the current folder)", "PATH")
    model = parser.add_argument_group("input_config.ini of a model")
    add_model(model, required=False)
    add_image(model, "image on which the inferred settings are checked (default: a generated image)")
    add_preprocess(model)


def run(args: argparse.Namespace) -> int:
    from sgsdump.errors import ConfigError

    options = record(Options, args, part=part_of(args))
    if options.model is not None:
        return _write_input_config(options)
    if options.preprocess or options.image or options.weight_file or options.part:
        raise ConfigError("-n, -i, --weight-file and --model-outputs require a model; give the model with -m")
    files = {file.name: file for file in sorted(templates().iterdir()) if file.suffix in (".txt", ".ini")}
    if options.name is None:
        if options.output is not None:
            raise ConfigError(f"choose the template to write to {options.output}: {', '.join(files)}")
        print("\n".join(files))
        return 0
    if options.name not in files:
        raise ConfigError(f"there is no template {options.name}; available: {', '.join(files)}")
    write_new(options.target, files[options.name].read_bytes())
    print(f"{options.target} written")
    return 0


def _write_input_config(options: Options) -> int:
    """Write input_config.ini of a model and print the inferred settings."""
    from sgsdump.errors import ConfigError
    from sgsdump.fixedpoint.verbs.network import open_float_model
    from sgsdump.models.feeds.assumed_config import assume_config, ini_text, made_up_run
    from sgsdump.models.feeds.feeds import expand
    from sgsdump.models.model import graph_inputs
    from sgsdump.sidecars.input_config import InputConfig

    assert options.model is not None
    if options.name != NAME:
        raise ConfigError(
            f"{options.name}: with -m, cfg writes only input_config.ini; run: sgsdump cfg {NAME} -m "
            f"{options.model} -o FILE"
        )
    model = open_float_model(options.model, options.weight_file, InputConfig(()), options.part)
    specs = graph_inputs(model.proto)
    outputs = [output.name for output in model.proto.graph.output]
    with tempfile.TemporaryDirectory() as folder:
        run = expand(options.image, len(specs))[0] if options.image else made_up_run(specs, Path(folder))
        assumed = assume_config(specs, outputs, options.preprocess, run)
    write_new(options.target, ini_text(assumed.config).encode())
    print(f"{options.target} written")
    for sentence in assumed.sentences[1:]:
        print(f"assumed: {sentence}")
    return 0


def templates() -> Path:
    """Return the folder of the templates: ``sgsdump/cfg`` if installed, ``cfg`` next to the package in a checkout."""
    package = Path(__file__).parents[2]
    installed = package / "cfg"
    return installed if installed.is_dir() else package.parent / "cfg"


def write_new(path: Path, content: bytes) -> None:
    """Write a new file. Raises OutputError if it exists or cannot be written."""
    from sgsdump.errors import OutputError
    from sgsdump.files.atomic_write import check_file

    if not path.exists():
        check_file(path)
    try:
        with open(path, "xb") as file:
            file.write(content)
    except FileExistsError:
        raise OutputError(
            f"{path} already exists and was not changed; move the file away, or run the command in another folder"
        ) from None
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
