"""The configuration as values: what its files say, merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from workbench.errors import ManifestFault
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """The defaults of one part of a file, which lie over those of the layers behind it."""

    origin: str
    """``config.toml``, or ``fabric.toml, profile ci``."""
    file: Path
    defaults: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration."""

    backends: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Each named backend: ``name``, ``type``, ``address`` and ``options``. ``local`` is always there."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of manifest keys and run options where nothing else sets them."""
    file: Path = Path()
    warnings: tuple[ManifestFault, ...] = ()
    """Unknown keys, each with its position and the nearest known one."""
    retention: Mapping[str, Any] = field(default_factory=dict)
    """Keys of :data:`workbench.config.model.RETENTION`."""
    stores: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Each named data store: ``type`` and what a manifest's ``connection`` says; passwords only by reference."""
    store_alias: Mapping[str, str] = field(default_factory=dict)
    """For an address as manifests write it another one, or the name of a store."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Keys of :mod:`workbench.config.stores`."""
    code: Mapping[str, Any] = field(default_factory=dict)
    """Keys of :mod:`workbench.config.code`."""
    experiments: Mapping[str, Any] = field(default_factory=dict)
    """What slots of an experiment of Determined are: ``cpu_slot`` where there is no GPU, ``max_slots_per_pod`` in a
    cluster."""
    profiles: Mapping[str, Config] = field(default_factory=dict)
    """Parts of the file that only count when they are asked for by name."""
    layers: tuple[Layer, ...] = ()
    """Where the defaults came from, the strongest first."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each value came from, by dotted key: ``backends.gpubox``, ``defaults.gpus``."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys of the screens' actions, by the action's name; whether there is such an action, the screens say."""
