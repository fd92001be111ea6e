"""Graph mode as TorchAir has it: ``torch.compile(model, backend=get_npu_backend(compiler_config=config))`` dumps by node.

Source: docs/formats/ascend.md.
"""
