"""Language models in this process, each behind the extra of its library. Opened by `open_model`."""
