"""How a process begins and ends: the numbers it has, and who is told when it is forked and when it leaves."""

import atexit
import functools
import os
import sys

NEXT_PROGRAM = 10_000_000  # more than any process's number
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


def own_number(root):
    """The process's number; another where a program had it before: one that this was executed by, or long ended."""
    number = os.getpid()
    while os.path.exists(os.path.join(root, "processes", str(number))):
        number += NEXT_PROGRAM
    return number


def rank():
    return _number_in(RANKS)


def device():
    return _number_in(LOCAL_RANKS)


def _number_in(names):
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


class End:
    """Calls ``finish`` when the process comes to its end, and ``begin`` in each that is forked from it.

    A process ends by atexit's functions; by ``os._exit``; or, of ``multiprocessing``, by its finalizers alone.
    """

    def __init__(self, begin, finish):
        self._finish = finish
        self._knows_multiprocessing = False
        atexit.register(finish)
        self._tell_exit()
        self._tell_multiprocessing()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._tell_multiprocessing, after_in_child=begin)

    def _tell_exit(self):
        """A program that leaves by ``os._exit`` has come to its end."""
        leave = os._exit

        @functools.wraps(leave)
        def _exit(*args, **kwargs):
            self._finish()
            leave(*args, **kwargs)

        os._exit = _exit

    def _tell_multiprocessing(self):
        """Its processes may end without atexit, but not without its own finalizers, which each begins without."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._knows_multiprocessing:
            self._knows_multiprocessing = True
            util.Finalize(None, self._finish, exitpriority=-100)
            util.register_after_fork(self, lambda end: util.Finalize(None, end._finish, exitpriority=-100))
