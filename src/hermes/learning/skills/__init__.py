"""Skills: folders with a SKILL.md of instructions, read when needed."""
