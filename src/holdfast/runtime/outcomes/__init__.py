"""How a call of a step is made, and what comes of it: a failure, or an outcome that nobody knows."""
