"""The cases of tests/fixtures, one module per subject; tools/fixtures.py runs them."""
