"""One run: configuration, plan, folder, runner, resume and fork."""
