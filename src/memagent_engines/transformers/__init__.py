"""A causal LM in this process, with Hugging Face transformers: the extra `[transformers]`."""
