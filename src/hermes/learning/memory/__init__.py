"""What the agent keeps in mind: notes about its work and about the person, in two small files."""
