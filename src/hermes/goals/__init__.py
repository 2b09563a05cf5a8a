"""Work over several turns until a judge says that a goal is met."""
