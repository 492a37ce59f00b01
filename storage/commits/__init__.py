"""One file per transaction that the system can make; each can be sent twice."""
