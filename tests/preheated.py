"""Does what most processes would do first, once, in the one that they are forked from."""

import gc
import os

from fakes import toy_problem

from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.values.usage import Price

os.environ.pop("PYTHONPATH", None)  # by which this module was found
model = chat_model("openai:stand-in", base_url="http://127.0.0.1:9")
compile_search(toy_problem(), model, budget=1.0, settings=Settings(price=Price("1", "2")))
gc.collect()
gc.freeze()  # so that the collections of a forked process do not copy the pages
