"""``simulate``: dump every layer of a float or fixed model as the SDK's simulator does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.executors.dump import one_of
from sgsdump.fixedpoint.verbs.calibrate import FixedModel
from sgsdump.models.network import Source, feeds_of, named_network

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgsdump.dumps.dump import Dump
    from sgsdump.models.network import Beside, Data


def simulate(
    model: str | Path | FixedModel,
    data: Data,
    *,
    dequantise: bool = True,
    strip: bool = True,
    **beside: Unpack[Beside],
) -> Dump:
    """Dump every layer of a model on one input, as ``sgsdump simulate`` does.

    Parameters
    ----------
    model : str, Path or FixedModel
        Float model, fixed model, or the result of ``calibrate``.
    data : str, Path, array or mapping
        One image, or the arrays of one run, see ``calibrate``.
    dequantise : bool
        For a fixed model: dump float32 values if True (``dequantFixed`` of the SDK), integers if False.
    strip : bool
        For a fixed model: remove the padding of the hardware (``eliminateGarbage`` of the SDK).
    **beside
        ``preprocess``, ``input_config``, ``weight_file`` and other options, as in ``calibrate``. A fixed model needs no
        ``input_config``, because it stores the normalisation of its images.

    Returns
    -------
    Dump
        Tensors of all layers in memory, in the order of execution.

    Raises
    ------
    SgsdumpError
        If a file cannot be read, if the data do not fit the model, or if the model cannot run.

    Examples
    --------
    >>> sample = sgsdump.simulate("net_fixed.onnx", "cat.jpg")  # doctest: +SKIP
    >>> benchmark = sgsdump.simulate("net.onnx", "cat.jpg", input_config="net.ini")  # doctest: +SKIP
    >>> print(sgsdump.compare(sample, benchmark))  # doctest: +SKIP
    """
    from sgsdump.dumps.dump import Dump
    from sgsdump.fixedpoint.quantisation.float_model import simplify
    from sgsdump.fixedpoint.quantisation.simulation import Simulator, fixed_config
    from sgsdump.models.fixed_facts import is_fixed
    from sgsdump.models.model import graph_inputs, open_model
    from sgsdump.progress import bars
    from sgsdump.sidecars import input_config

    network = named_network(model.model.path if isinstance(model, FixedModel) else model, data, beside)
    config = input_config.read(network.input_config) if network.input_config else None
    outputs = [output.name for output in config.outputs] if config else []
    if isinstance(model, FixedModel):
        opened = model.model
    else:
        opened = open_model(network.model, network.weight_file, staged_outputs=outputs, part=network.part)
    fixed = is_fixed(opened)
    config = fixed_config(opened) if fixed else config
    source = Source(network.image, network.preprocess, config, network.data_loader_script, network.feeds)
    feeds = feeds_of(source, graph_inputs(opened.proto))
    if not fixed:
        opened = simplify(opened, lambda: feeds, outside=True)
    label, feed = one_of(feeds)
    if fixed and config is not None:
        feed = feeds.both(0)[2]
    simulator = Simulator(opened, dequantise, strip)
    with bars().bar(f"simulate {label}", "layer") as advance:
        simulation = simulator.run(feed, advance)
        records = list(simulation.records)
    return Dump(records, notes=[f"not dumped: {name}: {reason}" for name, reason in simulation.skipped.items()])
