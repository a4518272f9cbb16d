"""Keeps moto small: what it reads at import but hardly anybody asks for is read at the first question.

SSM imports EC2, and EC2's import parses every region's offerings: 90 MB and a second, for data that nobody here uses.
The catalogue stays complete; only the moment of reading moves. And moto asks fresh botocore sessions which regions a
service has; each would parse the table of endpoints and the service's whole model (half a second for EC2's) to learn
one word of it: they share one loader, and the word is read from the model's first bytes. At every call moto lists its
own directory and inspects the class of the service, a third of a call's time: both are remembered.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import botocore.session
import moto.backends
import moto.core.responses

_MODULE = "moto.ec2.models.instance_types"
_PREFIX = re.compile(rb'"endpointPrefix"\s*:\s*"([^"]+)"')
_TYPES = "ec2/resources/instance_types.json"
_OFFERINGS = "ec2/resources/instance_type_offerings"


def install() -> None:
    """Takes effect when moto imports its EC2 models, which it does with the first call that needs them."""
    if _MODULE not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    if not hasattr(botocore.session.create_loader, "cache_info"):
        botocore.session.create_loader = cache(botocore.session.create_loader)
        botocore.session.Session.get_available_regions = _available_regions
        modules = tuple(moto.backends.list_of_moto_modules())
        moto.backends.list_of_moto_modules = lambda: modules
        responses: Any = moto.core.responses
        responses.method_names_from_class = cache(responses.method_names_from_class)


def _available_regions(
    session: Any, service_name: str, partition_name: str = "aws", allow_non_regional: bool = False
) -> list[str]:
    resolver = session.get_component("endpoint_resolver")
    prefix = _endpoint_prefix(service_name)
    return list(resolver.get_available_endpoints(prefix, partition_name, allow_non_regional)) if prefix else []


@cache
def _endpoint_prefix(service: str) -> str:
    """The name under which botocore's table of endpoints knows a service (cloudwatch is `monitoring` there)."""
    folder = files("botocore").joinpath("data", service)
    if not folder.is_dir():
        return ""
    latest = max(entry.name for entry in folder.iterdir() if entry.is_dir())
    for name, opened in (("service-2.json.gz", gzip.open), ("service-2.json", open)):
        path = Path(str(folder.joinpath(latest, name)))
        if path.exists():
            with opened(path, "rb") as stream:
                match = _PREFIX.search(stream.read(8192))
            return match[1].decode() if match else ""
    return ""


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, original: Loader) -> None:
        self._original = original

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        import moto.utilities.utils as utilities

        read = utilities.load_resource
        utilities.load_resource = lambda resource: {} if resource == _TYPES else []
        try:
            self._original.exec_module(module)
        finally:
            utilities.load_resource = read
        read_on_demand(module, read)


def read_on_demand(catalogue: Any, read: Callable[[str], Any]) -> None:
    all_types: Callable[[], dict[str, Any]] = cache(lambda: read(_TYPES))
    catalogue.INSTANCE_TYPES = _Types(all_types)
    catalogue.INSTANCE_FAMILIES = _Families(all_types)
    catalogue.InstanceTypeBackend.instance_types = _TypeList(
        cache(lambda: [catalogue.InstanceType(name) for name in all_types()])
    )
    for location in list(catalogue.INSTANCE_TYPE_OFFERINGS):
        catalogue.INSTANCE_TYPE_OFFERINGS[location] = _Offerings(location, read)


class _Types(dict[str, Any]):
    def __init__(self, read: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, name: str) -> Any:
        return self._read()[name]


class _TypeList:
    """A class attribute whose value is made at the first look."""

    def __init__(self, read: Callable[[], list[Any]]) -> None:
        self._read = read

    def __get__(self, instance: object, owner: type) -> list[Any]:
        return self._read()


class _Families:
    def __init__(self, read: Callable[[], dict[str, Any]]) -> None:
        self._read = read

    def __contains__(self, family: object) -> bool:
        return any(name.split(".")[0] == family for name in self._read())


class _Offerings(dict[str, Any]):
    """Region → offers of one location type; moto looks regions up by `[]` and `get`."""

    def __init__(self, location: str, read: Callable[[str], Any]) -> None:
        super().__init__()
        self._location = location
        self._read = read
        folder = files("moto").joinpath(_OFFERINGS, location)
        self._files = {entry.name.split(".")[0]: entry.name for entry in folder.iterdir()}

    def __missing__(self, region: str) -> Any:
        offers = self._read(f"{_OFFERINGS}/{self._location}/{self._files[region]}")
        for offer in offers:
            offer["LocationType"] = self._location
        self[region] = offers
        return offers

    def get(self, region: str, default: Any = None) -> Any:
        return self[region] if region in self._files else default
