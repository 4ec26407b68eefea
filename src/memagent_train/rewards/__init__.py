"""Rewards of a rollout's answer: the benchmarks' scores, Eq. 6 and 7, a user-defined function, or a judge."""
