"""Services that rows can be sent to."""

from pydantic import BaseModel, Field


class ServiceOut(BaseModel):
    """A service of the declarations; never its secret."""

    name: str
    url: str = Field(description="Where it answers")
    limit: str | None = Field(None, description="The limiter that its requests count against")


class ServiceList(BaseModel):
    """Those that your jobs may call."""

    services: list[ServiceOut]
