"""Training runs: their folder and logs, and the code that trains, measures and exports a policy."""
