"""The engine's SQL and its installer."""

from __future__ import annotations

from pgq_py.schema.installer import Plan, Step, acheck, check, install, parts, plan, script, uninstall, upgrade

__all__ = ["Plan", "Step", "acheck", "check", "install", "parts", "plan", "script", "uninstall", "upgrade"]
