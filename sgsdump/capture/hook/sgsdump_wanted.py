"""What is dumped: which steps, and which operators of a step."""

MOST_SEEN = 5000


class Wanted:
    """Of a process of this ``rank``, by what ``control`` (``sgsdump_control``) says at the time."""

    def __init__(self, control, rank):
        self._control = control
        self._rank = rank
        self._names: set = set()
        self._types: set = set()

    def step(self, step):
        control = self._control.fields()
        if self._control.stopped or not control["enabled"]:
            return False
        if control["ranks"] and self._rank not in control["ranks"]:
            return False
        steps = control["steps"]
        return not steps or any(first <= step <= last for first, last in steps)

    def operator(self, step, operator):
        if not self.step(step):
            return False
        chosen = self._control.chosen
        asked, wanted = operator.wanted
        if asked is not chosen:
            if chosen.named and len(self._names) < MOST_SEEN:
                self._names.add(operator.name)
                self._types.add(operator.op_type)
            wanted = chosen(operator.name, operator.op_type, operator.ids, operator.model)
            operator.wanted = chosen, wanted
        return wanted

    def moments(self, side):
        """When inputs ("in") or outputs ("out") are dumped: of "before", "after"; as of the operator asked for last."""
        return self._control.moments[side]

    def seen(self):
        """Where operators are named: the names and types that ran, and what of the control matched one."""
        if not self._control.chosen.named:
            return {}
        seen = {"names": self._names, "types": self._types, "matched": self._control.matched}
        return {side: sorted(names) for side, names in seen.items()}
