"""What a breaker may do: a name alone, so that settings do not wait for numpy."""

from typing import Literal

Action = Literal["stop", "rollback", "continue-smaller", "record", "off"]
