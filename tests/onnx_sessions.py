"""A model's ONNX file as anybody opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def onnx_session(path: Path | str) -> Any:
    """Of the runtime alone. It starts a thread where it is loaded: not while tests are collected (`forked_pytest`)."""
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
