"""Conformance: an executor is initialised, loaded, run and released in this order, by errors too."""

from __future__ import annotations

from sgsdump.errors import ConfigError, ModelError
from sgsdump.executors.conformance.harness import Harness, assert_raises
from sgsdump.executors.conformance.models import (
    OUTPUTS,
    small_feed,
    small_model,
    small_outputs,
)


class LifeCycle(Harness):
    def test_calls_out_of_order_are_refused(self) -> None:
        executor = self.make()
        feed = small_feed()
        assert_raises(ConfigError, "load_model", lambda: executor.load_model(small_model()))
        assert_raises(ConfigError, "execute", lambda: executor.execute(OUTPUTS, feed))
        executor.release()
        executor.init(self.configs)
        assert_raises(ConfigError, "init", lambda: executor.init(self.configs))
        assert_raises(ConfigError, "execute", lambda: executor.execute(OUTPUTS, feed))
        executor.load_model(small_model())
        executor.execute(OUTPUTS, feed)
        executor.release()
        assert_raises(ConfigError, "execute", lambda: executor.execute(OUTPUTS, feed))
        assert_raises(ConfigError, "load_model", lambda: executor.load_model(small_model()))

    def test_release_can_be_called_twice_and_init_may_follow(self) -> None:
        executor = self.make()
        for _ in range(2):
            executor.init(self.configs)
            executor.load_model(small_model())
            self.check(executor.execute(["scores"], small_feed()), ["scores"], small_outputs(small_feed()))
            executor.release()
            executor.release()

    def test_a_failure_releases(self) -> None:
        """Leaving the ``with`` block by an error releases exactly once."""
        executor = self.make()
        released = []
        original = executor.on_release

        def counted() -> None:
            released.append(1)
            original()

        executor.on_release = counted  # type: ignore[method-assign]
        executor.init(self.configs)

        def fail() -> None:
            with executor:
                executor.load_model(small_model())
                executor.execute(["nothing of the kind"], small_feed())

        assert_raises(ModelError, "nothing of the kind", fail)
        executor.release()
        assert released == [1]
        assert_raises(ConfigError, "execute", lambda: executor.execute(OUTPUTS, small_feed()))
