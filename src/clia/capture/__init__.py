"""What coding agents' tools tell of a session, in one form: from their hooks and from their transcripts."""
