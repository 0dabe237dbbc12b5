"""What is measured: one adapter per peer, in a process and an environment of its own.

The modules here are imported by the harness, which reads what an adapter declares, and by the peer's own interpreter,
which has neither this project nor its dependencies. So they import nothing but the standard library and each other at
the top; a peer's libraries are imported where they are used.
"""
