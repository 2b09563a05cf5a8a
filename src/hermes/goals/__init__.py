"""Goals: work over several turns until a judge says that the goal is met."""
