"""Built-in: a file for each input of a dataset, made or used again."""

from tidemill.handlers.distribution.handler import DistributionOptions, distribution_handler

__all__ = ["DistributionOptions", "distribution_handler"]
