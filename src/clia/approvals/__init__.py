"""What needs a person's approval before it lands."""
