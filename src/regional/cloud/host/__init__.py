"""AWS on one machine: a thin process around moto whose state outlives it.

moto keeps everything in memory. This host writes every call that changes something to a journal before it answers, and
replays the journal at start with the same randomness, so that ids, keys and ARNs come back as they were. It is the only
code that knows moto's insides; everybody else speaks AWS's API, and the gateway has one private door (`keys`).
"""
