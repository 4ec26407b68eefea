"""What memagent itself costs, beside the model: `make bench`."""
