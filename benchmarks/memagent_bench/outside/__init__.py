"""Benchmarks that others made, with the user's data: environments, and the sandbox that their code runs in."""
