"""What the model can call: shell, files, search, code, memory, skills, and what belongs to them."""
