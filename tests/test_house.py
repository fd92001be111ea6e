"""The house rules that a machine can check: imports point down, families keep to themselves, only commands print."""

import ast
import functools
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import sgsdump
from sgsdump.executors import EXECUTORS
from sgsdump.registry import Registry

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sgsdump"
ELSEWHERE = ("tests", "tools", "benchmarks", "docs")
ROOMS = (  # top down, as the map in sgsdump/__init__.py has them
    *("__main__", "cli", "commands", "verbs", "msit", "torchair", "reports", "tuning", "curing", "quantisation"),
    *("pipeline", "programs"),
    *("executors", "models"),
    *("comparison", "replay", "dumps", "sidecars", "tensors", "files", "notebook", "progress", "registry", "errors"),
)
LIBRARIES_AT_HOME = {
    "matplotlib": ("reports",),
    "tqdm": ("verbs",),
    "onnxruntime": ("executors",),
    "distributed": ("executors",),
    "openvino": ("executors",),
    "ai_edge_litert": ("executors",),
    "tvm": ("executors",),
    "yaml": ("files",),
    "torch": ("msit", "torchair", "programs", "replay"),
    "jinja2": ("reports",),
}
# What a room may import besides the standard library and sgsdump: in files numpy stands for mapped bytes and for the
# arrays of a restricted pickle; yaml is an extra, imported when a YAML file is read.
LIBRARIES_OF_ROOM = {"files": {"yaml", "numpy"}, "registry": set(), "errors": set(), "tensors": {"numpy", "ml_dtypes"}}
LONGEST_CHAIN = 16  # modules, lazy imports included: the target for the core, which plug-ins may exceed
MOST_FIELDS = 12
MOST_PARAMETERS = 6
# Files of sgsdump that run between call and return: what one reads to follow a tensor. Of the 30 of calibrate 8 are the
# plan and the model it is made for, 6 feed pictures, 10 run the model by segments, 6 take ranges.
FILES_OF_COMPARE, FILES_OF_CALIBRATE = 24, 32
# Public signatures: keywords that users write, each forwarded in one record.
LONG_SIGNATURES = {"comparison.compare.compare", "pipeline.pipeline.__init__", "verbs.calibrate.calibrate"}
LONG_RECORDS = {"DumpConfig", "Measuring", "Output"}  # msit's own; options of compare, each a group of its help
# Where options become records.
OPTIONS_ARE_MADE = ("commands/options.py", "commands/sdk/options.py")


def modules():
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def name_of(module):
    """``dumps.formats.arrays.npz``, or ``dumps`` for a room's __init__."""
    return ".".join(module.with_suffix("").parts).removesuffix(".__init__")


NAMES = {name_of(module): module for module in modules()}


@functools.cache
def parsed(module):
    return ast.parse((PACKAGE / module).read_text(encoding="utf-8"))


@functools.cache
def nodes(module):
    return list(ast.walk(parsed(module)))


def of_every_module(rule):
    """The test that ``rule(module)`` finds nothing wrong, in any module."""

    def test():
        wrong = {str(module): found for module in modules() if (found := rule(module))}
        assert not wrong

    test.__doc__ = rule.__doc__
    return test


@functools.cache
def imports(module, typing=False):
    """Dotted names a module imports, also inside functions; ``typing`` those for type checkers too."""
    return list(_imports(nodes(module), typing))


def _imports(nodes, typing):
    checked_only = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in nodes:
        if id(node) in checked_only and not typing:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule.removeprefix("sgsdump.") in NAMES else node.module


def own(module, **which):
    """The modules of sgsdump that a module imports, without the package itself."""
    dotted = (name.removeprefix("sgsdump.") for name in imports(module, **which) if name.startswith("sgsdump."))
    return {name for name in dotted if name in NAMES} - {name_of(module)}


def room_of(name):
    return name.split(".")[0]


@of_every_module
def test_imports_point_down(module):
    room = room_of(name_of(module))
    if module.name == "__init__.py" and len(module.parts) == 1:
        return None
    return {name for name in own(module, typing=True) if ROOMS.index(room_of(name)) < ROOMS.index(room)}


def test_the_map_is_the_tree():
    rooms = {module.parts[0].removesuffix(".py") for module in modules()} - {"__init__"}
    assert rooms == set(ROOMS)
    drawn_map = sgsdump.__doc__.partition("The map of the package")[2]
    drawn = re.findall(r"^    (\w[\w ]*?)(?:  |$)", drawn_map, re.MULTILINE)
    assert " ".join(drawn).split() == list(ROOMS)


def families():
    """The tables of members, wherever one stands: its module and kind -> the modules of its members."""
    tables = {}
    for name in sorted(NAMES):
        if name.startswith("programs.hook") or "Registry" not in (PACKAGE / NAMES[name]).read_text(encoding="utf-8"):
            continue
        module = importlib.import_module(f"sgsdump.{name}")
        values = [value for value in vars(module).values() if isinstance(value, Registry)]
        for table in values:
            tables[f"{name}, {table.kind}"] = _modules_of(table._members, name)
    tables["executors"] = _modules_of(EXECUTORS, "executors")
    return tables


def _modules_of(table, room):
    """The members' modules; a function that stands outside the table's folder is nobody's sibling."""
    modules = {target.partition(":")[0].removeprefix("sgsdump.") for target in table.values()}
    return {module for module in modules if module.startswith(f"{room}.")}


def test_members_of_a_family_do_not_import_each_other():
    """Nor what stands in each other's folder, where a member has one: what two share lies outside both."""
    assert len(families()) >= 9
    wrong = []
    for table, members in families().items():
        homes = {member: _home(member, members) for member in members}
        for name, module in NAMES.items():
            mine = {home for home in homes.values() if _within(name, home)}
            for other in own(module) if mine else ():
                theirs = {home for home in homes.values() if _within(other, home)}
                if theirs - mine:
                    wrong.append(f"{table}: {name} imports {other}")
    assert not wrong


def _home(member, members):
    """The member's own folder within its family's: ``dumps.formats.atb`` of ``dumps.formats.atb.tree``; else itself."""
    common = member.split(".")
    for other in members:
        parts = other.split(".")
        while common != parts[: len(common)]:
            common.pop()
    return ".".join(member.split(".")[: len(common) + 1])


def _within(name, home):
    return f"{name}.".startswith(f"{home}.")


@of_every_module
def test_a_library_stays_in_its_room(module):
    room = room_of(name_of(module))
    return [name for name in imports(module) if room not in LIBRARIES_AT_HOME.get(name.split(".")[0], (room,))]


@of_every_module
def test_the_lowest_rooms_need_no_library(module):
    allowed = LIBRARIES_OF_ROOM.get(room_of(name_of(module)))
    if allowed is None:
        return None
    return {name.split(".")[0] for name in imports(module)} - {*sys.stdlib_module_names, "sgsdump"} - allowed


@of_every_module
def test_only_commands_print(module):
    """Or ask; what the user's words mean is never left to Python."""
    if room_of(name_of(module)) in ("commands", "cli", "__main__"):
        return None
    calls = [node for node in nodes(module) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [node.lineno for node in calls if node.func.id in ("print", "input", "eval", "exec")]


@of_every_module
def test_only_commands_know_argparse(module):
    """And of a command only ``run``: it makes one record of its options, and what it calls knows no Namespace."""
    if "argparse" not in imports(module) or module.as_posix() in OPTIONS_ARE_MADE:
        return None
    if room_of(name_of(module)) not in ("commands", "cli"):
        return ["argparse"]
    wrong = []
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef) and node.name not in ("run", "options_of", "exec_options"):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            wrong += [
                f"{node.name}:{node.lineno}"
                for a in arguments
                if a.annotation and "Namespace" in ast.unparse(a.annotation)
            ]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("argparse.Namespace", "Namespace"):
            wrong.append(f"made in line {node.lineno}")
    return wrong


@of_every_module
def test_a_record_has_few_fields(module):
    records = [node for node in nodes(module) if isinstance(node, ast.ClassDef) and node.name not in LONG_RECORDS]
    fields = {node.name: sum(isinstance(part, ast.AnnAssign) for part in node.body) for node in records}
    return {name: count for name, count in fields.items() if count > MOST_FIELDS}


@of_every_module
def test_a_function_with_many_parameters_takes_a_record(module):
    wrong = {}
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            if count > MOST_PARAMETERS and f"{name_of(module)}.{node.name}" not in LONG_SIGNATURES:
                wrong[node.name] = count
    return wrong


def test_the_longest_chain_of_imports():
    """From a command down to the last file it needs, lazy imports included."""

    @functools.cache
    def chain(name):
        return (*max((chain(below) for below in own(NAMES[name])), key=len, default=()), name)

    sys.setrecursionlimit(10_000)
    longest = max(map(chain, NAMES), key=len)
    assert len(longest) <= LONGEST_CHAIN, " <- ".join(longest)


def test_a_module_with_one_importer_says_why_it_stands_alone():
    """In the first line of its docstring, after ``Apart:``, unless a table or users name it."""
    importers = {name: set() for name in NAMES}
    for name in NAMES:
        for below in own(NAMES[name], typing=True):
            importers[below].add(name)
    members = set().union(*families().values())
    wrong = []
    for name, above in importers.items():
        if len(above) == 1 and name not in members and NAMES[name].name != "__init__.py":
            first = (ast.get_docstring(parsed(NAMES[name])) or "").split("\n\n")[0]
            if "Apart" not in first:
                wrong.append(name)
    assert not wrong, len(wrong)


def test_what_is_imported_from_elsewhere_is_there():
    """By tests, tools, benchmarks and documented programs: a module that moves takes them along."""
    there = {name_of(module): defined(module) for module in modules()}
    missing = []
    for file in [path for folder in ELSEWHERE for path in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sgsdump."):
                module = node.module.removeprefix("sgsdump.")
                names = {alias.name for alias in node.names if f"{module}.{alias.name}" not in NAMES}
                missing += [f"{file.name}:{node.lineno} {module} {name}" for name in names - there.get(module, set())]
    assert not missing


def defined(module):
    """The names that a module gives to something, at its top or within."""
    names = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_imports_make_no_circle():
    """Lazy imports and those for type checkers included."""
    edges = {
        name: own(module, typing=True)
        for name, module in NAMES.items()
        if len(module.parts) > 1 or module.stem != "__init__"
    }
    done: set = set()
    while len(done) < len(edges):
        ready = {name for name, targets in edges.items() if name not in done and targets & edges.keys() <= done}
        assert ready, f"a circle among {sorted(set(edges) - done)}"
        done |= ready


WALK = """
import json, sys, threading
from pathlib import Path
import sgsdump
{setup}
files = set()
def profile(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(package):
        files.add(code.co_filename)
package = str(Path(sgsdump.__file__).parent)
call()  # what is imported at the first call is not walked
threading.setprofile(profile)
sys.setprofile(profile)
call()
sys.setprofile(None)
print(json.dumps(sorted(Path(file).relative_to(package).as_posix() for file in files)))
"""


def files_of(setup):
    """The files of sgsdump that run between ``call`` and its return, in any thread."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, "-c", WALK.format(setup=setup)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


COMPARE = """
dumps = Path("tests/golden/sigmastar/dumps")
sample, benchmark = (
    sgsdump.open_dump(dumps / name / "sigma_outtensor_dump.bin")
    for name in ("tiny_fixed_a_elim_dequant", "tiny_fixed_h_elim_dequant_nofuse")
)
call = lambda: sgsdump.compare(sample, benchmark)
"""
CALIBRATE = """
import tempfile
import numpy as np
from PIL import Image
from small_nets import residual_net
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import graph_inputs
from sgsdump.quantisation.calibration import calibrate
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput
model = residual_net()
config = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),), (ModelOutput("prob", True),))
picture = Path(tempfile.mkdtemp()) / "one.png"
Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(picture)
feeds = PictureFeeds(str(picture), None, tuple(graph_inputs(model.proto)), config)
call = lambda: calibrate(model, feeds, config, "L1")
"""


def test_following_a_tensor_through_compare_opens_few_files():
    """Of two fixed dumps of one network; more where names differ or the dumps are of two formats."""
    assert len(files := files_of(COMPARE)) <= FILES_OF_COMPARE, files


def test_following_a_model_through_calibrate_opens_few_files():
    """At L1, of one picture."""
    assert len(files := files_of(CALIBRATE)) <= FILES_OF_CALIBRATE, files


def test_the_list_of_modules_is_what_the_modules_say():
    spec = importlib.util.spec_from_file_location("module_index", ROOT / "tools" / "module_index.py")
    index = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(index)
    assert index.INDEX.read_text(encoding="utf-8") == index.page(), "run: python tools/module_index.py"
