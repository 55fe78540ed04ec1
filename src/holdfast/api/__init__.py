"""The same runs for programs, pages and teams: HTTP, live events and access."""
