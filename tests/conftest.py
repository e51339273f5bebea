"""What holds for every test: property tests have no deadline, which says more about what else runs than of the code."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
