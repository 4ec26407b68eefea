"""Training runs: their folder, their logs, and what makes, measures and exports a policy."""
