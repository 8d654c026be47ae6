"""Telemetry: the record of agents, exported as OpenTelemetry spans."""
