"""Pairing by all that a user gives: name maps, mapping files and rules.

The surest goes first: a name map, then mapping files of operators and layers, then rules. A later one never overrides
an earlier one. A tensor that is given several partners gets none: that is reported, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

from sgsdump.comparison.naming.layer_names import pairs_by_layer
from sgsdump.comparison.naming.pairs_by_link import pairs_by_links
from sgsdump.comparison.naming.pairs_by_name_map import pairs_by_names
from sgsdump.comparison.naming.pairs_by_rule import pairs_by_rules
from sgsdump.comparison.naming.sources import NameSources
from sgsdump.comparison.naming.unsettled import Unsettled
from sgsdump.comparison.pairing.alignment import Given, compared
from sgsdump.dumps.dump import Dump


def pairs_by_map(sample: Dump, benchmark: Dump, names: Mapping[str, str] | NameSources, inputs: bool = False) -> Given:
    """The pairs that a name map (benchmark name -> sample name) or all of a user's name sources make.

    Raises ConfigError for a map, a file of operators or rules that fit no tensor of the two dumps.
    """
    sources = names if isinstance(names, NameSources) else NameSources(names)
    state = Unsettled(compared(sample, inputs), compared(benchmark, inputs))
    if sources.names:
        pairs_by_names(state, sources.names)
    if sources.links:
        pairs_by_links(state, sources.links, (_is_pipeline(sample), _is_pipeline(benchmark)))
    if sources.layers is not None:
        pairs, empty = pairs_by_layer(sample, state.sample, benchmark, state.benchmark, sources.layers)
        state.take(pairs)
    if sources.rules:
        pairs_by_rules(state, sources.rules)
    if sources.layers is not None:
        # the same name elsewhere in the network is another tensor
        state.apart.update({id(record): empty[id(record)] for record in state.sample if id(record) in empty})
        state.drop_settled()
    return Given(tuple(state.pairs), state.apart, state.reasons)


def _is_pipeline(dump: Dump) -> bool:
    return dump.format == "dump_info_dir"
