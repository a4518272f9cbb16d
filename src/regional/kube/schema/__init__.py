"""What the embedded API knows about its objects: kinds, types, patches, apply, validation, printing.

Pure functions over plain JSON objects, so that the server, its tests and the controllers can all use them
without a server. Nothing here does I/O except reading the data files packaged beside the code.
"""
