"""Flows by name: registered, started, driven and followed, also by programs that did not start them."""
