"""Short notes about purses and masters, for very small models: words that they are trained on, and held-out ones."""
