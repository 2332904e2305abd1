"""The same test on Equinox's ``filter_jit`` and on ours."""
