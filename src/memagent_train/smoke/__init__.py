"""A whole training in minutes on a CPU: `python -m memagent_train.smoke`. CI's proof that it learns, and an example.

`folder` makes what a user brings (settings, wording, model, traces), `stages` is what the commands do with it, and
`findings` what has to come out. `task`, `expert`, `tokenizer`, `model` and `control` are what it is made of.
"""
