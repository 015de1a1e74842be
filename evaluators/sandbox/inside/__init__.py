"""Code that runs in the sandbox: loaded by path into an interpreter without this package."""
