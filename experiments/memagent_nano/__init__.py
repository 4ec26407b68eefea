"""`pico` and `nano`: small policies trained from nothing, and what they show of reinforcement learning and memory.

`sizes` says what they are; `tokenizer` and `model` make them. `task`, `expert`, `lessons` and `direct` are what they
learn from, `material` writes it down. `stages` says how they learn, `course` in which order, and what is compared.
`gate` and `measure` find out what they can do; `results`, `tables` and `plots` tell it. `command` does it all.
"""
