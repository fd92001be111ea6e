"""``control.json`` in the dump's root, a ``DumpControl`` in plain JSON (``Control``), and by it whether a step or an
operator is dumped (``Selection``).

Whenever the file is replaced the new one counts, within a second.
"""

import json
import os
import re
import time

RELOAD_SECONDS = 1.0
SIDES = ("in", "out")
MOST_NAMES = 5000

# Until a control.json was read.
NOTHING = {
    **{"enabled": False, "content": "structure", "children": True, "mode": "all", "when": "both"},
    **{"layout": "files", "module": ""},
    **dict.fromkeys(("names", "prefixes", "patterns", "models", "ids", "steps", "ranks", "devices"), ()),
}


class Control:
    """stopped  why nothing is dumped any more, or from the beginning; "" as ever.
    matched  the names, beginnings and patterns that named an operator so far.
    now      the DumpControl in force, a dict, as ``fields`` knew it last; ``choice``: its ``Choice``; ``moments``: when
             inputs ("in") and outputs ("out") are dumped, of "before", "after".
    """

    def __init__(self, path):
        self.stopped = ""
        self.matched: set = set()
        self._path = path
        self._version = None
        self._looked = 0.0
        self._use(NOTHING)
        self._read()

    def fields(self):
        """The DumpControl in force, a dict."""
        if time.monotonic() - self._looked >= RELOAD_SECONDS:
            self._read()
        return self.now

    def _read(self):
        self._looked = time.monotonic()
        try:
            status = os.stat(self._path)
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if version == self._version:
                return
            with open(self._path, encoding="utf-8") as file:
                self._use(json.load(file))
            self._version = version
        except (OSError, ValueError) as error:
            if self._version is None:
                self.stopped = f"control.json: {error}"

    def _use(self, fields):
        self.choice = Choice(fields, self.matched)
        self.moments = {side: _moments(fields, side) for side in SIDES}
        self.now = fields


def _moments(fields, side):
    if fields["mode"] not in ("all", "input" if side == "in" else "output"):
        return ()
    if fields["when"] == "inputs-before-outputs-after":
        return ("before",) if side == "in" else ("after",)
    return ("before", "after") if fields["when"] == "both" else (fields["when"],)


class Choice:
    """Whether an operator is among those that a control names; what named one goes into ``matched``."""

    def __init__(self, fields, matched):
        self.named = bool(fields["names"] or fields["prefixes"] or fields["patterns"] or fields["models"])
        self._names = frozenset(fields["names"])
        self._prefixes = [(prefix, prefix.lower()) for prefix in fields["prefixes"]]
        self._patterns = [(pattern, re.compile(pattern)) for pattern in fields["patterns"]]
        self._ids = frozenset(fields["ids"])
        self._children = fields["children"]
        self._is_named = self.named
        self.module = fields["module"]
        self.named = self.named or bool(self.module)
        self._models = [(model, frozenset(names)) for model, names in fields["models"]]
        self._matched = matched

    def __call__(self, name, op_type, ids, model, module=""):
        if self.module:
            if model != self.module and not is_below(module, self.module):
                return False
            self._matched.add(self.module)
        if self._ids:
            if ids not in self._ids and not (self._children and any(ids.startswith(id + "_") for id in self._ids)):
                return False
        elif not self._children and "_" in ids:
            return False
        if not self._is_named:
            return True
        matched = self._matches(name, op_type.lower(), model)
        self._matched.update(matched)
        return bool(matched)

    def _matches(self, name, kind, model):
        """The names, beginnings and patterns that name an operator; ``kind`` is its type in lower case."""
        matched = [name] if name in self._names else []
        for among, names in self._models:
            if among in ("", model) and (not names or name in names):
                matched.append(name)
        short = kind.partition(".")[2]
        matched += [prefix for prefix, lower in self._prefixes if kind.startswith(lower) or short.startswith(lower)]
        return matched + [text for text, pattern in self._patterns if pattern.search(name)]


def is_below(module, path):
    """Whether a module, ``root.layers.1.fc``, is that of the path ``layers.1``, or in it."""
    return (module.partition(".")[2] + ".").startswith(path + ".")


class Selection:
    """Of a process of this ``rank``, by what ``control`` (``sgsdump_control``) says at the time."""

    def __init__(self, control, rank):
        self._control = control
        self.move(rank)
        self._names: set = set()
        self._types: set = set()

    def move(self, rank):
        """The process is of this rank."""
        self._rank = rank
        self._last: tuple = (None, None, False)  # the control, a step, and whether it is dumped

    def step(self, step):
        control = self._control.fields()
        if self._control.stopped:
            return False
        asked, of_step, dumped = self._last
        if asked is not control or of_step != step:
            dumped = self._step(control, step)
            self._last = control, step, dumped
        return dumped

    def _step(self, control, step):
        if self._control.stopped or not control["enabled"]:
            return False
        if control["ranks"] and self._rank not in control["ranks"]:
            return False
        steps = control["steps"]
        return not steps or any(first <= step <= last for first, last in steps)

    def operator(self, step, operator):
        if not self.step(step):
            return False
        choice = self._control.choice
        asked, dumped = operator.chosen
        if asked is not choice:
            if choice.named and len(self._names) < MOST_NAMES:
                self._names.add(operator.name)
                self._types.add(operator.op_type)
            dumped = choice(operator.name, operator.op_type, operator.ids, operator.model, operator.module)
            operator.chosen = choice, dumped
        return dumped

    def moments(self, side):
        """When inputs ("in") or outputs ("out") are dumped: of "before", "after"; as of the operator asked for last."""
        return self._control.moments[side]

    def met(self):
        """Where operators are named: the names and types that ran, and what of the control matched one."""
        if not self._control.choice.named:
            return {}
        met = {"names": self._names, "types": self._types, "matched": self._control.matched}
        return {side: sorted(names) for side, names in met.items()}
