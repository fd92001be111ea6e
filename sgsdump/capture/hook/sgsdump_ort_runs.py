"""Runs of onnxruntime: what is fed is written before, what comes out afterwards."""

from typing import Any

from sgsdump_ort_sessions import MARK, given, tell
from sgsdump_ort_values import as_fed, saved


def run(session, original, self, *args, **kwargs):
    """``run`` and ``run_with_ort_values``."""
    feeds = given(args, kwargs, 1, "input_feed", "input_dict_ort_values")
    capture, step = _step(session, self)
    if step is None or not hasattr(feeds, "items"):
        return original(self, *args, **kwargs)
    _begin(session, capture, step, self, feeds)
    results = _ran(session, capture, step, original, self, *args, **kwargs)
    names = given(args, kwargs, 0, "output_names") or [output.name for output in self.get_outputs()]
    _end(session, capture, step, zip(names, results))
    return results


def run_bound(session, original, self, *args, **kwargs):
    """``run_with_iobinding``."""
    binding = given(args, kwargs, 0, "iobinding")
    capture, step = _step(session, self)
    if step is None or not hasattr(binding, "get_outputs"):
        return original(self, *args, **kwargs)
    bound = binding.__dict__.get(MARK, {})
    _begin(session, capture, step, self, bound.get("inputs", {}))
    results = _ran(session, capture, step, original, self, *args, **kwargs)
    try:
        outputs = list(zip(bound.get("outputs", {}), binding.get_outputs()))
    except Exception as error:
        outputs = []
        session.trouble(f"{capture.name}: outputs are not captured: {error}")
    _end(session, capture, step, outputs)
    return results


def unseen(session, name, original, self, *args, **kwargs):
    session.trouble(f"{name} is not captured: its runs are not dumped")
    return original(self, *args, **kwargs)


def bind(side, original, self, name, *args, **kwargs):
    result = original(self, name, *args, **kwargs)
    values = (*args, *kwargs.values())
    value: Any = values[0] if len(values) == 1 else (args, kwargs)
    if hasattr(value, "flags") and not value.flags.c_contiguous:
        value = value.copy()  # onnxruntime has taken its own copy by now
    self.__dict__.setdefault(MARK, {}).setdefault(side, {})[name] = value
    return result


def clear(side, original, self, *args, **kwargs):
    self.__dict__.get(MARK, {}).pop(side, None)
    return original(self, *args, **kwargs)


def _wants(session, capture, step):
    if not session.wants_step(step):
        return False
    control = session.control
    if control["content"] == "structure" and step:
        return False
    if control["devices"] and session.device not in control["devices"]:
        return False
    if not control["models"] or control["names"] or control["prefixes"] or control["patterns"]:
        return True
    return any(model in ("", capture.name, capture.name.partition("/")[0]) for model, _ in control["models"])


def _step(session, self):
    """The session's capture and the number of the run that begins; None for both where it is not dumped."""
    capture = self.__dict__.get(MARK)
    if capture is not None:
        step = next(capture.steps)
        session.begins(step)
        if _wants(session, capture, step):
            return capture, step
    return None, None


def _ran(session, capture, step, original, self, *args, **kwargs):
    try:
        return original(self, *args, **kwargs)
    except Exception as error:
        session.line(event="ort_end", session=capture.number, step=step, failed=str(error)[:1000])
        raise


def _begin(session, capture, step, self, feeds):
    """Write what is fed, before the run: of one that fails or is killed it is there."""
    try:
        tell(session, capture, self)
        fed = [(name, as_fed(self, name, value)) for name, value in feeds.items()]
        lines = [saved(session, capture, step, f"in{i}", *feed) for i, feed in enumerate(fed)]
        session.line(event="ort_run", session=capture.number, step=step, feeds=lines)
    except Exception as error:
        session.trouble(f"{capture.name}: step {step} is not captured: {type(error).__name__}: {error}")


def _end(session, capture, step, results):
    try:
        lines = [saved(session, capture, step, f"out{i}", *result) for i, result in enumerate(results)]
        session.line(event="ort_end", session=capture.number, step=step, outputs=lines)
    except Exception as error:
        session.trouble(f"{capture.name}: outputs of step {step} are not captured: {type(error).__name__}: {error}")
