"""A model without network and key, for demos, tests and lessons."""

from costada.plugins.offline.offline_model import OfflineModel

__all__ = ["OfflineModel"]
