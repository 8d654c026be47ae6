"""Telemetry: what agents did, exported as OpenTelemetry spans."""
