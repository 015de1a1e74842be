"""A whole run from outside: settings, runner, progress, trace, report and command line."""
