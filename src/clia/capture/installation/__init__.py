"""Hooks in the settings of tools: installation, removal and health."""
