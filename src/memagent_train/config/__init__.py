"""Settings of a training: validated TOML, without importing any training library."""
