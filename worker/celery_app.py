"""The Celery application of workers, ingest and submitters: one set of settings, two brokers.

Embedded: `filesystem://` folders in the data directory. Many hosts: `redis://`. The database is the
truth about runs; a message only says that there is something to claim. Settings were tried with
Celery 5.7 and Redis 7 (kill -9, restart, duplicate delivery). A worker asks first whether its
broker answers: with a wrong password Celery would wait in silence.
"""

from pathlib import Path

from celery import Celery

from core.errors import UserError
from core.queues import CPU_QUEUE, INGEST_QUEUE, INGEST_RUN_TASK

VISIBILITY_TIMEOUT_S = 86_400
"""Above the longest job: when it passes, Redis delivers a running job a second time."""


def make_app(name: str, broker_url: str, data_root: Path) -> Celery:
    """Return a configured Celery app; creates the folders of the embedded broker."""
    app = Celery(name, broker=broker_url)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        # A job that killed its worker must not be retried automatically.
        task_reject_on_worker_lost=False,
        task_default_queue=CPU_QUEUE,
        task_routes={INGEST_RUN_TASK: {"queue": INGEST_QUEUE}},
        task_serializer="json",
        accept_content=["json"],
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        worker_send_task_events=False,
        event_queue_ttl=60,
        broker_transport_options=transport_options(broker_url, data_root),
    )
    return app


def transport_options(broker_url: str, data_root: Path) -> dict[str, object]:
    """Return kombu's options for the broker in the URL."""
    if not broker_url.startswith("filesystem://"):
        return {
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "health_check_interval": 25,
            "socket_keepalive": True,
            "socket_connect_timeout": 5,
        }
    broker = Path(data_root).absolute() / "broker"
    folders = {name: broker / name for name in ("queue", "control", "processed")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "data_folder_in": str(folders["queue"]),
        "data_folder_out": str(folders["queue"]),
        "control_folder": str(folders["control"]),
        "processed_folder": str(folders["processed"]),
        "store_processed": False,
        "polling_interval": 0.2,
    }


TIMEOUT_S = 5.0


def broker_complaint(url: str) -> str | None:
    """Return why the broker does not answer now, None when it does.

    UserError for a password that it does not take, or an invalid URL: waiting would not help.
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
