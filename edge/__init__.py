"""The device side: opening a bundle and recommending from it with numpy and onnxruntime alone."""

from edge.bundle import Bundle, open_bundle
from edge.recommender import Recommender

__all__ = ["Bundle", "Recommender", "open_bundle"]
