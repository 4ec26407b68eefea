"""Summaries trained by the rewards of answers (SUPO), in minutes on a CPU: `python -m memagent_draws`.

`game` is a game of 12 draws, of which the policy's context holds about four; `expert` plays it with summaries that
sometimes forget, and `material` records what it does. `arms` trains a policy of about 100,000 weights to imitate
it, then by reinforcement learning with summaries trained, frozen, alone, or not written at all.
"""
