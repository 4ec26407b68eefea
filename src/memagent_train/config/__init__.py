"""Settings of a training: TOML, checked, without a library that trains."""
