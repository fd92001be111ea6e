"""Packaging of sgsdump. Why each dependency is there: CONTRIBUTING.md."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

CV = ["opencv-python-headless>=4.8"]
TFLITE = ["ai-edge-litert>=2.0"]
TUNE = ["scipy>=1.11"]
CLUSTER = ["distributed>=2024.1"]
OPENVINO = ["openvino>=2026.0"]
TVM = ["apache-tvm>=0.27"]
SAFETENSORS = ["safetensors>=0.5"]
YAML = ["PyYAML>=6.0"]
TORCH = ["torch>=2.1"]
TEST = [
    *("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "opencv-python-headless>=4.8,<5"),
    *(*TUNE, *CLUSTER, *OPENVINO, *SAFETENSORS, *YAML),
]

setup(
    name="sgsdump",
    version="0.1.0",
    description="Find the layer that loses accuracy when a network is quantised",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    python_requires=">=3.10",
    packages=find_packages(include=["sgsdump", "sgsdump.*"]),
    package_data={"sgsdump": ["py.typed", "samples/*"]},
    install_requires=[
        "numpy>=1.24",
        "matplotlib>=3.7",
        "tqdm>=4.65",
        "onnx>=1.19",
        "onnxruntime>=1.21",
        "Pillow>=10",
        "protobuf>=4.25",
        "threadpoolctl>=3.2",
        "ml_dtypes>=0.5",
    ],
    extras_require={
        "cv": CV,
        "tflite": TFLITE,
        "tune": TUNE,
        "cluster": CLUSTER,
        "openvino": OPENVINO,
        "tvm": TVM,
        "safetensors": SAFETENSORS,
        "yaml": YAML,
        "torch": TORCH,
        "test": TEST,
        "lint": ["ruff>=0.6", "mypy>=1.11"],
    },
    entry_points={"console_scripts": ["sgsdump = sgsdump.cli:main"]},
)
