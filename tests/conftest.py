"""Property tests have no deadline: how long an example takes says more about what else runs than about the code."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
