"""What an agent did: agents as branches, typed commits, merges, traces and relations, on real git."""
