"""What runs in another framework's interpreter: numpy and the standard library, and nothing else of Hanse's.

The datapod imports `frames` alone, for its own end of the pipe. Python 3.10 and later.
"""
