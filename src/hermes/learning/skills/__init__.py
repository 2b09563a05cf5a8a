"""Skills: folders with a SKILL.md that say how to do something, read when they are needed."""
