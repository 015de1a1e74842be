"""`python -m costada`, the command where its script is not on the path."""

from costada.cli.entry import main

if __name__ == "__main__":
    main()
