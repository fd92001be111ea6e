"""Replacement of the inputs of the program's calls by a reference's recorded inputs (``Feed``).

``feed.json`` in the dump's root selects the inputs; ``sgsdump/capture/programs/feed.py`` specifies the file. The
structure of the arguments stays. Its tensors are replaced by new ones of the same type and shape, so that the program's
own tensors are never written to.
"""

import copy
import json
import os
from typing import Any

import torch
from sgsdump_torch_tensors import plain, tensors_in

DEEPEST = 7


class Unfit(Exception):
    """Error: the program and the reference do not match; the text says where."""


def feed_of(session):
    """Return the process's ``Feed``, or None if nothing is fed."""
    path = os.path.join(session.root, "feed.json")
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    return Feed(document, session)


class Feed:
    """Recorded inputs; ``module`` is the path of the only module that is fed, "" for the outermost."""

    def __init__(self, document, session):
        self.module = document["module"]
        self._ranks = document["ranks"]
        self._session = session

    def knows(self, step):
        return str(step) in self._of_rank()

    def calls(self, step, name, args, kwargs):
        """Return the arguments of a call with the reference's tensors. Raises Unfit."""
        rounds = self._of_rank()
        if str(step) not in rounds:
            raise Unfit("the reference has no round {}; available: {}".format(step, _spans(rounds)))
        fed = rounds[str(step)].get(name)
        if fed is None:
            raise Unfit("the reference has no call {} in round {}".format(name, step))
        where = "round {}{}".format(step, ", " + name if name else "")
        own = [tensor for tensor in tensors_in((args, kwargs) if kwargs else args) if name or plain(tensor)]
        if len(own) != len(fed):
            raise Unfit("{}: the program passes {} tensors, the reference {}".format(where, len(own), len(fed)))
        new = [self._tensor(where, slot, tensor, facts) for slot, (tensor, facts) in enumerate(zip(own, fed))]
        places = {id(tensor): other for tensor, other in zip(own, new)}
        return _with(args, places, 0), _with(kwargs, places, 0)

    def _of_rank(self):
        ranks = self._ranks
        rank = str(self._session.rank)
        if rank not in ranks and len(ranks) > 1:
            raise Unfit("the reference has no rank {}".format(rank))
        return ranks[rank] if rank in ranks else next(iter(ranks.values()))

    def _tensor(self, where, slot, own, facts):
        dtype: Any = getattr(torch, str(facts["dtype"]), None)
        both_float = isinstance(dtype, torch.dtype) and dtype.is_floating_point and own.dtype.is_floating_point
        if list(own.shape) != list(facts["shape"]) or not (dtype is own.dtype or both_float):
            raise Unfit(
                "{}: input {} is {}{} in the program, {}{} in the reference; run the program on the same inputs".format(
                    where, slot, str(own.dtype).rpartition(".")[2], list(own.shape), facts["dtype"], facts["shape"]
                )
            )
        if dtype is not own.dtype:
            self._session.trouble("inputs are converted to {} from the reference's {}".format(own.dtype, dtype))
        with open(facts["file"], "rb") as file:
            file.seek(facts["offset"])
            data = bytearray(file.read(facts["size"]))
        if len(data) != facts["size"]:
            raise Unfit("{}: {} is cut off".format(where, facts["file"]))
        if not data:
            return own
        values = torch.frombuffer(data, dtype=dtype).reshape(own.shape).to(device=own.device, dtype=own.dtype)
        return values.requires_grad_(own.requires_grad) if own.requires_grad else values


def _spans(rounds):
    numbers = sorted(map(int, rounds))
    return "rounds {} to {}".format(numbers[0], numbers[-1]) if len(numbers) > 1 else "round {} only".format(*numbers)


def _with(value, places, depth):
    """Return the same structure with other tensors."""
    if isinstance(value, torch.Tensor):
        return places.get(id(value), value)
    if depth > DEEPEST:
        return value
    if isinstance(value, (list, tuple)):
        items = [_with(item, places, depth + 1) for item in value]
        if all(new is old for new, old in zip(items, value)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return _changed(value, dict(value), places, depth)
    if hasattr(type(value), "__dataclass_fields__"):
        names = type(value).__dataclass_fields__
        return _changed(value, {name: getattr(value, name, None) for name in names}, places, depth)
    return value


def _changed(value, parts, places, depth):
    """Return a copy of a dict or dataclass with other tensors, or the object itself if nothing in it is fed."""
    fed = {name: _with(part, places, depth + 1) for name, part in parts.items()}
    if all(fed[name] is parts[name] for name in parts):
        return value
    other = copy.copy(value)
    for name, part in fed.items():
        if isinstance(other, dict):
            other[name] = part
        else:
            object.__setattr__(other, name, part)
    return other
