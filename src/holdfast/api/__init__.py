"""The same runs for programs, pages and teams: HTTP, live events and access."""

from holdfast.extras import require_extra

require_extra("server", __name__)
