"""The lines of the index that tell of operators and their tensors: ``Lines``.

What they say is said once: what an operator is, in the first line of its ``place``; what the values of a tensor are,
where they come first in a step. All other lines have numbers::

    {"place": 7, "model": "Net", "id": "3_1", "module": "root.fc", "op": …, "type": …, "folders": […]}
    {"step": 0, "at": 7, "side": "in", "moment": "before", "values": [12, {"value": 13, "dtype": …, "shape": …}, …]}
    {"step": 0, "at": 7, "event": "operator", "param": {…}, "nanoseconds": null}

"unwritten" stands with values to whose memory nothing has written yet: they are whatever was there, and not dumped.
Of the file of values that are described there is::

    "file": null     where it has none (then perhaps "why"); else its name follows from its place
    "unreadable"     with it, where there are values but they could not be read
    "stored"         the file below ``processes/`` that has it; without, the file is a header made of what is described
    "link"           the earlier file that a symbolic link is to lead to;  "same": that stands for this one

``sgsdump/dumps/formats/atb/hooked.py`` reads it as a line for each input and output.
"""

import itertools
import threading
from json.encoder import encode_basestring_ascii as quoted

from sgsdump_header import ATB_TYPES
from sgsdump_records import param_text

MOST_IN_LINE = 1000


class Lines:
    """By what ``control`` says at the time; values go to ``store``, what the user has to know to ``trouble(text)``."""

    def __init__(self, control, store, device, trouble):
        self._control = control
        self._store = store
        self._device = device
        self._trouble = trouble

    def begin(self, pid, index):
        """The process's number and its index; once more in one that was forked."""
        self._pid = pid
        self._index = index
        self._places = itertools.count()
        self._lock = threading.Lock()
        self._era: tuple = (None, None)  # the control and the index that what is told is told for

    def tensor(self, step, operator, side, slot, moment, values, data=None):
        """What the line of an operator's inputs or outputs says of one of them: its number, where it was described in
        this step. Its values are stored where they are not yet.

        data     the elements in C order (bytes, or whatever memoryview takes), or a function that gives them and is
                 only called when they are written.
        """
        era = self._era
        if era[0] is not self._control.now:
            era = self._era = (self._control.now, self._index)
        if values.told == step and values.era is era:
            return values.word
        if values.text is None or values.era is not era:
            values.era = era
            values.text = self._described(step, operator, side, slot, moment, values, data)
        if values.number is not None:
            values.told = step
        return values.text

    def tensors(self, step, operator, side, moment, told):
        """The line of an operator's inputs or outputs, of each what ``tensor`` gave."""
        place = operator.number if operator.index is self._index else self._place(operator)
        start = f'{{"step": {step}, "at": {place}, "side": "{side}", "moment": "{moment}", '
        if len(told) <= MOST_IN_LINE:
            return f'{start}"values": [{", ".join(told)}]}}\n'
        parts = range(0, len(told), MOST_IN_LINE)
        return "".join(
            f'{start}"slot": {first}, "values": [{", ".join(told[first : first + MOST_IN_LINE])}]}}\n'
            for first in parts
        )

    def operator(self, step, operator, param=None, nanoseconds=None):
        """The line of an operator that ran."""
        text = "null" if param is None else param_text(param)
        taken = "null" if nanoseconds is None or not self._control.now.get("timing") else nanoseconds
        place = operator.number if operator.index is self._index else self._place(operator)
        return f'{{"step": {step}, "at": {place}, "event": "operator", "param": {text}, "nanoseconds": {taken}}}\n'

    def _place(self, operator):
        """The number of an operator, which the index knows."""
        if operator.index is not self._index:
            with self._lock:
                if operator.index is not self._index:
                    operator.number = next(self._places)
                    self._index.say(operator.line())
                    operator.index = self._index
        return operator.number

    def _described(self, step, operator, side, slot, moment, values, data):
        control, device = self._control.now, self._device if values.device is None else values.device
        if control["devices"] and device not in control["devices"]:
            return "null"
        content, stats = control["content"], "null"
        if content == "stats":
            stats = values.stats or "null"
            if values.beyond:
                self._trouble(f"{operator.name}: the sum of squares of a tensor is beyond a double, its l2norm is inf")
        if content == "structure" or self._control.stopped:
            file = _without("")
        elif values.why:
            file = f'{_without(values.why)}, "unreadable": true'
        elif values.dtype not in ATB_TYPES:
            file = _without(f"ATB has no number for {values.dtype}")
        elif values.unwritten:
            file = ""
        elif content == "stats" and not values.stats:
            file = _without("it has no statistics")
        elif content == "tensor":
            place = f"{step}/{'/'.join(operator.folders)}/{moment}/{side}tensor{slot}.bin"
            file = self._stored(control, f"tensors/{device}_{self._pid}/{place}", values, data)
        else:
            file = ""
        named = f', "weight": {quoted(values.weight)}' if values.weight else ""
        named += ', "unwritten": true' if values.unwritten else ""
        return f'{{{values.facts()}, "stats": {stats}, "device": {device}{named}{file}}}'

    def _stored(self, control, path, values, data):
        """What is said of the file of values; ``path`` is their place in the tree."""
        if values.stored is None:
            why = self._store.keep(control, path, values, data)
            if why is not None:
                return _without(why)
        kind = {"index": "same", "symlink": "link"}.get(control["links"])
        first = "" if kind is None else f', "{kind}": "{values.first}"'
        return f', "stored": "{values.stored}"{first}'


def _without(why):
    """What is said of values that have no file."""
    return f', "file": null, "why": {quoted(why)}' if why else ', "file": null'
