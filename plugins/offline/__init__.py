"""A model without network and key, for demos, tests and lessons."""

from costada.plugins.offline.model import OfflineModel

__all__ = ["OfflineModel"]
