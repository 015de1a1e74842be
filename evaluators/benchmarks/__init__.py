"""The built-in problems, one file per benchmark."""
