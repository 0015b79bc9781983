"""Controllers: pure steps from an observation to a size. Settings are their bounds.

pace         how long items take: the size of a claim, of a flush, the length of a lease
chunk        rows of a source that are written at once
pressure     how much a strained machine takes on
concurrency  items at a time, when whoever they call refuses some, or errors rise
errors       the share of attempts that fail, and whether that is unusual
"""
