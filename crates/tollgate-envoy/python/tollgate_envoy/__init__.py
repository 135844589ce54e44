"""Rate limits in Envoy's own process: the folder of the module `libtollgate_envoy.so`."""

from pathlib import Path


def search_path() -> Path:
    """Returns the folder that ENVOY_DYNAMIC_MODULES_SEARCH_PATH names."""
    return Path(__file__).parent
