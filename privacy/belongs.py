"""The scope of settings is handed on from `privacy.setting_scope`."""

from privacy.setting_scope import EntryName, ReadWith, ReadWithout, Settings, default_of, named_in

__all__ = ["EntryName", "ReadWith", "ReadWithout", "Settings", "default_of", "named_in"]
