"""What runs inside the sandbox: loaded by path into an interpreter that knows nothing of us."""
