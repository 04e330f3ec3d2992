"""``buoyline demo``: a scripted agent, real commands, and everything through a context window."""
