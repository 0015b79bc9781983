"""Distribution: one input, one file. What a dataset is, when a file is used again, what files are called."""

from tidemill.domain.distribution.dataset import Dataset, InputField
from tidemill.domain.distribution.declare import datasets
from tidemill.domain.distribution.fields import Faults, Input, InvalidInputs
from tidemill.domain.distribution.names import file_name, folder_of
from tidemill.domain.distribution.request import COLUMNS, KIND, MAX_INPUTS, DistributionRequest
from tidemill.domain.distribution.reuse import Artifact, Reuse, decide

__all__ = [
    "COLUMNS",
    "KIND",
    "MAX_INPUTS",
    "Artifact",
    "Dataset",
    "DistributionRequest",
    "Faults",
    "Input",
    "InputField",
    "InvalidInputs",
    "Reuse",
    "datasets",
    "decide",
    "file_name",
    "folder_of",
]
