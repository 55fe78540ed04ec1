"""The durable core: events, state, journal, stores and durable steps. It needs no framework and can be used alone."""
