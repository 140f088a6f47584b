"""A trained model outside of the platform: from its file and its signed record to torch, predictions, scikit-learn and
ONNX. Nothing but these two files is needed, and no hub."""

from hanse_learning.portable.trained_model import TrainedModel, read_trained

__all__ = ["TrainedModel", "read_trained"]
