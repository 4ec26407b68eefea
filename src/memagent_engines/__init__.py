"""Language models in this process, each behind the extra of its library. `open_model` opens them."""
