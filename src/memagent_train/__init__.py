"""Fine-tunes memory agents with reinforcement learning, through the same classes that serve them."""
