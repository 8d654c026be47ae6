"""What hooks answer tools before a call: rules of guardrails, questions to people, and budgets."""
