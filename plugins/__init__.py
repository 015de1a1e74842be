"""What can be taken away without the method noticing; the other rooms find it by entry points.

A package of one's own registers plug-ins in the same groups:

- `costada.models`: a chat model class (`models/chat_models.py`)
- `costada.model_factories`: a function that makes the chat model of an id `NAME:ARGUMENT`
  (`models/chat_models.py`)
- `costada.problems`: a function that makes a `Problem` (`evaluators/registry.py`)
- `costada.methods`: a `Method` (`controller/methods.py`)
- `costada.routers`: a class derived from `Router` (`controller/router.py`)
- `costada.engines`: an `Engine` class (`evaluators/remote/engine.py`)
- `costada.folders`: a `FolderFormat` (`evaluators/folder_layout.py`)
- `costada.compat_modules`: a module that stands in for others (`evaluators/sandbox/launch.py`)
- `costada.commands`: a `PluginCommand` (`cli/main.py`)
- `costada.trackers`: a `TrackerKind` (`reports/tracking.py`)
- `costada.gateways`: a `Gateway` (`runs/gateways.py`)
- `costada.comparison_tables`: a function that makes tables of a comparison
  (`experiments/comparison/comparison_report.py`)
"""
