"""Short notes about purses and masters, for very small models: which words they are trained on, and which held out."""
