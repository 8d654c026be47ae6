"""The forge among forges: what peers fetch here, their bell, and listening to them."""
