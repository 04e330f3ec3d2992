"""What happens in a workspace, as events."""
