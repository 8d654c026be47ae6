"""The form that verbs and records have on the wire, the same for the forge and its clients."""
