"""Dumps of modules and operators with their dataflow, as ``exec`` records them, made in memory."""

from sgsdump import Dump, Record, Tensor
from sgsdump.dumps.dump import Operator


class Run:
    """A dump of modules and operators in the order in which they run."""

    def __init__(self):
        self.records, self.network, self.numbers = [], {}, {}

    def number(self, values):
        return self.numbers.setdefault((values.shape, values.tobytes()), len(self.numbers))

    def add(self, module, kind, inputs, output, weights=(), is_module=False, inner=None):
        """An operator, or a module around those that ``inner`` adds; its output."""
        index = len(self.network)
        own = [path for path in self.network.values() if path.module == module]
        name = f"{module}/{kind}_{len(own)}"
        values = {("in", slot): self.number(array) for slot, array in enumerate(inputs)}
        names = {("in", slot): f"{module}.{weight}" for slot, weight in weights}
        self.network[index] = Operator(module, kind, is_module, values | {("out", 0): self.number(output)}, names)
        for slot, array in enumerate(inputs):
            self.records.append(Record("in", slot, index, kind, Tensor.of(f"{name}/input.{slot}", array)))
        if inner is not None:
            inner()
        self.records.append(Record("out", 0, index, kind, Tensor.of(f"{name}/output.0", output)))
        return output

    def dump(self):
        return Dump(self.records, "rounds", network=lambda: self.network)
