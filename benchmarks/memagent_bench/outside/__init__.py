"""Third-party benchmarks on the user's data: environments, and the sandbox that their code runs in."""
