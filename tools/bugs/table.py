"""The real bugs: what each is, where it was fixed or reported, how it is run, and what a user would call the culprit.

Apart: the runner and the test read it without torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Bug:
    """source   repository and number of the pull request, issue or commit.
    precision  what the network computes in.
    wrong      what is wrong, as the table of docs says it.
    program    a file of this folder.
    common     settings of both sides; ``change`` are those of the side with the bug.
    module     the culprit's module; ``words``: its operators, arguments or weights, one of which is to be named.
    """

    name: str
    source: str
    precision: str
    wrong: str
    program: str
    module: str
    words: tuple[str, ...]
    change: Mapping[str, Any]
    common: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> tuple[list[str], list[str]]:
        """Of the side with the bug and of the one without."""
        if self.program == "exported":
            net, side = self.change["net"], self.change["side"]
            return [net, side], [net, "torch"]
        return [json.dumps({**self.common, **self.change})], [json.dumps(dict(self.common))]

    @property
    def is_low(self) -> bool:
        """Whether it is met in a type of 16 bits."""
        return self.precision in ("bfloat16", "float16", "autocast")

    def golden(self) -> tuple[list[str], list[str]]:
        """``arguments``, the side without the bug in float32."""
        right = {**self.common, "dtype": "float32"}
        right.pop("autocast", None)
        return self.arguments[0], [json.dumps(right)]

    def healed(self) -> Bug:
        """What an exporter makes of the program without the bug; no culprit."""
        change = {**self.change, "side": "right"}
        return replace(self, name=f"healthy_{self.name}", wrong=f"not: {self.wrong}", words=(), change=change)


_ATTENTION, _MLP = "model.layers.0.self_attn", "model.layers.0.mlp"
_NORM = "model.layers.0.input_layernorm"


def _decoder(name: str, source: str, wrong: str, module: str, words: str, change: Any, **common: Any) -> Bug:
    precision = "autocast" if "autocast" in common else common.get("dtype", "bfloat16")
    return Bug(name, source, precision, wrong, "decoder", module, tuple(words.split()), change, common)


def _denoiser(name: str, source: str, wrong: str, module: str, words: str, change: Any, **common: Any) -> Bug:
    precision = common.get("dtype", "float32")
    return Bug(name, source, precision, wrong, "denoiser", module, tuple(words.split()), change, common)


def _exported(name: str, source: str, wrong: str, module: str, words: str) -> Bug:
    precision = "torch against ONNX"
    return Bug(name, source, precision, wrong, "exported", module, tuple(words.split()), {"net": name, "side": "wrong"})


BUGS = (
    _decoder(
        "rope_positions",
        "huggingface/transformers#29285",
        "rotary angles are computed in bfloat16, which cannot represent position 301",
        "model.rotary_emb",
        "type matmul bmm mm _to_copy",
        {"rope": "bfloat16"},
        start=300,
    ),
    _decoder(
        "rope_frequencies",
        "huggingface/transformers#29496",
        "`model.to(bfloat16)` rounds the rotary frequencies",
        "model.rotary_emb",
        "inv_freq type",
        {"rope": "cast frequencies"},
    ),
    _decoder(
        "norm_cast",
        "huggingface/transformers#29402",
        "RMSNorm casts to bfloat16 before it multiplies by 1 + weight",
        _NORM,
        "type mul _to_copy add",
        {"norm": "cast first"},
    ),
    _decoder(
        "norm_variance",
        "sgl-project/sglang#27540",
        "RMSNorm sums its squares in bfloat16",
        _NORM,
        "type pow mean rsqrt _to_copy",
        {"norm": "low variance"},
    ),
    _decoder(
        "embedding_scale",
        "vllm-project/vllm#3653",
        "the factor √hidden of the embeddings is not rounded to bfloat16, unlike in training",
        "model",
        "mul",
        {"embedding_scale": "exact"},
    ),
    _decoder(
        "gelu",
        "huggingface/transformers#29402",
        "GELU computed with erf instead of tanh",
        f"{_MLP}.act_fn",
        "approximate",
        {"activation": "none"},
    ),
    _decoder(
        "causal_alignment",
        "pytorch/pytorch#144858",
        "`is_causal` aligns the mask at the top left, so later tokens attend only to the start of the cache",
        _ATTENTION,
        "is_causal attn_mask scaled_dot_product",
        {"causal": "top left"},
        attention="sdpa",
        chunks=(8, 3),
    ),
    _decoder(
        "sliding_window",
        "huggingface/transformers#26792",
        "the attention window is one token too long",
        "model",
        "diagonal tril",
        {"window": 5},
        window=4,
    ),
    _decoder(
        "soft_cap",
        "vllm-project/vllm-metal#665",
        "the soft cap of attention scores is left out",
        _ATTENTION,
        "tanh div mul",
        {"soft_cap": 0.0},
        soft_cap=2.0,
    ),
    _decoder(
        "router",
        "lablup/mlxcel#391",
        "the softmax covers the selected experts only",
        _MLP,
        "softmax topk _to_copy",
        {"router": "top first"},
        router="softmax first",
    ),
    _decoder(
        "key_permutation",
        "huggingface/transformers#31788",
        "`k_proj` is converted with the number of query heads instead of key heads",
        f"{_ATTENTION}.k_proj",
        "weight",
        {"key_heads": 4},
    ),
    _denoiser(
        "query_norm_on_key",
        "huggingface/diffusers#13533",
        "the text keys are normalised with the weights of the text queries",
        "attentions.0.attn.norm_added_k",
        "weight",
        {"key_norm": "norm_added_q"},
        dtype="bfloat16",
    ),
    _decoder(
        "rope_autocast",
        "huggingface/diffusers#13922",
        "autocast computes the rotary angles in bfloat16, so neighbouring positions above 65,536 get the same angles",
        "model.rotary_emb",
        "type matmul bmm mm _to_copy",
        {"autocast": "open"},
        dtype="float32",
        autocast="guarded",
        start=65536,
    ),
    _decoder(
        "masked_softmax",
        "huggingface/transformers#17437",
        "two masks add up to -Inf in float16, and the softmax is NaN",
        _ATTENTION,
        "softmax maximum add type",
        {"mask": "added"},
        dtype="float16",
        padding=3,
    ),
    _denoiser(
        "pixel_norm",
        "huggingface/diffusers#13316",
        "the norm over the channels of a pixel overflows float16",
        "norm1",
        "type norm linalg_vector_norm",
        {"normalise": "as it comes"},
        dtype="float16",
        part="pictures",
    ),
    _denoiser(
        "feed_forward_overflow",
        "huggingface/transformers#5651",
        "the feed-forward layer overflows float16",
        "block.1",
        "mm clamp",
        {"overflow": "left"},
        dtype="float16",
        part="text",
    ),
    _denoiser(
        "group_norm_eps",
        "ml-explore/mlx-examples#1434",
        "the GroupNorm before attention uses eps 1e-5, but was trained with 1e-6",
        "attentions.0.norm",
        "eps",
        {"eps": 1e-5},
    ),
    _denoiser(
        "timestep_shift",
        "huggingface/diffusers#12791",
        "`downscale_freq_shift` is 1 instead of 0",
        "time_proj",
        "div other",
        {"shift": 1.0},
    ),
    _decoder(
        "left_padding",
        "huggingface/transformers#29583",
        "token positions include the padding on the left",
        "model",
        "arange cumsum add sub clamp",
        {"positions": "from zero"},
        dtype="float32",
        padding=3,
    ),
    _decoder(
        "untied_head",
        "huggingface/transformers#43429",
        "lm_head is not tied to the embeddings",
        "lm_head",
        "weight",
        {"head": "untied"},
        dtype="float32",
    ),
    _decoder(
        "cache_rows",
        "tenstorrent/tt-metal#54742",
        "the cache is written to the wrong rows of each head",
        _ATTENTION,
        "copy_",
        {"cache": "by page"},
        dtype="float32",
        cache="by row",
        chunks=(6, 3),
    ),
    _exported(
        "gru",
        "microsoft/onnxscript#2852",
        "a GRU is exported without `linear_before_reset`",
        "gru",
        "GRU gru",
    ),
    _exported(
        "pool",
        "pytorch/pytorch#13934",
        "an AveragePool is exported without `count_include_pad`",
        "pool",
        "AveragePool avg_pool2d count_include_pad",
    ),
    _exported(
        "batch_norm",
        "onnx/tensorflow-onnx#1249",
        "a normalisation uses stored statistics instead of the statistics of its input",
        "bn",
        "BatchNormalization batch_norm",
    ),
    _exported(
        "resize",
        "onnx/tensorflow-onnx@0338e1eb",
        "nearest-neighbour resizing aligns pixel corners instead of centres",
        "",
        "Resize upsample",
    ),
)

# The same network written otherwise: nothing is to be blamed.
REWRITTEN = tuple(
    _decoder(f"{name}_{dtype}", "", wrong, "", "", change, dtype=dtype, **common)
    for dtype in ("float32", "bfloat16")
    for name, wrong, change, common in (
        ("fused_attention", "attention in one operator", {"attention": "sdpa"}, {}),
        ("cache_in_place", "a cache that is written in place", {"cache": "by row"}, {"chunks": (6, 4)}),
    )
)
