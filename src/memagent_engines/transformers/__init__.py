"""A causal LM in this process, run by Hugging Face transformers: the extra `[transformers]`."""
