"""Rules of guardrails: their form, and the evaluator that tools, workers, landings and the gate call. Standard library only."""
