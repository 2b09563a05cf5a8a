"""Tools the model can call: shell, files, search, code, memory and skills."""
