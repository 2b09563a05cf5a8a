"""The sections of config.yaml, one typed Struct each, with the defaults beside the names."""
