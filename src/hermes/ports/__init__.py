"""The doors of the core: what it asks of models, tools, stores, channels and sandboxes."""
