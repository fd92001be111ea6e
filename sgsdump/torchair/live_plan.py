"""The plan of a program that runs: its JSON file may be edited while it runs."""

from __future__ import annotations

import atexit
import time
from pathlib import Path

from sgsdump.errors import SgsdumpError
from sgsdump.torchair.choice import Names
from sgsdump.torchair.log import logger
from sgsdump.torchair.options import DumpOptions
from sgsdump.torchair.plan import Plan, plan_of
from sgsdump.torchair.tree import Tree

RELOAD_SECONDS = 1.0


class LivePlan:
    """``now()`` is the plan, its JSON file read again when that has changed, at most every second."""

    def __init__(self, options: DumpOptions):
        self._options = options
        self._file = options.given.get("dump_config_path")
        self._changed = self._time()
        self._looked = time.monotonic()
        self.plan = plan_of(options)
        for note in self.plan.notes:
            logger.warning("%s", note)
        self.tree = Tree(self.plan.path)
        self.names = Names()
        atexit.register(self._at_exit)

    def now(self) -> Plan:
        if self._file and time.monotonic() - self._looked >= RELOAD_SECONDS:
            self._looked = time.monotonic()
            if (changed := self._time()) != self._changed:
                self._changed = changed
                self._reload()
        return self.plan

    def _at_exit(self) -> None:
        self.names.tell()
        if self.plan.control.enabled and not (self.tree.used or self.tree.stopped):
            logger.warning(
                "nothing was dumped to %s: no compiled graph ran, or none of its steps and operators was asked for",
                self.plan.path,
            )

    def _reload(self) -> None:
        try:
            self.plan = plan_of(self._options)
        except SgsdumpError as error:
            logger.warning("%s; what was set before goes on", error)
            return
        if self.plan.path != self.tree.path:
            self.tree = Tree(self.plan.path)
        logger.info("%s was changed and is read again", self._file)

    def _time(self) -> int | None:
        try:
            return Path(self._file).stat().st_mtime_ns if self._file else None
        except OSError:
            return None
