"""buoyline in Strands: storage, the offloading plugin and the conversation manager of an agent."""
