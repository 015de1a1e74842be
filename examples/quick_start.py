"""A search from Python without a key: spend four cents on packing circles.

python examples/quick_start.py
"""

from costada import OfflineModel, create_discovery_graph, problem

# With a key: model = chat_model("openai:gpt-5.4"), or any LangChain chat model.
graph = create_discovery_graph(problem("circle_packing"), OfflineModel(), budget=0.04)

result = {}
for mode, part in graph.stream({"seed": 2}, stream_mode=["custom", "values"]):
    if mode == "custom":  # one row per step, when the step ends
        step = f"step {part['iteration']} on frontier {part['frontier']}"
        print(f"{step} cost ${part['step_cost']:.4f}, best objective {part['best_objective']:.4f}")
    else:
        result = part

print(f"spent ${result['spent']:.4f} of $0.04; stopped by: {result['stop_reason']}")
print(f"the best program has {len(result['best_program'].splitlines())} lines")
