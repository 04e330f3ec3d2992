"""Context management as documents: which managers run at which hook, and when."""
