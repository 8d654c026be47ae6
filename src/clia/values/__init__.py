"""What everything else is made of: names, canonical JSON, pointers, the clock. Pure; imports only ``errors``."""
