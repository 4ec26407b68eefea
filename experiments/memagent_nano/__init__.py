"""`pico` and `nano`: small policies trained from nothing, and what they show of reinforcement learning and memory.

`sizes` defines them; `tokenizer` and `model` create them. They learn from `task`, `expert`, `lessons` and `direct`;
`material` writes the files. `stages` defines how they learn, `course` in which order, and what is compared.
`gate` and `measure` measure them; `results`, `tables` and `plots` present it. `command` runs everything.
"""
