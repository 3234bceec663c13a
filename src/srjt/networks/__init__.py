"""Backbones, pretrained weights, and the function that joins a backbone with a method's last layer."""

from __future__ import annotations

from srjt.networks.backbones import names
from srjt.networks.building import build, fetch_weights

__all__ = ["build", "fetch_weights", "names"]
