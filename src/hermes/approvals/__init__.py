"""Leave to act: rules first, then people, and answers that outlive the process that asked."""
