"""The async sources. tools/async_to_sync.py makes the twins in the folder beside this one from them."""
