"""Limiters as one process asks them: few trips to the database, nobody waits by looking again and again.

line      one limiter, or member: who waits, the permits in hand, when to ask again
places    how many of its places we have, where they are counted
turns     who waits, and when those who are sent away should come again
trips     what a line says to the database, and hears
refusals  what whoever is called refused, told to all
process   all the lines of a process
entrance  the items of a handler, each at its line
permit    for handlers that ask by themselves
"""

from tidemill.engine.limits.entrance import Entrance
from tidemill.engine.limits.line import Line
from tidemill.engine.limits.process import ProcessLimits

__all__ = ["Entrance", "Line", "ProcessLimits"]
