"""The address of the database server, and the URL with which processes reach it through the proxy."""

from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidemill.store.database import Database


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens. ``host`` is a name, an address, or the folder of a Unix socket."""

    host: str
    port: int
    is_encrypted: bool
    _parameters: dict[str, str]

    def build_proxied_url(self, host: str, port: int) -> str:
        """Return the parameters of the same database through a proxy."""
        mode = self._parameters.get("sslmode", "prefer")
        if not self.is_encrypted:
            mode = "disable"
        elif mode == "verify-full":  # the name in the certificate is not that of the proxy
            mode = "verify-ca"
        proxied = {"host": host, "port": str(port), "sslmode": mode, "gssencmode": "disable"}
        return make_conninfo("", **self._parameters | proxied)


async def find_server_address(db: Database) -> ServerAddress:
    """Return the address that an open connection uses. Environment variables can also set it."""
    async with db.connection() as conn:
        info = conn.info
        given = {name: str(value) for name, value in conninfo_to_dict(db.url).items()}
        given |= {"user": info.user, "dbname": info.dbname}
        given |= {"password": info.password} if info.password else {}
        given.pop("hostaddr", None)
        return ServerAddress(info.hostaddr or info.host, info.port, bool(conn.pgconn.ssl_in_use), given)
