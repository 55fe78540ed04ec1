"""Values that flows pass and get, recorded so that they come back as what they were."""
