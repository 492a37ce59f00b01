"""Properties are checked for what they say, not for how fast a busy machine checks them."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
