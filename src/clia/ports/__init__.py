"""What the domain asks of the world, as Protocols in the domain's own words. No implementation lives here."""
