"""memagent's own cost, apart from the model: `make bench`."""
