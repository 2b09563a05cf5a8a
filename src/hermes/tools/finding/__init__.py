"""Tools that the model looks for: what there is too much of to be told in every request."""
