"""Watches a workspace, and reports as events what any process writes to it.

It reads journals and directories. It holds no lock and writes nothing; checks for damage belong to
`buoyline.maintenance.verify`.
"""
