"""Tools that look at sessions from outside: differences, replay, costs and telemetry.

They call a window and read a workspace like any user. Nothing that a window needs belongs here.
"""
