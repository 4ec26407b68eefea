"""A whole training in minutes on a CPU: `python -m memagent_train.smoke`. CI's proof that training works.

`folder` makes what a user would bring (settings, wording, model, traces), `stages` runs the commands on it, and
`findings` checks the results. `task`, `expert`, `tokenizer`, `model` and `control` are its parts.
"""
