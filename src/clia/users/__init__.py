"""Users of the forge: people, API tokens and logins."""
