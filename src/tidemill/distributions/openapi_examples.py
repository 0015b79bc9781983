"""Examples of distributions, for the OpenAPI document."""

from typing import Any

from pydantic import BaseModel

from tidemill.distributions import schemas as distributions
from tidemill.rest.example_values import (
    EXAMPLE_COUNTS,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
)

_DISTRIBUTION_INPUT = {"index_key": "ABC", "effective_date": 20240202, "asofindicator": "CLS"}
_DISTRIBUTION: dict[str, Any] = {
    "job_id": EXAMPLE_JOB_ID,
    "key": "J20261115_000779",
    "dataset": "prices",
    "status": "completed",
}
_DISTRIBUTION |= dict.fromkeys(EXAMPLE_COUNTS, 0) | {"total": 2, "done": 2, "files_generated": 1, "files_reused": 1}
_DISTRIBUTION |= {"reuse": {"enabled": True, "days": 7}, "format": "csv", "compression": "none"}
_DISTRIBUTION |= {
    "policy": {"mode": "fail_fast"},
    "user_id": 3,
    "created_at": EXAMPLE_CREATED_AT,
    "completed_at": EXAMPLE_UPDATED_AT,
}
_DISTRIBUTION |= {
    "started_at": EXAMPLE_CREATED_AT,
    "links": {"self": f"/v1/distributions/{EXAMPLE_JOB_ID}", "redrive": f"/v1/distributions/{EXAMPLE_JOB_ID}/redrive"},
}
_DISTRIBUTION_FOLDER_URL = "s3://bucket/exports/2026/11/15/J20261115_000779"
_DISTRIBUTION_CONTENT = _DISTRIBUTION_INPUT | {
    "status": "done",
    "attempts": 1,
    "path": f"{_DISTRIBUTION_FOLDER_URL}/ABC_20240202_CLS.csv",
    "rows": 500,
}
_DISTRIBUTION_CONTENT |= {"download_url": f"/v1/distributions/{EXAMPLE_JOB_ID}/files/0"}
_DISTRIBUTION_CONTENT |= {
    "size": 20110,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "reused": False,
}
_DATASET = {
    "name": "prices",
    "fields": [
        {"name": "index_key", "type": "text", "required": True},
        {"name": "effective_date", "type": "yyyymmdd", "required": True},
        {"name": "asofindicator", "type": "text", "required": True},
    ],
    "date_field": "effective_date",
    "format": "csv",
    "compression": "none",
}
OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    distributions.DatasetList: {"datasets": [_DATASET]},
    distributions.DistributionIn: {
        "dataset": "prices",
        "inputs": [_DISTRIBUTION_INPUT],
        "reuse": {"enabled": True, "days": 7},
    },
    distributions.DistributionOut: _DISTRIBUTION,
    distributions.DistributionDetail: _DISTRIBUTION | {"data_content": [_DISTRIBUTION_CONTENT]},
    distributions.DistributionPage: {"distributions": [_DISTRIBUTION], "next_page": EXAMPLE_NEXT_PAGE},
}
