"""Property tests draw the same examples on every run, unless they are told to explore.

A failure is then the fault of the change that is tested. ``HYPOTHESIS_PROFILE=explore`` draws new
examples each time; what it finds becomes an example of its own.
"""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
