"""TorchAir's graph mode: dump the operators of a ``torch.compile``d program with TorchAir's own options.

::

    import sgsdump.capture.torchair as torchair             # was: import torchair

    config = torchair.CompilerConfig()
    config.dump_config.enable_dump = True
    model = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))

The captured graph runs operator by operator on the program's own device and returns the program's own results.
docs/dump_a_compiled_program.md lists all options.

options.py    CompilerConfig and its dump_config
plan.py       selection and destination of a dump, from the options and the JSON file, which may change during the run
scope.py      with-blocks whose operators are dumped
operators.py  the captured graph as aten operators, and the choice of operators to dump
dumped.py     runs the operators one by one and dumps their tensors
tree.py       the result tree and its index; values.py: a tensor's bytes and statistics
"""

from sgsdump.capture.torchair import scope
from sgsdump.capture.torchair.backend import get_npu_backend
from sgsdump.capture.torchair.operators import logger
from sgsdump.capture.torchair.options import CompilerConfig

__all__ = ["CompilerConfig", "get_npu_backend", "logger", "scope"]
