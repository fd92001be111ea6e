"""Reader of ``control.json``, a ``DumpControl`` as plain JSON, and the decision whether a step or operator is dumped.

``Control`` reads the file and reads it again within a second of a change; ``Selection`` decides.
"""

import json
import os
import re
import time

RELOAD_SECONDS = 1.0
SIDES = ("in", "out")
MOST_NAMES = 5000

# Values until a control.json was read.
NOTHING = {
    **{"enabled": False, "content": "structure", "children": True, "mode": "all", "when": "both"},
    **{"layout": "files", "module": ""},
    **dict.fromkeys(("names", "prefixes", "patterns", "models", "ids", "steps", "ranks", "devices"), ()),
}


class Control:
    """State of the dump's control.

    stopped  reason why nothing is dumped, or is not dumped any more; "" otherwise.
    matched  names, beginnings and patterns that have selected an operator so far.
    now      latest DumpControl, a dict; ``choice``: its ``Choice``; ``moments``: "before", "after" for "in" and "out".
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
        """Return the current DumpControl, a dict."""
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
    """Test whether a control selects an operator; adds what selected it to ``matched``."""

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
        """Return the names, beginnings and patterns that select an operator; ``kind`` is its type in lower case."""
        matched = [name] if name in self._names else []
        for among, names in self._models:
            if among in ("", model) and (not names or name in names):
                matched.append(name)
        short = kind.partition(".")[2]
        matched += [prefix for prefix, lower in self._prefixes if kind.startswith(lower) or short.startswith(lower)]
        return matched + [text for text, pattern in self._patterns if pattern.search(name)]


def is_below(module, path):
    """Return whether a module, ``root.layers.1.fc``, is at the path ``layers.1`` or inside it."""
    return (module.partition(".")[2] + ".").startswith(path + ".")


class Selection:
    """Decisions for a process of this ``rank``, by the current ``control``."""

    def __init__(self, control, rank):
        self._control = control
        self.move(rank)
        self._names: set = set()
        self._types: set = set()

    def move(self, rank):
        """Set the rank of the process."""
        self._rank = rank
        self._last: tuple = (None, None, False)  # control, step, decision

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
        """Return the moments, "before" and "after", at which "in" or "out" is dumped, as of the last operator."""
        return self._control.moments[side]

    def met(self):
        """Return names and types that ran, and what selected an operator; {} if nothing selects operators."""
        if not self._control.choice.named:
            return {}
        met = {"names": self._names, "types": self._types, "matched": self._control.matched}
        return {side: sorted(names) for side, names in met.items()}
