"""Flows: durable Python functions, and the calls a user makes to start, steer and answer them."""
