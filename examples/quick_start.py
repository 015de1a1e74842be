"""A search from Python without a key: spend four cents on packing circles.

python examples/quick_start.py
"""

from costada import create_discovery_graph

# With a key "openai:gpt-5.4", or any LangChain chat model, in place of "offline".
graph = create_discovery_graph("circle_packing", "offline", budget=0.04)

result = {}
for mode, part in graph.stream({"seed": 2}, stream_mode=["custom", "values"]):
    if mode == "custom":  # one row per step, when the step ends
        step = f"step {part['iteration']} on frontier {part['frontier']}"
        print(f"{step} cost ${part['step_cost']:.4f}, best objective {part['best_objective']:.4f}")
    else:
        result = part

print(f"spent ${result['spent']:.4f} of $0.04; stopped by: {result['stop_reason']}")
print(f"the best program has {len(result['best_program'].splitlines())} lines")
