"""What makes buoyline at home in other people's frameworks: one package a framework, none imported unless asked for."""
