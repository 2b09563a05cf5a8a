"""A model that runs on this machine, in a process of ours: its weights, its engine, its words."""
