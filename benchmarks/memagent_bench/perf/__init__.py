"""memagent's own cost, without the model's: `make bench`."""
