"""Which programs there are: ``PROGRAMS``, by name. Needs the libraries only where a program is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 99,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PICTURES = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS, PAIR, SOUND, PICTURE = "tokens", "pair", "sound", "picture"


class Program(NamedTuple):
    """``made`` gives a module and what it is called with; ``library`` is what has to be there for it. ``way``: "eval",
    "train" (with gradients, as a training loop has them), "generate"."""

    library: str
    made: Callable[[], tuple[Any, dict[str, Any]]]
    way: str = "eval"


def _tokens(count: int = 7, vocabulary: int = 99) -> Any:
    import torch

    return torch.randint(3, vocabulary, (2, count), generator=torch.Generator().manual_seed(1))


def _given(kind: str) -> dict[str, Any]:
    import torch

    drawn = torch.Generator().manual_seed(1)
    if kind == TOKENS:
        mask = torch.ones(2, 7, dtype=torch.int64)
        mask[1, 5:] = 0
        return {"input_ids": _tokens(), "attention_mask": mask}
    if kind == PAIR:
        return {"input_ids": _tokens(), "decoder_input_ids": _tokens(5)}
    if kind == SOUND:
        return {"input_values": torch.randn(2, 2000, generator=drawn)}
    return {"pixel_values": torch.randn(2, 3, 32, 32, generator=drawn)}


def _transformer(model: str, kind: str = TOKENS, way: str = "eval", small: bool = True, **more: Any) -> Program:
    """A class of transformers with its configuration made small; ``more`` goes to that too."""

    def made() -> tuple[Any, dict[str, Any]]:
        transformers = importlib.import_module("transformers")
        of_model = getattr(transformers, model)
        settings = {**(PICTURES if kind == PICTURE else SMALL), **more} if small else more
        network = of_model(of_model.config_class(**settings))
        if kind == TOKENS and network.config.is_encoder_decoder:
            return network, _given(PAIR)
        return network, {**_given(kind), **({"max_new_tokens": 4, "do_sample": False} if way == "generate" else {})}

    return Program("transformers", made, way)


def _class(path: str, shape: tuple[int, ...], *args: Any, library: str = "", way: str = "eval", **more: Any) -> Program:
    """A class or function of a library that makes a network, which takes one tensor of numbers."""

    def made() -> tuple[Any, dict[str, Any]]:
        import torch

        module, _, name = path.rpartition(".")
        network = getattr(importlib.import_module(module), name)(*args, **more)
        return network, {"": (torch.randn(shape, generator=torch.Generator().manual_seed(1)),)}

    return Program(library or path.partition(".")[0], made, way)


def _timm(name: str, way: str = "eval", **more: Any) -> Program:
    return _class("timm.create_model", (2, 3, 64, 64), name, num_classes=7, way=way, **more)


def _unet() -> tuple[Any, dict[str, Any]]:
    import torch
    from diffusers import UNet2DConditionModel

    network = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    drawn = torch.Generator().manual_seed(1)
    return network, {
        "sample": torch.randn(2, 4, 16, 16, generator=drawn),
        "timestep": torch.tensor([3, 500]),
        "encoder_hidden_states": torch.randn(2, 5, 16, generator=drawn),
    }


def _plain_unet() -> tuple[Any, dict[str, Any]]:
    import torch
    from diffusers import UNet2DModel

    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    network = UNet2DModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=8,
        **blocks,
    )
    drawn = torch.Generator().manual_seed(1)
    return network, {"sample": torch.randn(2, 3, 16, 16, generator=drawn), "timestep": 10}


def _graph() -> tuple[Any, dict[str, Any]]:
    import torch
    from torch_geometric.nn import GAT

    drawn = torch.Generator().manual_seed(1)
    edges = torch.randint(0, 20, (2, 60), generator=drawn)
    return GAT(8, 16, 2, 4, heads=2), {"x": torch.randn(20, 8, generator=drawn), "edge_index": edges}


def _text(causal: bool) -> Callable[[], tuple[Any, dict[str, Any]]]:
    def made() -> tuple[Any, dict[str, Any]]:
        import x_transformers

        layers = x_transformers.Decoder if causal else x_transformers.Encoder
        inner = layers(dim=32, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True)
        return x_transformers.TransformerWrapper(num_tokens=99, max_seq_len=32, attn_layers=inner), {"": (_tokens(),)}

    return made


def _clip() -> tuple[Any, dict[str, Any]]:
    from transformers import CLIPConfig, CLIPModel

    text = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
    config = CLIPConfig(text_config=text, vision_config={**PICTURES, "intermediate_size": 48}, projection_dim=16)
    return CLIPModel(config), {**_given(TOKENS), **_given(PICTURE)}


def _whisper(way: str) -> Program:
    def made() -> tuple[Any, dict[str, Any]]:
        import torch

        network, _ = _transformer(
            "WhisperForConditionalGeneration", PAIR, d_model=32, encoder_layers=2, decoder_layers=2, num_mel_bins=16,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
            max_source_positions=30, max_target_positions=20, decoder_start_token_id=3, suppress_tokens=None,
            begin_suppress_tokens=None,
        ).made()  # fmt: skip
        sound = torch.randn(2, 16, 60, generator=torch.Generator().manual_seed(1))
        if way == "generate":
            return network, {"input_features": sound, "max_new_tokens": 4, "do_sample": False}
        return network, {"input_features": sound, "decoder_input_ids": _tokens(5)}

    return Program("transformers", made, way)


_SPEECH = {
    "conv_dim": (16, 16), "conv_kernel": (5, 3), "conv_stride": (4, 2), "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0, "layerdrop": 0.0,
}  # fmt: skip
_T5 = {
    "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
_BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}

PROGRAMS: dict[str, Program] = {
    "bert": _transformer("BertModel"),
    "bert_trained": _transformer("BertForMaskedLM", way="train"),
    "roberta": _transformer("RobertaModel"),
    "distilbert": _transformer("DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    "albert": _transformer("AlbertModel", embedding_size=16),
    "electra": _transformer("ElectraModel", embedding_size=16),
    "deberta": _transformer("DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "mpnet": _transformer("MPNetModel"),
    "gpt2": _transformer("GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4),
    "gpt2_generates": _transformer("GPT2LMHeadModel", way="generate", n_embd=32, n_layer=2, n_head=4),
    "gpt_neo": _transformer("GPTNeoModel", num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4),
    "gpt_neox": _transformer("GPTNeoXModel"),
    "gptj": _transformer("GPTJModel", n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    "llama": _transformer("LlamaForCausalLM"),
    "llama_generates": _transformer("LlamaForCausalLM", way="generate"),
    "mistral": _transformer("MistralModel"),
    "mixtral": _transformer("MixtralForCausalLM", **_EXPERTS),
    "qwen2": _transformer("Qwen2Model"),
    "qwen3": _transformer("Qwen3Model", head_dim=8),
    "qwen3_moe": _transformer(
        "Qwen3MoeModel", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24
    ),
    "olmoe": _transformer("OlmoeModel", num_experts=4, num_experts_per_tok=2),
    "gemma": _transformer("GemmaModel", head_dim=8),
    "gemma2": _transformer("Gemma2Model", head_dim=8, query_pre_attn_scalar=8),
    "phi": _transformer("PhiModel"),
    "phi3": _transformer("Phi3Model"),
    "falcon": _transformer("FalconModel"),
    "bloom": _transformer("BloomModel", n_layer=2, n_head=4),
    "opt": _transformer("OPTModel", ffn_dim=48, word_embed_proj_dim=32),
    "starcoder2": _transformer("Starcoder2Model"),
    "granite": _transformer("GraniteModel"),
    "mamba": _transformer("MambaModel", state_size=8),
    "rwkv": _transformer("RwkvModel", attention_hidden_size=32),
    "t5": _transformer("T5ForConditionalGeneration", PAIR, **_T5),
    "t5_generates": _transformer("T5ForConditionalGeneration", TOKENS, way="generate", **_T5),
    "bart": _transformer("BartModel", PAIR, **_BART),
    "whisper": _whisper("eval"),
    "whisper_generates": _whisper("generate"),
    "wav2vec2": _transformer("Wav2Vec2Model", SOUND, **_SPEECH),
    "hubert": _transformer("HubertModel", SOUND, **_SPEECH),
    "vit": _transformer("ViTModel", PICTURE, intermediate_size=48),
    "deit": _transformer("DeiTModel", PICTURE, intermediate_size=48),
    "beit": _transformer("BeitModel", PICTURE, intermediate_size=48),
    "dinov2": _transformer("Dinov2Model", PICTURE),
    "clip": Program("transformers", _clip),
    "convnext": _transformer("ConvNextModel", PICTURE, small=False, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    "resnet": _transformer("ResNetModel", PICTURE, small=False, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "segformer": _transformer(
        "SegformerModel", PICTURE, small=False, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]
    ),
    "swin": _transformer(
        "SwinModel",
        PICTURE,
        small=False,
        image_size=32,
        patch_size=2,
        embed_dim=8,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
    ),
    "unet_condition": Program("diffusers", _unet),
    "unet": Program("diffusers", _plain_unet),
    "autoencoder": _class("diffusers.AutoencoderKL", (1, 3, 32, 32), block_out_channels=(16,), norm_num_groups=8),
    "timm_resnet18": _timm("resnet18"),
    "timm_resnet18_trained": _timm("resnet18", way="train"),
    "timm_mobilenetv3": _timm("mobilenetv3_small_050"),
    "timm_efficientnet": _timm("efficientnet_lite0"),
    "timm_vit": _timm("vit_tiny_patch16_224", img_size=64, depth=2),
    "timm_convnext": _timm("convnext_atto"),
    "timm_mixer": _timm("mixer_s32_224", img_size=64),
    "timm_regnet": _timm("regnetx_002"),
    "timm_ghostnet": _timm("ghostnet_050"),
    "timm_swin": _timm("swin_tiny_patch4_window7_224", img_size=64, window_size=4, depths=(1, 1, 1, 1)),
    "x_encoder": Program("x_transformers", _text(False)),
    "x_decoder": Program("x_transformers", _text(True)),
    "monai_unet": _class("monai.networks.nets.UNet", (1, 1, 16, 16), 2, 1, 2, (4, 8), (2,)),
    "monai_densenet": _class(
        "monai.networks.nets.DenseNet121", (1, 1, 32, 32), spatial_dims=2, in_channels=1, out_channels=3
    ),
    "kornia_hardnet": _class("kornia.feature.HardNet", (2, 1, 32, 32), pretrained=False),
    "kornia_sosnet": _class("kornia.feature.SOSNet", (2, 1, 32, 32), pretrained=False),
    "segmentation_unet": _class("segmentation_models_pytorch.Unet", (1, 3, 32, 32), "resnet18", encoder_weights=None),
    "geometric_gat": Program("torch_geometric", _graph),
    "torch_lstm": _class("torch.nn.LSTM", (2, 5, 8), 8, 16, 2, batch_first=True),
    "torch_lstm_trained": _class("torch.nn.LSTM", (2, 5, 8), 8, 16, 2, batch_first=True, way="train"),
    "torch_encoder": _class("torch.nn.TransformerEncoderLayer", (2, 5, 16), 16, 4, 32, batch_first=True, way="train"),
}
