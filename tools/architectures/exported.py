"""Networks of torch, torchvision and transformers with random weights, exported by torch's two exporters. Needs torch;
what its own package lacks is left out and named."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXPORTERS = ("script", "dynamo")
Made = tuple[Any, tuple[Any, ...], list[str]]
"""A module in evaluation, the inputs of one run, the inputs' names."""
_DECLARED: list[Any] = []


def _torchvision() -> Any:
    """torchvision's models. Where its compiled operators are of another build than torch (CUDA, CPU), the two that its
    import asks for are declared: no network here runs them. Raises ImportError."""
    import torch

    try:
        import torchvision
    except RuntimeError:
        for part in [part for part in sys.modules if part.partition(".")[0] == "torchvision"]:
            del sys.modules[part]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float limit) -> Tensor")
        _DECLARED.append(library)  # what it declares goes with it
        import torchvision
    return torchvision.models


def _vision(name: str, size: int = 64, **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        import torch

        family = _torchvision()
        for part in name.split(".")[:-1]:
            family = getattr(family, part)
        build = getattr(family, name.rpartition(".")[2])
        return build(**options).eval(), (torch.rand(1, 3, size, size),), ["pixels"]

    return make


def _transformer() -> Made:
    """A vision transformer of four narrow layers."""
    import torch

    net = _torchvision().VisionTransformer(32, 8, 4, 4, 64, 128, num_classes=100)
    torch.nn.init.normal_(net.heads.head.weight, std=0.1)  # zeros otherwise
    return net.eval(), (torch.rand(1, 3, 32, 32),), ["pixels"]


def _swin() -> Made:
    """Swin of a quarter of its width and two blocks a stage."""
    import torch

    net = _torchvision().SwinTransformer([4, 4], 24, [2, 2, 2, 2], [1, 2, 4, 8], [7, 7], num_classes=100)
    return net.eval(), (torch.rand(1, 3, 64, 64),), ["pixels"]


def _convnext() -> Made:
    """ConvNeXt of a quarter of its width and two blocks a stage."""
    import torch

    family = _torchvision().convnext
    widths = (24, 48, 96, 192)
    blocks = [family.CNBlockConfig(*ends, 2) for ends in zip(widths, (*widths[1:], None), strict=True)]
    return family.ConvNeXt(blocks, num_classes=100).eval(), (torch.rand(1, 3, 64, 64),), ["pixels"]


def _segmenter() -> Made:
    import torch

    class Masks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _torchvision().segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)

        def forward(self, pixels: Any) -> Any:
            return self.net(pixels)["out"]

    return Masks().eval(), (torch.rand(1, 3, 64, 64),), ["pixels"]


def _sequence(kind: str) -> Callable[[], Made]:
    def make() -> Made:
        import torch

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.cell = getattr(torch.nn, kind)(8, 16, batch_first=True, bidirectional=True)
                self.last = torch.nn.Linear(32, 4)

            def forward(self, sequence: Any) -> Any:
                return self.last(self.cell(sequence)[0][:, -1])

        return Net().eval(), (torch.rand(1, 12, 8),), ["sequence"]

    return make


def _encoder() -> Made:
    import torch

    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2).eval(), (torch.rand(1, 10, 32),), ["sequence"]


def _waves() -> Made:
    import torch

    nn = torch.nn
    blocks = [nn.Conv1d(1, 16, 9, 4, 4), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 9, 4, 4), nn.BatchNorm1d(32),
              nn.SiLU(), nn.ConvTranspose1d(32, 8, 4, 2, 1), nn.Tanh()]  # fmt: skip
    return nn.Sequential(*blocks).eval(), (torch.rand(1, 1, 512) - 0.5,), ["wave"]


def _text(config: str, model: str, **sizes: Any) -> Callable[[], Made]:
    def make() -> Made:
        import torch

        with contextlib.suppress(ImportError):
            _torchvision()  # which transformers imports where it is there
        import transformers

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                settings = getattr(transformers, config)(**sizes)
                settings._attn_implementation = "eager"
                settings.use_cache = False
                self.net = getattr(transformers, model)(settings)

            def forward(self, ids: Any, mask: Any) -> Any:
                return self.net(input_ids=ids, attention_mask=mask)[0]

        return Net().eval(), (torch.randint(0, 50, (1, 12)), torch.ones(1, 12, dtype=torch.int64)), ["ids", "mask"]

    return make


_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 50,
}
MODULES: dict[str, Callable[[], Made]] = {
    "resnet18": _vision("resnet18"),
    "mobilenet_v3": _vision("mobilenet_v3_small"),
    "efficientnet": _vision("efficientnet_b0"),
    "densenet": _vision("DenseNet", growth_rate=16, block_config=(4, 4, 4, 4)),
    "googlenet": _vision("googlenet", init_weights=False, aux_logits=False),
    "shufflenet": _vision("shufflenet_v2_x0_5"),
    "squeezenet": _vision("squeezenet1_1"),
    "mnasnet": _vision("mnasnet0_5"),
    "regnet": _vision("regnet_y_400mf"),
    "convnext": _convnext,
    "vit": _transformer,
    "swin": _swin,
    "segmentation": _segmenter,
    "lstm": _sequence("LSTM"),
    "gru": _sequence("GRU"),
    "encoder": _encoder,
    "waves": _waves,
    "bert": _text("BertConfig", "BertModel", **_SMALL),
    "gpt2": _text("GPT2Config", "GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=32),
    "llama": _text("LlamaConfig", "LlamaForCausalLM", **_SMALL, num_key_value_heads=2),
    "t5_encoder": _text(
        "T5Config", "T5EncoderModel", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=50
    ),
}


def _settle(module: Any, inputs: tuple[Any, ...]) -> None:
    """Give BatchNormalizations the statistics of random inputs: with those that they begin with, the values of deep
    networks with drawn weights die away."""
    import torch

    norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = None  # the mean over all runs
    module.train()
    with torch.no_grad():
        for _ in range(2):
            module(*(torch.randn(8, *array.shape[1:]) for array in inputs))
    module.eval()


def export(name: str, exporter: str, path: Path) -> None:
    """Write ``path``, an ONNX file with the weights inside. Raises what torch raises."""
    import torch

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # neither exporter knows its one operator
    module, inputs, names = MODULES[name]()
    _settle(module, inputs)
    with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"input_names": names, "opset_version": 18 if exporter == "dynamo" else 17}
        if exporter == "dynamo":
            options |= {"dynamo": True, "external_data": False, "verbose": False}
        else:
            options |= {"dynamo": False}
        torch.onnx.export(module, inputs, str(path), **options)
