"""A dozen everyday tasks, done by the embedded model through the whole house."""
