"""What every box stands on: processes, logs, settings, names, web basics, reconcile loops.

Owns nothing of the domain and imports nothing of ours. Everybody calls it.
"""
