"""What happens in the spaces, to those who watch."""
