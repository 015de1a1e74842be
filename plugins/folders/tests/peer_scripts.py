"""Texts that evaluators of other tools have in common."""

LOAD = """
import importlib.util
def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
"""
MAIN = """
if __name__ == "__main__":
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--program_path")
    parser.add_argument("--results_dir", default="results")
    arguments = parser.parse_args()
    main(arguments.program_path, arguments.results_dir)
"""
