"""The tools for skills: list them, open one, write one."""
