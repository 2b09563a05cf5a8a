"""The sections of config.yaml as Structs with their defaults."""
