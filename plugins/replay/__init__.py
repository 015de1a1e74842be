"""A model that answers from recorded answers, without network and key."""

from costada.plugins.replay.replay_model import ReplayModel, replay_model

__all__ = ["ReplayModel", "replay_model"]
