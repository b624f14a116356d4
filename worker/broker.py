"""Whether the broker answers this worker: a wrong password would leave it waiting in silence."""

from core.errors import UserError

TIMEOUT_S = 5.0


def broker_complaint(url: str) -> str | None:
    """Return why the broker does not answer now, None when it does.

    UserError for a password that it does not take, or a URL that is none: waiting would not help.
    """
    if url.startswith("filesystem://"):
        return None
    if not url.startswith(("redis://", "rediss://", "redis+socket://")):
        raise UserError("--broker: write it as redis://:PASSWORD@HOST:6379/0")
    import redis

    shown = url.rsplit("@", 1)[-1]  # never a password
    try:
        client = redis.Redis.from_url(
            url.replace("redis+socket://", "unix://"),
            socket_connect_timeout=TIMEOUT_S,
            socket_timeout=TIMEOUT_S,
        )
        client.ping()
    except redis.exceptions.AuthenticationError as error:
        raise UserError(f"broker {shown}: {error}; check the password in --broker") from error
    except ValueError as error:
        raise UserError(f"--broker {shown}: {error}") from error
    except (redis.exceptions.RedisError, OSError) as error:
        return f"broker {shown}: {error}"
    return None
