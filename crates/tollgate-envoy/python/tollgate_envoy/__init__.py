"""Rate limits inside the process of Envoy: finds the module `libtollgate_envoy.so`."""

from pathlib import Path


def search_path() -> Path:
    """Returns the folder of the module, for ENVOY_DYNAMIC_MODULES_SEARCH_PATH."""
    return Path(__file__).parent
