"""Compares the checkout with versions of the past; `make reference` runs all of it, CONTRIBUTING.md explains it."""
