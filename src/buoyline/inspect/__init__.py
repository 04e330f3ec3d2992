"""Tools that look at a session afterwards: costs, replay, differences between compactions, telemetry."""
