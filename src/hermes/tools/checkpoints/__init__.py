"""Save the files of a workspace in a shadow repository before they are changed."""
