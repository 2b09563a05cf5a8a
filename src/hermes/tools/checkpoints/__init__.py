"""Save a workspace's files in a shadow repository before they are changed."""
