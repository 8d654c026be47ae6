"""The record of agents in git: branches, typed commits, merges, traces and relations."""
