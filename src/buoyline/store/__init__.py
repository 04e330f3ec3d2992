"""The workspace: one log of each session, its results, and the files beside them."""
