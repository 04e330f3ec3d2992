"""One package for each framework, imported only if you import it.

A package adapts the framework's hooks and messages to `buoyline.window`. How a context is compacted, and how content is
stored, does not belong here.
"""
