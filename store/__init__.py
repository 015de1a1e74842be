"""What must survive a crash: programs, calls, charges and steps of a run, in one SQLite file."""
