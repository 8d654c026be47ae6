"""Workers: the loop that handles session requests, the effects it runs, heartbeats and the fleet."""
