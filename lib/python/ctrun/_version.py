"""The package's version, that of lib/base/version.h (scripts/lint compares)."""
__version__ = "0.1.0"
