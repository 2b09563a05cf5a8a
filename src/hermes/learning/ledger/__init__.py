"""What the agent learns is written to files of the person's; every such change can be undone."""
