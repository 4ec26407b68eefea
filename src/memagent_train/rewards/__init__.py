"""What a rollout's answer is worth: the benchmarks' scores, Eq. 6 and 7, a user's own function, or a judge."""
