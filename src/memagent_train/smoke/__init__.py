"""A training run in minutes on a CPU: a tiny model learns to carry a value. An example to read, and CI's proof."""
